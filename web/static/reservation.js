// Reservations by hand: the dialogs that make, extend and release one. The lease token is what moves and releases it, so the browser of
// its maker keeps that, for one viewer, until the reservation is released there or its user logs out. Another browser shows no buttons.
"use strict";
globalThis.reservationActs = ({ $, $$, allow, complain, reveal, now }) => {
  const most = 20; // lease tokens; with one more the oldest is forgotten
  const place = `lockkeeper.reservations ${$(".viewer-name")?.textContent ?? ""}`;

  // kept is [lease id, lease token], the oldest first.
  function kept() {
    try {
      return new Map(JSON.parse(localStorage.getItem(place) ?? "[]"));
    } catch {
      return new Map(); // the browser keeps nothing
    }
  }

  function keep(change) {
    const tokens = kept();
    change(tokens);
    try {
      localStorage.setItem(place, JSON.stringify([...tokens].slice(-most)));
    } catch {
      // The browser keeps nothing: its user has the token.
    }
    paint();
  }

  // Each push renders the buttons hidden.
  function paint() {
    const tokens = kept();
    for (const buttons of $$("[data-own]")) buttons.hidden = !tokens.has(buttons.closest("[data-row]").dataset.leaseId);
  }

  const inPlace = ({ position }) => (position ? `You wait at place ${position.toLocaleString("en")}.` : "You are next. The grant is being written.");

  const reserve = {
    begin() {
      reveal(null);
      reserve.typed();
      $("[name=for]", now().dialog).focus({ preventScroll: true });
    },
    // The same request, sent again after an answer that was lost, must not take a second place. Another one is another request.
    typed() {
      now().key = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    },
    head: () => ({ "Idempotency-Key": now().key }),
    body: (form) => ({
      for: form.for.value.trim(), owner: form.owner.value.trim(), reason: form.reason.value.trim(), mode: now().button.dataset.mode,
      ...(form.queue.checked && { async: true }),
    }),
    done: (answer) => (answer.state === "held" ? "The lock is reserved." : inPlace(answer)),
    secret(answer) {
      keep((tokens) => tokens.set(answer.lease_id, answer.token));
      return answer.token;
    },
  };

  // own is what the maker does to a reservation.
  const own = (method, body, done) => ({
    method, body, done,
    begin() {
      const act = now();
      const { leaseId, who } = act.button.closest("[data-row]").dataset;
      Object.assign(act, { id: leaseId, url: `/v1/leases/${encodeURIComponent(leaseId)}` });
      $("[data-whose]", act.dialog).textContent = who;
      allow($("[data-confirm]", act.dialog).dataset.verb);
    },
    head: () => ({ "Lease-Token": kept().get(now().id) ?? "" }),
    refused(status, problem) {
      if (status !== 404 && status !== 410) return false;
      keep((tokens) => tokens.delete(now().id)); // it has ended
      now().stale = true;
      allow(null);
      complain(problem);
      return true;
    },
    then: () => method === "DELETE" && keep((tokens) => tokens.delete(now().id)),
  });

  document.addEventListener("htmx:after:swap", paint);
  document.addEventListener("submit", ({ target }) => target.getAttribute("action") === "/logout" && localStorage.removeItem(place));
  paint();

  return {
    reserve,
    extend: own("PATCH", (form) => ({ for: form.for.value.trim() }), () => "The reservation has its new end."),
    release: own("DELETE", () => null, () => "The reservation is released."),
  };
};
