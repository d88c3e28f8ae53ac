// Tells the viewer when a lease that waits is granted, and some minutes before a reservation ends, also while the tab is in the background: by a
// notification of the browser where the viewer allows it, and by the title of the page in any case. It asks for nothing before the viewer presses the button
// of a waiter. The page's socket rests while the tab is hidden, so each lease that is watched has a long poll of its own. The poll
// has no lease token, so it keeps no place in the queue. It ends with the page.
"use strict";
(() => {
  const $ = (selector) => document.querySelector(selector);
  const most = 3; // leases at once: a browser has some six connections to one host, and the page needs some
  const longest = 50_000; // of a poll
  const warning = 5 * 60_000; // before the end of a reservation
  const pause = 2_000; // between polls
  const retry = 10_000; // after a poll that was not answered

  const watched = new Map(); // AbortControllers by the ids of leases
  const title = document.title;

  const say = (text) => {
    const place = $("#done");
    place.classList.remove("bad");
    place.classList.add("good");
    place.textContent = text;
  };

  // Each push renders the buttons as they are at first.
  function paint() {
    for (const button of document.querySelectorAll("[data-tell]")) {
      const on = watched.has(button.closest("[data-row]").dataset.leaseId);
      if (button.getAttribute("aria-pressed") === String(on)) continue; // a row that has not changed is left alone
      button.setAttribute("aria-pressed", String(on));
      button.textContent = on ? "Telling you" : "Tell me";
    }
  }

  // allowed asks for the browser's notifications. A page that came over plain HTTP from another machine has none.
  async function allowed() {
    try {
      return (await Notification.requestPermission()) === "granted";
    } catch {
      return false;
    }
  }

  const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

  // until asks for a lease, by the query that it is given each time, until look says what became of it, and returns that; "" when the viewer
  // does not want to know any more.
  async function until(id, signal, query, look) {
    while (!signal.aborted) {
      let rest = retry;
      try {
        const answer = await fetch(`/v1/leases/${encodeURIComponent(id)}?${query()}`, { cache: "no-store", headers: { Accept: "application/json" }, signal });
        if (answer.ok) {
          const lease = await answer.json();
          if (lease.state === "ended") return lease.reason || "ended";
          const became = look(lease);
          if (became) return became;
          rest = pause;
        } else if (answer.status === 401) {
          document.dispatchEvent(new Event("session:ended"));
          return "no longer shown to you";
        } else if ([403, 404, 410].includes(answer.status)) {
          return "gone";
        }
      } catch {
        // It was not answered, or the viewer has pressed the button again.
      }
      if (!signal.aborted) await sleep(rest);
    }
    return "";
  }

  // granted waits for the end of a wait; next is called when the lease is the next one.
  function granted(id, signal, next) {
    return until(id, signal, () => `wait=${longest}ms&until=granted`, ({ state, position, ends_at }) => {
      if (state === "waiting" && position === 1) next();
      return state === "held" && (ends_at ? "reserved" : "granted");
    });
  }

  // ending waits until a reservation is about to end. The first poll is short: it says when that is.
  function ending(id, signal) {
    let left = 0;
    return until(id, signal, () => `wait=${Math.min(longest, Math.max(1_000, left - warning))}ms&until=ended`, ({ ends_at, expires_in_ms }) => {
      left = expires_in_ms ?? Infinity;
      return ends_at && left <= warning && "soon";
    });
  }

  function announce(lock, text, id) {
    document.title = `\u25cf ${text}`;
    say(text);
    if (globalThis.Notification?.permission !== "granted") return;
    try {
      const note = new Notification(lock, { body: text, tag: id });
      note.onclick = () => {
        window.focus();
        note.close();
      };
    } catch {
      // Some browsers show none for a page; the title says it.
    }
  }

  async function tell(button) {
    const { leaseId: id, who } = button.closest("[data-row]").dataset;
    if (watched.has(id)) {
      watched.get(id).abort();
      watched.delete(id);
      paint();
      return;
    }
    if (watched.size >= most) {
      say(`This page tells of ${most} leases at once. Press the button of another one again to make room.`);
      return;
    }
    const stop = new AbortController();
    watched.set(id, stop);
    paint();
    const lock = $(".lock-title").textContent;
    const row = button.closest("[data-row]");
    const waits = row.matches(".waiter");
    const when = waits ? `when ${who} is granted` : `5 minutes before the reservation of ${who} ends`;
    const asked = allowed().then((yes) => watched.get(id) === stop && say(yes ? `You will be notified ${when}.`
      : `This browser shows no notifications of this page. Its title says ${when}: keep the tab open.`));
    let first = row !== $("#queue .waiters > :first-child"); // else it is next already
    let became = waits ? await granted(id, stop.signal, () => {
      if (first) announce(lock, `${who} is next for ${lock}.`, id);
      first = false;
    }) : "reserved";
    await asked;
    if (became === "reserved") {
      if (waits) announce(lock, `${who} holds ${lock}.`, id);
      const end = await ending(id, stop.signal);
      became = end === "soon" ? `The reservation of ${who} ends in less than 5 minutes.` : `The reservation of ${who} has ended: ${end}.`;
    } else became = became === "granted" ? `${who} holds ${lock}.` : `${who} waits for ${lock} no longer: ${became}.`;
    if (watched.get(id) !== stop) return;
    watched.delete(id);
    paint();
    announce(lock, became, id);
  }

  // The title goes back when the page is looked at.
  const seen = () => document.hidden || (document.title = title);
  document.addEventListener("visibilitychange", seen);
  for (const event of ["pointerdown", "keydown"]) document.addEventListener(event, seen);
  window.addEventListener("focus", seen);

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-tell]");
    if (button) tell(button);
  });
  document.addEventListener("htmx:after:swap", paint);

  // Most viewers follow nothing: the script for that comes when the pointer or the focus is near its buttons.
  const follow = $(".follow");
  const load = () => {
    if ($("#following")) return;
    const script = document.createElement("script");
    script.id = "following";
    script.src = follow.dataset.script;
    document.head.append(script);
  };
  for (const event of ["pointerover", "focusin"]) follow?.addEventListener(event, load);
})();
