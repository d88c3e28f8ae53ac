// The dialogs of webhooks: create, edit, test, replay, enable, disable, rotate, delete. actions.js opens them, sends the request and shows
// the result.
"use strict";
globalThis.ownActs = ({ $, $$, counted, say, allow, call, complainAt, enable, reveal, sentence, now }) => {
  const acts = {
    "hook-create": {
      begin() {
        $("details", now().dialog).open = false;
        reveal(null);
      },
      body(form) {
        const headers = headersIn(form);
        if (!headers) return undefined;
        return { ...hookIn(form), ...(Object.keys(headers).length > 0 && { headers }) };
      },
      done: () => "Webhook created.",
      secret: (answer) => answer.secret,
    },
    "hook-edit": {
      method: "PATCH",
      head: () => ({ "If-Match": now().etag }),
      begin: () => acts["hook-edit"].load(),
      // What is edited is what the gateway has now, and is saved only if it still has that.
      async load() {
        const asked = now();
        const form = $("form", asked.dialog);
        form.reset();
        asked.before = null;
        again("");
        enable(false);
        allow(null);
        const answer = await call(asked.url, null, "GET");
        if (now() !== asked || !answer) return;
        for (const name of ["locks", "ns", "owner", "reason", "acquire_reason", "description", "ca"]) form[name].value = answer[name] ?? "";
        form.format.value = answer.format === "standard" ? "" : (answer.format ?? "");
        form.url.placeholder = answer.url; // its path is secret: empty keeps it
        for (const box of $$("[name=events]", form)) box.checked = answer.events.includes(box.value);
        const offered = [...$$("[name=events]", form)].map((box) => box.value);
        form.later = answer.events.filter((type) => !offered.includes(type)); // types of a later release stay
        $("[data-names]", form).replaceChildren(...answer.headers.map(keptHeader));
        $("[data-kept]", form).hidden = answer.headers.length === 0;
        $("details", form).open = answer.headers.length > 0 || Boolean(answer.ca);
        asked.before = hookIn(form);
        enable(true);
        form.url.focus({ preventScroll: true });
      },
      typed() {
        const { before, dialog } = now();
        const form = $("form", dialog);
        const differs = before && !now().stale && (form.headers.value.trim() || $("[name=drop]:checked", form) || Object.keys(changes(before, hookIn(form))).length > 0);
        allow(differs ? "Save" : null);
      },
      body(form) {
        const headers = headersIn(form);
        if (!headers) return undefined;
        const given = Object.keys(headers).map((name) => name.toLowerCase());
        for (const { value } of $$("[name=drop]:checked", form)) if (!given.includes(value.toLowerCase())) headers[value] = null;
        return { ...changes(now().before, hookIn(form)), ...(Object.keys(headers).length > 0 && { headers }) };
      },
      refused(status, problem) {
        if (status === 412) again("This webhook was changed since it was loaded here, so nothing was saved. Reload it: your changes here are lost.");
        else if (!now().before) again(problem);
        else return false;
        return true;
      },
      done: () => "Webhook saved.",
    },
    "hook-test": {
      begin: () => allow("Send"),
      body: () => null,
      done: (answer) => (answer.result === "delivered" ? `The receiver accepted the test: ${answer.status}.` : `The test failed. ${sentence(answer.error)}`),
      failed: (answer) => answer.result !== "delivered",
    },
    "hook-replay": {
      begin() {
        const { message, dead } = now().button.dataset;
        say("[data-sum]", message ? "One message is sent again." : `${counted(Number(dead), "message")} ${dead === "1" ? "is" : "are"} sent again.`);
        now().message = message;
        allow("Replay");
      },
      body: () => (now().message ? { message_id: now().message } : {}),
      done: (answer) => `${counted(answer.replayed, "message")} ${answer.replayed === 1 ? "is" : "are"} sent again.`,
    },
    "hook-enable": { method: "PATCH", begin: () => allow("Enable"), body: () => ({ enabled: true }), done: () => "The webhook is enabled." },
    "hook-disable": { method: "PATCH", begin: () => allow("Disable"), body: () => ({ enabled: false }), done: () => "The webhook is disabled." },
    "hook-rotate": {
      begin: () => reveal(null),
      body: (form) => ({ overlap: form.overlap.value.trim() }),
      done: () => "There is a new secret.",
      secret: (answer) => answer.secret,
    },
    "hook-delete": { method: "DELETE", begin: () => allow("Delete"), body: () => null, done: () => "The webhook was deleted.", then: () => location.assign("/webhooks") },
  };

  const hookIn = (form) => ({
    url: form.url.value.trim(), locks: form.locks.value.trim(), ns: form.ns.value.trim(), owner: form.owner.value.trim(), reason: form.reason.value.trim(),
    acquire_reason: form.acquire_reason.value.trim(),
    format: form.format.value, description: form.description.value, ca: form.ca.value.trim(),
    events: [...(form.later ?? []), ...[...$$("[name=events]:checked", form)].map((box) => box.value)],
  });

  const changes = (before, after) => Object.fromEntries(Object.entries(after).filter(([name, value]) => String(value) !== String(before[name])));

  // headersIn reads lines of "name: value". When there is something else it says so, and gives nothing.
  function headersIn(form) {
    const headers = new Map();
    for (const [at, line] of form.headers.value.split("\n").entries()) {
      if (!line.trim()) continue;
      const [, name, value] = /^\s*([^:\s]+)\s*:(.*)$/.exec(line) ?? [];
      let wrong = "";
      if (!name) wrong = `Line ${at + 1} is not a name, a colon and a value.`;
      else if ([...headers.keys()].some((other) => other.toLowerCase() === name.toLowerCase())) wrong = `${name} is there twice.`;
      if (wrong) {
        complainAt("headers", wrong);
        return null;
      }
      headers.set(name, value.trim());
    }
    return Object.fromEntries(headers);
  }

  // keptHeader is an extra header: its value is secret, so it can only be removed or replaced.
  function keptHeader(name) {
    const row = document.createElement("div");
    const code = document.createElement("code");
    code.textContent = name;
    const label = document.createElement("label");
    const box = document.createElement("input");
    Object.assign(box, { type: "checkbox", name: "drop", value: name });
    box.setAttribute("aria-label", `Remove ${name}`);
    label.append(box, "Remove");
    row.append(code, label);
    return row;
  }

  // again says why what is in the form is of no use, and offers to load it; "" takes that back.
  function again(why) {
    const offer = $("[data-again]", now().dialog);
    now().stale = why !== "";
    offer.hidden = !now().stale;
    $("[data-why]", offer).textContent = why;
    if (!now().stale) return;
    $("[data-load]", offer).focus();
    offer.scrollIntoView({ block: "nearest" });
  }

  return acts;
};
