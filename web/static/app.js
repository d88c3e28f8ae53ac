// What the pages do by themselves: count times up and down, say whether they are
// live, poll while there is no socket, mark what has changed, and the keyboard.
// htmx does the rest. Everything here is a convenience: without it the pages are
// plain, and times are the instants that the server wrote.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => root.querySelectorAll(selector);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  // ---- Clock -------------------------------------------------------------
  // Leases end by the gateway's clock, which need not be the browser's. Every
  // status says what time it is there. What it says is late by the way it came,
  // so of several answers the one that came fastest, the largest, is right;
  // unless the clocks have been set meanwhile.

  let offset = null;
  let heardNow = "";

  function correctClock() {
    const now = $("#status")?.dataset.now;
    if (!now || now === heardNow) return;
    heardNow = now;
    const seen = Number(now) - Date.now();
    offset = offset === null || Math.abs(seen - offset) > 1000 ? seen : Math.max(offset, seen);
  }

  const now = () => Date.now() + (offset ?? 0);

  // ---- Times -------------------------------------------------------------

  // span writes 192000 as "3m 12s": two units, so that it never jumps in width.
  function span(ms) {
    const s = Math.max(0, Math.floor(ms / 1000));
    const two = (n) => String(n).padStart(2, "0");
    if (s < 60) return `${s}s`;
    if (s < 3600) return `${Math.floor(s / 60)}m ${two(s % 60)}s`;
    if (s < 86400) return `${Math.floor(s / 3600)}h ${two(Math.floor(s / 60) % 60)}m`;
    return `${Math.floor(s / 86400)}d ${two(Math.floor(s / 3600) % 24)}h`;
  }

  // roughly writes a time to come that is an estimate: one unit.
  function roughly(ms) {
    const s = Math.round(ms / 1000);
    if (s <= 0) return "any moment";
    if (s < 100) return `about ${Math.ceil(s / 10) * 10} s`;
    if (s < 6000) return `about ${Math.round(s / 60)} min`;
    return s < 172_800 ? `about ${Math.round(s / 3600)} h` : `about ${Math.round(s / 86400)} days`;
  }

  // since writes how long something has lasted; where the gateway did not see the beginning, the bounds that are known.
  function since(d, t) {
    const held = span(t - d.since);
    if ("earliest" in d) return `between ${held} and ${span(t - d.earliest)}`;
    return "over" in d ? held + "+" : held;
  }

  const write = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
    if (!("on" in element.dataset)) element.dataset.on = ""; // the stylesheet hides a time until it has been written
  };

  // Nothing is written while the data is too old to be counted on: a lease that
  // seems to run out may have been renewed where this page cannot see it.
  function tick() {
    const t = frozen ?? now();
    for (const e of $$("time[data-since]")) write(e, since(e.dataset, t));
    for (const e of $$("time[data-ago]")) write(e, span(t - e.dataset.ago) + " ago");
    for (const e of $$("time[data-about]")) write(e, roughly(e.dataset.about - t));
    for (const e of $$("time[data-until]")) {
      const left = e.dataset.until - t;
      write(e, left > 0 ? span(left + 999) : "expired");
      e.classList.toggle("low", left < 5000);
    }
  }

  function tickRings(which = "") {
    const t = frozen ?? now();
    for (const e of $$(`circle[data-until]${which}`)) {
      e.dataset.on = "";
      const part = Math.min(1, Math.max(0, (e.dataset.until - t) / e.dataset.clockMs));
      e.setAttribute("stroke-dasharray", `${(part * 100).toFixed(1)} 100`);
      e.classList.toggle("low", e.dataset.until - t < 5000);
    }
  }

  function refresh() {
    correctClock();
    zone.write();
    tick();
    tickRings(":not([data-on])"); // the others are soon ticked
  }

  // ---- Rows ------------------------------------------------------------------
  // When rows come or go, the push has an empty element in the place of each row that has not changed: the one that is
  // there stays as it is, with what the reader has opened, marked or focused in it.

  htmx.registerExtension("rows", { htmx_before_morph_node: (_, { newNode }) => newNode.dataset?.same === undefined });

  // ---- What has changed ----------------------------------------------------
  // A row whose data-sig differs, or that is new, lights up once. Not after the
  // page or the filter has changed everything, not while something changes all the
  // time, and not when the reader asked for stillness.

  let before = null;
  let rowBefore = -1; // the row that has the focus
  let marked = null; // the text that is selected
  let pushedLast = -Infinity; // when the last push came

  function remember() {
    const { anchorNode, anchorOffset, focusNode, focusOffset, isCollapsed } = getSelection();
    marked = isCollapsed ? null : [anchorNode, anchorOffset, focusNode, focusOffset];
    before = new Map([...$$("[data-sig]")].map((e) => [e.id, e.dataset.sig]));
    rowBefore = focusedRow();
  }

  // markAgain selects again what was selected in a row that has moved: a move takes it out of the selection.
  function markAgain() {
    if (marked?.[0].isConnected && marked[2].isConnected && getSelection().isCollapsed) getSelection().setBaseAndExtent(...marked);
    marked = null;
  }

  function markChanges() {
    if (!before) return;
    markAgain();
    // The focus was in a row that is gone: the one in its place has it now, so
    // that keyboard users stay where they are.
    if (rowBefore >= 0 && document.activeElement === document.body) focusRow(rowBefore);
    const often = performance.now() - pushedLast < 1000;
    pushedLast = performance.now();
    if (calm.matches || document.hidden || often) return;
    const changed = [...$$("[data-sig]")].filter((e) => before.get(e.id) !== e.dataset.sig);
    if (changed.length > 8) return;
    const colour = getComputedStyle(document.documentElement).getPropertyValue("--flash");
    for (const e of changed) e.animate({ backgroundColor: [colour, "transparent"] }, { duration: 1400, easing: "ease-out" });
  }

  // ---- Live or not -----------------------------------------------------------
  // The socket is htmx's, which connects again by itself. This watches it, and
  // fetches the same fragments every two seconds while it brings nothing.

  const silence = 8000; // the server pushes the status every five seconds
  const quietReconnect = 1500; // a shorter reconnect is not shown
  const pollEvery = 2000;

  let started = Date.now();
  let open = false;
  let opened = 0; // when the socket opened last: it may bring nothing all the same
  let heard = 0; // when the socket last brought something
  let polled = 0; // when a poll last did
  let failed = false; // the last poll
  let polling = false;
  let nextPoll = 0;
  let cameBack = 0; // when the tab was shown again
  let frozen = null; // the gateway's time of the last good state, while it is away

  const lastGood = () => Math.max(heard, polled) || started;

  // The browser's clock may be set back: nothing was heard in the future.
  function neverAfter(t) {
    [started, opened, heard, polled, cameBack] = [started, opened, heard, polled, cameBack].map((then) => Math.min(then, t));
    nextPoll = Math.min(nextPoll, t + 2 * pollEvery);
  }

  // connectAnew makes htmx drop its socket, open or not, and begin with the first
  // attempt.
  function connectAnew() {
    open = false;
    htmx.process($("#live"), true);
  }

  async function poll() {
    const live = $("#live");
    if (!live || polling) return;
    polling = true;
    const before = heard;
    try {
      const url = live.dataset.poll;
      const answer = await fetch(url, { cache: "no-store", headers: { "HX-Request": "true" }, signal: AbortSignal.timeout(3000) });
      if (answer.status === 401) return sessionEnded();
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const text = await answer.text();
      if ($("#live")?.dataset.poll !== url) return; // the filter has changed meanwhile
      if (heard !== before) return; // the socket has brought what may be newer
      polled = Date.now();
      if (failed) connectAnew(); // it is back; htmx may be in a long pause
      failed = false;
      document.dispatchEvent(new Event("rest:over"));
      remember();
      await htmx.swap({ sourceElement: live, target: live, swap: "none", text });
    } catch {
      failed = true;
    } finally {
      polling = false;
      nextPoll = Date.now() + pollEvery * (0.8 + 0.4 * Math.random());
    }
  }

  function watch() {
    if (!$("#live") || document.hidden) return;
    const t = Date.now();
    neverAfter(t);
    if (open && t - heard < silence) return show("live");
    // Open, and nothing comes: the other end is gone and the browser does not know, or something
    // on the way keeps what it sends. The close would come late.
    if (open && t - opened >= silence) connectAnew();
    if (t - Math.max(lastGood(), cameBack) < quietReconnect) return;
    if (t >= nextPoll) poll();
    if (failed) show("away");
    else if (polled) show("polling");
  }

  let shownLink = "";
  const title = document.title;

  // away says so in the tab's title, too, and lets nothing be done.
  function disarm(away) {
    document.title = (away ? "⚠ " : "") + title;
    for (const button of $$("[data-act], [data-withdraw], [data-deliver]")) button.disabled = away;
  }

  const linkWords = { live: "Live", polling: "Polling", away: "Disconnected" };

  function show(state) {
    const link = $("#link");
    if (!link) return;
    const serving = $("#status")?.dataset.serving !== "false";
    const words = linkWords[state] + (state !== "away" && !serving ? ", not serving" : "");
    const text = $(".link-text", link);
    if (text.textContent !== words) text.textContent = words; // role=status: said once, not again and again
    link.dataset.link = state;
    document.documentElement.dataset.link = state;
    if (state !== shownLink && (state === "away" || shownLink === "away")) disarm(state === "away");
    shownLink = state;

    const away = $("#away");
    const good = lastGood() + (offset ?? 0);
    frozen = state === "away" ? good : null;
    away.hidden = state === "live";
    if (state === "polling") away.textContent = "Live updates are blocked (WebSocket). Refreshing every 2 s and still trying.";
    if (state === "away") away.textContent = `No answer from the gateway since ${zone.timeOfDay(lastGood())}, ${span(Date.now() - lastGood())} ago. Showing the last known state.`;
  }

  // ---- Session ---------------------------------------------------------------
  // A session ends when its credential does. What the page shows stays there, and gets old. When the browser's user is
  // another one, in another tab, the page is loaded again: for that user, or, after a logout, for none.

  function sessionEnded() {
    const live = $("#live");
    if (!live) return;
    live.remove(); // htmx connects for no element that is gone
    const again = document.createElement("a");
    again.href = `/login?${new URLSearchParams({ next: location.pathname + location.search })}`;
    again.textContent = "Log in again";
    $("#away").replaceChildren("The session has ended. Showing the last known state. ", again);
    $("#away").hidden = false;
    $(".link-text").textContent = "Session ended";
    $("#link").dataset.link = document.documentElement.dataset.link = "ended";
    $(".viewer form")?.remove();
    frozen = lastGood() + (offset ?? 0);
    tick();
  }
  document.addEventListener("session:ended", sessionEnded);

  const { viewer } = document.body.dataset;
  if (viewer !== undefined && "BroadcastChannel" in globalThis) {
    const tabs = new BroadcastChannel("lockkeeper");
    tabs.postMessage(viewer);
    tabs.addEventListener("message", ({ data }) => data !== viewer && location.reload());
  }

  const heardFrom = () => {
    heard = Date.now();
    failed = false;
    nextPoll = 0;
  };
  // A socket that has opened has not brought anything yet: a proxy can open it and pass nothing on.
  document.addEventListener("htmx:ws:after:connection", () => {
    open = true;
    opened = Date.now();
  });
  document.addEventListener("htmx:ws:close", (event) => {
    open = false;
    if (event.detail.code === 4401) sessionEnded();
  });
  document.addEventListener("htmx:ws:before:message:incoming", () => {
    open = true;
    heardFrom();
    remember();
  });
  // A page that is open for days outlives the gateway that it came from. What a
  // newer one pushes is meant for newer styles and scripts. Not more than once a
  // minute: while a fleet is upgraded, page and socket may come from either.
  const madeBy = () => `${$("#status")?.dataset.version} ${$("#status")?.dataset.build}`;
  const maker = madeBy();
  const outlived = () => madeBy() !== maker && performance.now() > 60_000;
  // Other rules let other things be done: the page has no dialogs for them. Page and socket may come from gateways of which
  // one has read the rules a little later.
  const rulesOf = () => $("#status")?.dataset.rules;
  const rules = rulesOf();
  const otherRules = () => rulesOf() !== rules && performance.now() > 10_000;

  document.addEventListener("htmx:after:swap", () => {
    if (outlived() || otherRules()) location.reload();
    // A row that is to stay as it is, and is not there: something was missed. A new socket begins with all.
    if ($("[data-same]")) connectAnew();
    refresh();
    markChanges();
    before = null;
    watch();
  });
  // A tab in the background has no socket (htmx closes it). One that comes back
  // to the front has missed everything: its socket opens again, and for a moment
  // nothing is wrong. What it shows is as old as it is.
  document.addEventListener("visibilitychange", () => {
    open = false;
    if (document.hidden) return;
    cameBack = Date.now();
    failed = false;
    nextPoll = 0;
    refresh();
  });

  // ---- Filter ----------------------------------------------------------------
  // A filter that is refused or not answered changes nothing: neither
  // the rows nor the address. So the page has to say that it was not obeyed.

  let filtering = null; // the request that was answered last

  function refused(why) {
    $("#refused").textContent = why && `${why} Still showing the results of the previous filter.`;
    $("#refused").hidden = !why;
  }

  document.addEventListener("htmx:before:response", async (event) => {
    const { sourceElement, response } = event.detail.ctx;
    if (sourceElement.id !== "filter") return;
    filtering = response;
    if (response.raw.ok) return refused("");
    event.preventDefault();
    if (response.raw.status === 401) sessionEnded();
    const page = new DOMParser().parseFromString(await response.raw.text().catch(() => ""), "text/html");
    if (filtering === response) refused($(".lead", page)?.textContent ?? `The gateway answered with status ${response.status}.`);
  });
  document.addEventListener("htmx:error", (event) => {
    if (event.detail.ctx?.sourceElement.id === "filter") refused("The gateway did not answer.");
  });
  // A filter that is empty has no place in the address.
  document.addEventListener("htmx:config:request", (event) => {
    const body = event.detail.ctx.request.body;
    for (const [key, value] of [...body]) if (value === "") body.delete(key);
  });

  document.addEventListener("click", (event) => {
    if (event.target.closest("#keys")) $("#help").showModal();
  });

  // ---- Keyboard -------------------------------------------------------------------

  // goable is what takes the focus in a row: its link, or the row itself.
  const goable = (row) => (row.matches("[tabindex]") ? row : ($("a", row) ?? row));

  const focusedRow = () => [...$$("[data-row]")].findIndex((row) => row.contains(document.activeElement));

  function focusRow(at) {
    const rows = $$("[data-row]");
    const row = rows[Math.min(rows.length - 1, Math.max(0, at))];
    if (!row) return;
    goable(row).focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }

  function move(step) {
    const at = focusedRow();
    focusRow(at >= 0 ? at + step : step > 0 ? 0 : Infinity);
  }

  let afterG = 0;

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if ($("dialog[open]")) return;
    const typing = event.target.matches("input, select, textarea");
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      if (event.key !== "ArrowDown" || !event.target.matches("input")) return;
    }
    const inRow = document.activeElement.matches("[data-row], [data-row] *") || typing;
    switch (event.key) {
      case "/":
        if (!$("#q")) return;
        $("#q").focus();
        $("#q").select();
        break;
      case "j":
        move(1);
        break;
      case "k":
        move(-1);
        break;
      case "ArrowDown":
      case "ArrowUp":
        if (!inRow) return; // the page scrolls
        move(event.key === "ArrowDown" ? 1 : -1);
        break;
      case "Enter": // a link opens by itself
        if (!document.activeElement.matches("[data-row]")) return;
        for (const d of $$("details", document.activeElement)) d.open = !d.open;
        break;
      case "o":
        if (Date.now() - afterG > 1000) return;
        $("[data-go=o]").click();
        break;
      case "g":
        afterG = Date.now();
        return;
      case "t":
        $("#theme").click();
        break;
      case "?":
        $("#help").showModal();
        break;
      default:
        return;
    }
    event.preventDefault();
  });

  // ---- Links -------------------------------------------------------------------
  // A hundred rows of a queue would be hundreds of stops for the Tab key. It comes to the first row alone, and to the links of a
  // row while the focus is in it. The rows have their links with tabindex -1, also when they come again with a push.

  let reached = null;

  function reach(row) {
    if (reached && reached !== row) for (const link of $$("a[tabindex='0']", reached)) link.tabIndex = -1;
    reached = row;
    if (row) for (const link of $$("a[tabindex='-1']", row)) link.tabIndex = 0;
  }

  document.addEventListener("focusin", ({ target }) => reach(target.closest("#queue [data-row]")));
  document.addEventListener("htmx:after:swap", () => reach(document.activeElement.closest("#queue [data-row]")));

  // load loads the styles or the script that the button of the search names, when they are first needed.
  function load(name, tag, attributes) {
    const file = document.createElement(tag);
    Object.assign(file, attributes($("#search-open").dataset[name]));
    document.head.append(file);
    return file;
  }
  const styles = () => $("link[href$='/more.css']") ?? load("style", "link", (href) => ({ rel: "stylesheet", href }));

  // A link with data-here leads to the same page with something else shown. htmx takes the fragments and the address of the socket
  // out of the answer, as it does for a filter. When that fails, the link is followed.
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-here]");
    if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const { href } = link;
    styles();
    try {
      const answer = await fetch(href, { cache: "no-store", headers: { "HX-Request": "true" }, signal: AbortSignal.timeout(5000) });
      if (!answer.ok || answer.redirected) throw new Error(`status ${answer.status}`);
      const text = await answer.text();
      history.replaceState(history.state, "", href);
      const live = $("#live");
      remember();
      await htmx.swap({ sourceElement: live, target: live, swap: "none", text });
    } catch {
      location.assign(href);
    }
  });

  let finder = false; // the script of the search is there, or comes

  function find() {
    if (finder) return $("#search")?.dispatchEvent(new Event("search:toggle"));
    finder = true;
    styles();
    load("script", "script", (src) => ({ src, onerror: () => (finder = false) }));
  }
  document.addEventListener("search:failed", () => (finder = false));
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    find();
  });
  $("#search-open")?.addEventListener("click", find);

  // ---- Begin -------------------------------------------------------------------

  refresh();
  setInterval(() => document.hidden || tick(), 1000);
  setInterval(() => document.hidden || calm.matches || tickRings(), 1000);
  setInterval(() => calm.matches && tickRings(), 5000);
  setInterval(watch, 500);
})();
