// The dialog of an owner's page that asks all of its leases to release their locks. It asks the leases that it has shown, each at
// its own lock, and no other: they are noted when it opens. Those that end meanwhile are left out; those that come are not asked.
"use strict";
globalThis.ownActs = ({ $, $$, counted, show, allow, call, now }) => {
  const rows = () => [...$$("#owned [data-revoke]")].map(({ dataset }) => ({ who: dataset.who, lease: `…${dataset.leaseId.slice(-8)}`, id: dataset.leaseId, url: dataset.revoke }));

  function look(before = "") {
    const act = now();
    const here = rows();
    const left = act.pins.filter((one) => here.some((other) => other.id === one.id));
    const gone = act.pins.length - left.length;
    let sum = left.length > 0 ? `Will ask ${counted(left.length, "lease")}.` : "";
    if (gone > 0) sum += ` ${counted(gone, "lease")} of this list ${gone === 1 ? "has" : "have"} ended since.`;
    const more = here.filter((one) => !act.pins.some((other) => other.id === one.id)).length;
    if (more > 0) sum += ` ${counted(more, "lease")} came since, and ${more === 1 ? "is" : "are"} not asked.`;
    show((before + sum).trim() || "Nothing to do.", left);
    allow(left.length > 0 ? `Ask ${counted(left.length, "lease")}` : null);
    return left;
  }

  const askAll = {
    begin() {
      now().pins = rows();
      look();
    },
    look: () => look(),
    // One request for each lock: it has the leases that were shown.
    body(form) {
      const requests = new Map();
      for (const one of look()) {
        if (!requests.has(one.url)) requests.set(one.url, { reason: form.reason.value, lease_ids: [] });
        requests.get(one.url).lease_ids.push(one.id);
      }
      return [...requests];
    },
    // send goes on where a lease has ended meanwhile, and stops at any other failure.
    async send(_, requests) {
      const act = now();
      const sum = { asked: 0, changed: 0, unreached: [] };
      for (const [url, body] of requests) {
        act.changed = false;
        const answer = await call(url, body);
        if (now() !== act) return null;
        if (answer) {
          sum.asked += answer.asked.length;
          sum.unreached.push(...(answer.unreached ?? []));
        } else if (act.changed) {
          sum.changed += body.lease_ids.length;
        } else {
          if (sum.asked > 0) look(`${counted(sum.asked, "lease")} asked. `);
          return null;
        }
      }
      return sum;
    },
    refused(status, problem, { code }) {
      now().changed = code === "holder_changed" || code === "nothing_to_ask";
      return now().changed;
    },
    done: (sum) => `Asked ${counted(sum.asked, "lease")} to release.` + (sum.changed > 0 ? ` ${counted(sum.changed, "lease")} held the lock no longer, and nothing was asked there.` : ""),
  };
  return { "ask-all": askAll };
};
