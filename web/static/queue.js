// The dialogs of a lock's queue: ask, break, reap, destroy. actions.js loads this when it is first needed, opens them, sends the request and
// shows the result. The dialogs act on the leases and znodes that they have shown, and on nothing else: they are noted when a dialog opens
// (pins) and sent along, and the gateway refuses when one of them is not any more as it was, or, to destroy, when another has come.
"use strict";
globalThis.ownActs = ({ $, $$, counted, say, show, allow, call, complain, now }) => {
  const everyAge = "0s"; // of a reap: the API takes none for granted

  // One is {who, lease, foreign, over, place, id, znode, ask}: read from a row, or from the API's answer.
  const ofRow = ({ dataset }) => ({
    who: dataset.who, lease: dataset.leaseId && `…${dataset.leaseId.slice(-8)}`, foreign: dataset.foreign, over: "over" in dataset,
    id: dataset.leaseId, znode: dataset.znode, ask: "ask" in dataset,
  });

  const ofAnswer = (c) => ({
    who: c.owner || c.foreign?.program || (c.foreign ? "another program" : c.lease_id ? `lease …${c.lease_id.slice(-8)}` : "unnamed"),
    lease: c.owner && c.lease_id ? `…${c.lease_id.slice(-8)}` : "",
    foreign: c.foreign ? (c.owner && c.foreign.program ? `foreign · ${c.foreign.program}` : "foreign") : undefined,
    place: c.delayed ? "lock delay" : c.position ? `waiting at ${c.position}` : "holds",
    id: c.lease_id, znode: c.znode, waits: Boolean(c.position), over: Boolean(c.delayed), ask: !c.foreign && !c.delayed,
  });

  const key = (one) => one.id ?? one.znode;
  const has = (list, one) => list.some((other) => key(other) === key(one));
  const foreigners = (list) => list.filter((one) => one.foreign).length;
  const short = (who) => (who.length > 24 ? "it" : who);
  const named = (list, noun) => (list.length === 1 ? short(list[0].who) : counted(list.length, noun));
  const holdsNot = (list) => (list.length === 1 ? `${list[0].who} no longer holds` : `${counted(list.length, "holder")} no longer hold`) + " the lock.";

  // urlOf is what breaks the contender of a row.
  const urlOf = ({ dataset }) => dataset.break ?? `/v1/leases/${encodeURIComponent(dataset.leaseId)}/break`;

  // only names the pins in a request.
  function only(list) {
    const leases = list.filter((one) => one.id).map((one) => one.id);
    const znodes = list.filter((one) => !one.id).map((one) => one.znode);
    return { ...(leases.length > 0 && { lease_ids: leases }), ...(znodes.length > 0 && { znodes }) };
  }

  // showPreview shows the answer of a dry run of a reap, and notes it.
  function showPreview(answer, before = "") {
    const act = now();
    const hit = answer.reaped ?? [];
    hit.sort((a, b) => (a.position ?? 0) - (b.position ?? 0)); // holders first: they come from the tail
    act.pins = hit.map(ofAnswer);
    act.more = answer.more;
    const unreached = answer.unreached?.length ?? 0;
    const foreign = foreigners(act.pins);
    const n = counted(act.pins.length, "contender");
    let sum = act.pins.length === 0 ? "No entry matches." : `${act.name === "reap" ? "Will remove" : "Ends"} ${n}`;
    if (act.pins.length > 0) sum += foreign > 0 ? `, ${foreign} of other programs.` : ".";
    if (answer.more) sum += " There are more.";
    if (unreached > 0) sum += ` ${unreached} cannot be reached.`;
    act.sum = before + sum;
    show(act.sum, act.pins);
    if (act.name === "reap") allow(act.pins.length === 0 ? null : `Remove ${n}`);
  }

  // ---- Ask -------------------------------------------------------------------

  const holderRows = () => [...$$("#queue .holder")].map(ofRow).filter((one) => !one.over);

  // ask shows who of the pins holds still, of those who hold now.
  function ask(holders, before = "") {
    const act = now();
    act.rows = holderRows().map(key).join(" ");
    for (const one of act.pins) one.seen ||= has(holders, one);
    act.gone.push(...act.pins.filter((one) => one.seen && !has(holders, one)));
    act.pins = act.pins.filter((one) => !has(act.gone, one));
    act.newcomers = holders.filter((one) => one.ask && !has(act.pins, one) && !has(act.gone, one));
    const { pins, gone, newcomers } = act;
    const foreign = foreigners(holders.filter((one) => !one.ask));
    const hidden = Math.max(Number($(".actions")?.dataset.holders ?? 0) - $$("#queue .holder").length, 0);
    let sum = before + (pins.length === 0 && gone.length === 0 ? "No holder can be asked." : "");
    if (gone.length > 0) sum += ` ${holdsNot(gone)}`;
    if (pins.length === 0 && gone.length > 0) sum += newcomers.length > 0 ? ` ${named(newcomers, "other")} ${newcomers.length === 1 ? "holds" : "hold"} it now.` : " Nothing to do.";
    else if (newcomers.length > 0) sum += ` ${named(newcomers, "other")} came since, and ${newcomers.length === 1 ? "is" : "are"} not asked.`;
    if (foreign > 0) sum += ` ${foreign === 1 ? "Another program holds it, too, and cannot be asked" : `${foreign} other programs hold it, too, and cannot be asked`}: break ${foreign === 1 ? "it" : "them"}.`;
    if (pins.length > 0 && hidden > 0) sum += ` ${hidden.toLocaleString("en")} more, not on this page, ${hidden === 1 ? "is" : "are"} not asked.`;
    if (pins.length > 0) sum += ` Will ask${pins.length === 1 ? "" : ` ${counted(pins.length, "holder")}`}:`;
    show(sum.trim(), pins);
    act.stale = pins.length === 0;
    allow(pins.length === 0 ? null : `Ask ${named(pins, "holder")}`);
    const offer = $("[data-instead]", act.dialog);
    offer.hidden = newcomers.length === 0;
    $("button", offer).textContent = pins.length === 0 ? `Ask ${named(newcomers, "holder")} instead…` : `Ask all ${pins.length + newcomers.length}…`;
  }

  const revoke = {
    begin() {
      const holders = holderRows();
      Object.assign(now(), { pins: holders.filter((one) => one.ask), gone: [] });
      revoke.typed();
      ask(holders);
    },
    // What ends by force in time needs a reason, like a break.
    typed() {
      const form = $("form", now().dialog);
      form.reason.required = Boolean(form.force_after?.value.trim());
    },
    // A push that says nothing about the holders changes nothing: what the gateway has answered may be newer.
    look() {
      const holders = holderRows();
      if (holders.map(key).join(" ") !== now().rows) ask(holders);
    },
    instead() {
      const act = now();
      const form = $("form", act.dialog);
      act.pins = [...act.pins, ...act.newcomers];
      act.gone = [];
      if (form.force_after) form.force_after.value = ""; // it was meant for another
      revoke.typed();
      complain("");
      ask(act.pins);
      form.reason.focus({ preventScroll: true });
    },
    body: (form) => ({ reason: form.reason.value, force_after: form.force_after?.value.trim() ?? "", ...only(now().pins) }),
    refused(status, problem, { code, holders }) {
      if (code === "holder_changed") ask((holders ?? []).map(ofAnswer), "No holder was asked. ");
      else if (code === "nothing_to_ask") {
        now().stale = true;
        allow(null);
        complain(problem);
      } else return false;
      return true;
    },
    done: (answer) => `Asked ${answer.asked.length === 1 ? ofAnswer(answer.asked[0]).who : counted(answer.asked.length, "holder")} to release.`,
  };

  // ---- Break -----------------------------------------------------------------

  const breaks = {
    begin() {
      const act = now();
      act.url = urlOf(document.getElementById(act.row));
      breaks.look();
    },
    // A waiter may hold by now: another row, with the same address.
    look() {
      const act = now();
      const row = [...$$("[data-znode]")].find((r) => urlOf(r) === act.url);
      const gone = !row;
      act.row = row?.id;
      const one = gone ? act.one : ofRow(row);
      act.one = one;
      const holds = row?.classList.contains("holder");
      const says = { holder: holds && !one.over && !one.foreign, waiter: !gone && !holds, over: one.over, foreign: Boolean(one.foreign), group: Boolean(row?.dataset.group) };
      for (const hint of $$("[data-says]", act.dialog)) hint.hidden = gone || !says[hint.dataset.says];
      if (says.group) say("[data-group]", row.dataset.group);
      show(gone ? "It is not on this page any more: it has ended, or moved." : holds ? (one.over ? "Ends the lock delay of:" : "Ends the lease of a holder:") : "Remove from the queue:", [one]);
      allow(gone ? null : `Break ${short(one.who)}`);
    },
    body: (form) => ({ reason: form.reason.value }),
    done: () => `${now().one.who} was removed.`,
  };

  // ---- Reap ------------------------------------------------------------------

  const reap = {
    // The contenders of another filter were not shown yet: each change begins again.
    begin() {
      Object.assign(now(), { filter: {}, pins: [], stale: false });
      show("", []);
      allow(null);
    },
    typed: (field) => field.name !== "reason" && reap.begin(),
    filters(form) {
      const body = { older_than: form.older_than.value.trim() || everyAge, state: form.state.value, mode: form.mode.value, owner: form.owner.value };
      if (form.foreign.value) body.foreign = form.foreign.value === "true";
      return body;
    },
    async preview(before) {
      const act = now();
      const { filter } = act;
      const answer = await call(act.url, { ...reap.filters($("form", act.dialog)), dry_run: true });
      if (!answer || now()?.filter !== filter) return;
      act.stale = false;
      showPreview(answer, before);
    },
    // A contender shown as a waiter must not be ended as a holder: waiters are a request of their own. It goes first, because
    // a waiter may hold once a holder has ended.
    body(form) {
      const { pins } = now();
      const body = { ...reap.filters(form), reason: form.reason.value };
      if (body.state) return [{ ...body, ...only(pins) }];
      const waiting = pins.filter((one) => one.waits);
      const rest = pins.filter((one) => !one.waits);
      return [
        ...(waiting.length > 0 ? [{ ...body, state: "waiting", ...only(waiting) }] : []),
        ...(rest.length > 0 ? [{ ...body, ...only(rest) }] : []),
      ];
    },
    // send adds up the answers. When a later request fails, the dialog says what the earlier one has ended.
    async send(url, bodies) {
      const act = now();
      const sum = { reaped: [], unreached: [] };
      act.ended = "";
      for (const body of bodies) {
        const answer = await call(url, body);
        if (!answer || now() !== act) return null;
        sum.reaped.push(...(answer.reaped ?? []));
        sum.unreached.push(...(answer.unreached ?? []));
        if (body === bodies.at(-1)) break;
        const ended = sum.reaped.map(ofAnswer);
        act.pins = act.pins.filter((one) => !has(ended, one));
        act.ended = `${counted(ended.length, "contender")} removed. `;
        show(`${act.ended}Will remove ${act.pins.length.toLocaleString("en")} more.`, act.pins);
      }
      return sum;
    },
    refused(status, problem, { code }) {
      if (code !== "holder_changed") return false;
      now().stale = true;
      allow(null);
      const { ended } = now();
      reap.preview(ended ? `${ended}Then the queue changed, and nothing more was removed. ` : "The queue has changed since, and nothing was removed. ");
      return true;
    },
    done: (answer) => `Removed ${counted(answer.reaped?.length ?? 0, "contender")}.${now().more ? " There are more: repeat it." : ""}`,
    missed: (n) => `Skipped ${n.toLocaleString("en")}`,
  };

  // ---- Destroy ---------------------------------------------------------------

  const inQueue = () => `${$(".actions")?.dataset.holders} ${$(".actions")?.dataset.waiting}`;

  const destroy = {
    async begin() {
      const asked = now();
      Object.assign(asked, { pins: [], counts: inQueue() });
      show("Reading the queue…", []);
      destroy.typed();
      await destroy.read(asked);
    },
    async read(asked, before) {
      asked.counts = inQueue();
      const answer = await call(asked.button.dataset.look, { older_than: everyAge, dry_run: true });
      if (now() !== asked) return;
      const { holders, waiting } = $(".actions")?.dataset ?? {};
      if (answer) showPreview(answer, before);
      else show((asked.sum = `Ends ${counted(Number(holders ?? 0), "holder")} and ${Number(waiting ?? 0).toLocaleString("en")} waiting.`), []);
      destroy.typed();
    },
    look() {
      const act = now();
      if (act.sum && inQueue() !== act.counts) say("[data-sum]", `${act.sum} The queue has changed since this list was read.`);
    },
    // Without a list that was read, only all contenders can be meant.
    typed() {
      const { dialog, pins } = now();
      const { typed, newcomers } = $("form", dialog);
      allow(typed.value === $("code", typed.labels[0]).textContent && (pins.length > 0 || newcomers.checked) ? "Destroy" : null);
    },
    body: (form) => ({ reason: form.reason.value, ...(!form.newcomers.checked && only(now().pins)) }),
    refused(status, problem, { code }) {
      if (code !== "holder_changed") return false;
      destroy.read(now(), "New contenders came since, so the lock was not destroyed. ");
      return true;
    },
    done: (answer) => `The lock was destroyed: ${counted(answer.ended ?? 0, "contender")} ended${answer.foreign ? `, ${answer.foreign} of other programs` : ""}.`,
  };

  return { revoke, break: breaks, reap, destroy };
};
