// Follows one lock, and remembers which locks are pinned. Both are the browser's own: the gateway keeps nothing of them.
//
// A page of a lock tells once when the lock is free, or has been held for over half an hour. It asks by long polls, because the page's
// socket rests while the tab is hidden. While it follows, the title has the number of waiters and the mark in the tab is a gate that is open or shut.
// The page of all locks shows those that are pinned, by a poll of their own.
"use strict";
(() => {
  const $ = (selector) => document.querySelector(selector);

  // ---- Pins ----------------------------------------------------------------

  const most = 20;
  const key = "lockkeeper.pins";
  const pullEvery = 3_000;
  const here = location.pathname.startsWith("/locks/") ? location.pathname.slice("/locks/".length) : "";
  const ns = new URLSearchParams(location.search).get("ns") ?? "default";

  function pins() {
    try {
      const list = JSON.parse(localStorage.getItem(key) ?? "[]");
      return Array.isArray(list) ? list.filter((pin) => typeof pin === "string").slice(0, most) : [];
    } catch {
      return []; // the browser keeps nothing
    }
  }

  function keep(list) {
    try {
      localStorage.setItem(key, JSON.stringify(list));
    } catch {
      // The browser keeps nothing.
    }
  }

  // pinOf names a lock as the address of the pinned ones does.
  function pinOf(button) {
    if (!button.dataset.pin) return `${ns}/${encodeURIComponent(decodeURIComponent(here))}`;
    const at = button.dataset.pin.indexOf("/");
    return `${button.dataset.pin.slice(0, at)}/${encodeURIComponent(button.dataset.pin.slice(at + 1))}`;
  }

  function paint() {
    const list = pins();
    for (const button of document.querySelectorAll("[data-pin]")) {
      const on = list.includes(pinOf(button));
      button.setAttribute("aria-pressed", String(on));
      button.textContent = on ? "Unpin" : "Pin";
    }
  }

  const pulls = () => $("#pinned") && $("#filter") && !$("#q").value && !$("#state").value;

  async function pull() {
    const live = $("#live");
    if (!pulls() || !live || document.hidden) return;
    const list = pins();
    if (list.length === 0 && $("#pinned").children.length === 0) return;
    try {
      const answer = await fetch(`/ui/fragments?${new URLSearchParams({ page: "pinned", pin: list.join(",") })}`, { cache: "no-store", headers: { "HX-Request": "true" } });
      if (!answer.ok) return;
      const text = await answer.text();
      if (pulls()) await htmx.swap({ sourceElement: live, target: live, swap: "none", text });
    } catch {
      // The page says that the gateway is away.
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-pin]");
    if (!button) return;
    const pin = pinOf(button);
    const list = pins();
    if (!list.includes(pin) && list.length >= most) return say(`${most} locks are pinned. Unpin one first.`);
    keep(list.includes(pin) ? list.filter((other) => other !== pin) : [...list, pin]);
    paint();
    pull();
  });

  // ---- Following -------------------------------------------------------------

  const long = 30 * 60_000;
  const retry = 10_000;
  const title = document.title;
  const icon = $("link[rel=icon]");
  const shut = icon?.href;
  let stop = null;

  function say(text) {
    const place = $("#done");
    if (!place) return;
    place.classList.remove("bad");
    place.classList.add("good");
    place.textContent = text;
  }

  function show(lock) {
    document.title = lock ? `(${lock.queue_length}) ${lock.lock}` : title;
    const href = lock?.state === "free" ? shut?.replace("favicon.svg", "favicon-open.svg") : shut;
    if (icon && icon.href !== href) icon.href = href;
  }

  function tell(name, text) {
    say(text);
    document.title = `● ${text}`;
    if (globalThis.Notification?.permission !== "granted") return;
    try {
      const note = new Notification(name, { body: text, tag: `lock ${name}` });
      note.onclick = () => {
        window.focus();
        note.close();
      };
    } catch {
      // Some browsers show none for a page; the title says it.
    }
  }

  const sleep = (ms, signal) => new Promise((done) => {
    setTimeout(done, ms);
    signal.addEventListener("abort", done, { once: true });
  });

  // happened says that what the viewer wants to know is so; "" while it is not.
  function happened(what, lock) {
    if (what === "free") return lock.state === "free" ? `${lock.lock} is free.` : "";
    const holder = lock.holders.find((h) => (h.held_ms ?? 0) >= long);
    return holder ? `${holder.owner ?? "A holder"} has held ${lock.lock} for over 30 minutes.` : "";
  }

  // patience is for how long a poll may wait: until the first holder has held for half an hour, at most 50 s.
  function patience(what, lock) {
    if (what === "free") return 50_000;
    return Math.min(50_000, ...lock.holders.map((h) => Math.max(1_000, long - (h.held_ms ?? 0) + 500)));
  }

  async function follow(what) {
    stop?.abort();
    stop = null;
    show(null);
    if (!what) return say("");
    const { signal } = (stop = new AbortController());
    const allowed = await Promise.resolve(globalThis.Notification?.requestPermission?.()).catch(() => "denied");
    if (signal.aborted) return;
    say(allowed === "granted" ? "You will be notified." : "This browser shows no notifications of this page. Its title says it: keep the tab open.");
    let wait = {};
    while (!signal.aborted) {
      try {
        const answer = await fetch(`/v1/locks/${here}?${new URLSearchParams({ ns, ...wait })}`, { cache: "no-store", headers: { Accept: "application/json" }, signal });
        if (answer.status === 401) return document.dispatchEvent(new Event("session:ended"));
        if (!answer.ok) throw new Error(`status ${answer.status}`);
        const lock = await answer.json();
        show(lock);
        const text = happened(what, lock);
        if (text) {
          $("#follow").value = "";
          stop = null;
          return tell(lock.lock, text);
        }
        wait = { wait: `${Math.round(patience(what, lock))}ms`, until: "changed", since: lock.rev };
      } catch {
        if (!signal.aborted) await sleep(retry, signal);
      }
    }
  }

  document.addEventListener("change", (event) => event.target.id === "follow" && follow(event.target.value));
  // The title goes back when the page is looked at, after it has told.
  const seen = () => document.hidden || stop || show(null);
  document.addEventListener("visibilitychange", seen);
  for (const event of ["pointerdown", "keydown"]) document.addEventListener(event, seen);

  document.addEventListener("htmx:after:swap", paint);
  paint();
  if ($("#pinned") && $("#filter")) {
    pull();
    setInterval(pull, pullEvery);
  }
})();
