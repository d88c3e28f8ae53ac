// The dialogs in which a viewer acts: opening them, the request to the JSON API, and its result. Each asks first, and lists what it ends; the
// page shows the result live. What each of them does is in queue.js, reservation.js, owner.js and hooks.js.
// The dialogs are no fragments, so no push changes them. Their rows are, so a dialog reads them again after each push.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => root.querySelectorAll(selector);
  const listed = 8; // names in a dialog; more are counted
  const answerWithin = 30_000;
  const done = 30_000; // for so long the page says what was done

  let act = null; // the dialog that is open: {name, dialog, button, url, row}

  const counted = (n, noun) => (n === 1 ? `1 ${noun}` : `${n.toLocaleString("en")} ${noun}s`);

  // ---- What it ends: one is {who, lease, foreign, place} ------------------------

  function item(one) {
    const li = document.createElement("li");
    const part = (text, name) => {
      if (!text) return;
      const span = document.createElement("span");
      span.className = name;
      span.textContent = text;
      li.append(span, " ");
    };
    part(one.who, "owner");
    if (one.lease && !one.who.endsWith(one.lease)) part(one.lease, "id");
    part(one.foreign, "chip chip-foreign");
    part(one.place, "tag");
    return li;
  }

  // say writes only what differs: role=status is read out whenever it is written.
  function say(selector, text) {
    const element = $(selector, act.dialog);
    if (element && element.textContent !== text) element.textContent = text;
  }

  function show(sum, list, more = 0) {
    say("[data-sum]", sum);
    const names = list.slice(0, listed).map(item);
    const rest = list.length - names.length + more;
    if (rest > 0) names.push(item({ who: "", place: `and ${rest.toLocaleString("en")} more` }));
    const ul = $("[data-hits]", act.dialog);
    if (names.map((n) => n.textContent).join("\n") !== [...ul.children].map((n) => n.textContent).join("\n")) ul.replaceChildren(...names);
    ul.hidden = names.length === 0;
  }

  // verb is what the last button says; without one there is nothing to do.
  function allow(words) {
    const button = $("[data-confirm]", act.dialog);
    button.disabled = words === null;
    button.textContent = words ?? button.dataset.verb;
    showRequest();
  }

  // showRequest shows the requests that the last button would send, in a dialog that has a place for them.
  function showRequest() {
    const { dialog, name } = act;
    if (!$("[data-curl]", dialog)) return;
    const { method = "POST", head, body } = acts[name];
    const armed = !$("[data-confirm]", dialog).disabled && !act.shown && $("form", dialog).checkValidity();
    const bodies = armed ? [body($("form", dialog))].flat() : [];
    showCurl(dialog, armed ? bodies.map((sent) => ({ method, url: act.url, head: head?.(), body: sent })) : null);
  }

  // ---- The dialogs -----------------------------------------------------------

  // What can be done to reservations is in reservation.js. The rest is a script of its page: owner.js and hooks.js come with theirs, after
  // this; queue.js comes when it is first needed, because most viewers of a lock only look.
  const tools = { $, $$, counted, say, show, allow, call, complain, complainAt, enable, reveal, sentence: (text) => sentence(text), now: () => act };
  const acts = reservationActs(tools);
  const known = (name) => acts[name] ?? Object.assign(acts, globalThis.ownActs?.(tools))[name];

  let coming = null; // the script that a page names, once it is asked for

  function load() {
    const src = $("[data-acts]")?.dataset.acts;
    if (!src) return null;
    coming ??= new Promise((done) => {
      const script = Object.assign(document.createElement("script"), { src, onload: done, onerror: done });
      document.head.append(script);
    });
    return coming;
  }

  for (const event of ["pointerover", "focusin"]) document.addEventListener(event, ({ target }) => target.closest?.("[data-act]") && load());

  // enable lets the fields be written into, or not.
  function enable(on) {
    for (const field of $$("[data-form] :is(input, select, textarea)", act.dialog)) field.disabled = !on;
  }

  // reveal shows a secret in place of the form; without one the form.
  function reveal(secret) {
    const { dialog } = act;
    $("[data-form]", dialog).hidden = secret !== null;
    $("[data-secret]", dialog).hidden = secret === null;
    $("[data-value]", dialog).textContent = secret ?? "";
    say("[data-copied]", "");
    $("button[data-close]", dialog).hidden = secret !== null;
    act.shown = secret !== null;
    enable(secret === null);
    allow(secret === null ? $("[data-confirm]", dialog).dataset.verb : "I have saved it");
    if (secret !== null) $("[data-value]", dialog).focus();
  }

  async function open(button) {
    const name = button.dataset.act;
    const dialog = $(`#ask-${name}`);
    if (!dialog) return;
    if (!known(name)) await load();
    if (act?.dialog.open || !button.isConnected) return;
    if (!known(name)) {
      coming = null; // the next click tries again
      tellDone("The gateway did not answer.", true);
      return;
    }
    const row = button.closest("[data-row]");
    act = { name, dialog, button, url: button.dataset.url, row: row?.id };
    $("form", dialog).reset();
    complain("");
    $("#done").textContent = "";
    dialog.removeAttribute("aria-busy");
    dialog.showModal();
    acts[name].begin();
    showRequest();
  }

  // The focus goes back to where it was, or, if that is gone, to the content. A
  // dialog's close event comes a little later: another may be open by then.
  function closed({ target }) {
    if (act?.dialog !== target || target.open) return;
    const { row, button } = act;
    if (act.shown) $("[data-value]", target).textContent = ""; // it was shown once
    $("form", target).reset(); // what headers say is a secret, too
    act = null;
    const back = document.getElementById(row) ?? (button.isConnected ? button : $("#main"));
    back.focus({ preventScroll: true });
  }

  for (const dialog of $$("dialog.ask")) dialog.addEventListener("close", closed);

  // ---- Doing it ----------------------------------------------------------------

  function complain(text) {
    say("[data-problem]", text);
    if (text === "") for (const place of $$("[data-error]", act.dialog)) absolve(place);
  }

  const fieldsOf = (place) => $$(`[name="${place.dataset.error}"]`, act.dialog);

  // complainAt says what is wrong with a field below it; false when the dialog has no place for that.
  function complainAt(name, text) {
    const place = [...$$("[data-error]", act.dialog)].find((p) => p.dataset.error === name);
    if (!place) return false;
    for (let up = place.closest("details"); up; up = null) up.open = true;
    place.textContent = text;
    for (const field of fieldsOf(place)) field.setAttribute("aria-invalid", "true");
    fieldsOf(place)[0].focus();
    place.scrollIntoView({ block: "nearest" });
    return true;
  }

  function absolve(place) {
    if (place.textContent === "") return;
    place.textContent = "";
    for (const field of fieldsOf(place)) field.removeAttribute("aria-invalid");
  }

  const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1).replace(/\.?$/, ".") : "");

  // call asks the API. What goes wrong is said in the dialog, at the field if it is one's; then it gives nothing.
  async function call(url, body, method = "POST", head = {}) {
    const asked = act;
    if (method === "POST") for (const [key, value] of Object.entries(body ?? {})) if (value === "") delete body[key];
    const type = body ? { "Content-Type": "application/json" } : {};
    asked.dialog.setAttribute("aria-busy", "true");
    complain("");
    let problem = "";
    let status = 0;
    let wrong = {};
    try {
      const answer = await fetch(url, {
        method, cache: "no-store", headers: { ...type, ...head, Accept: "application/json" },
        body: body ? JSON.stringify(body) : undefined, signal: AbortSignal.timeout(answerWithin),
      });
      const text = await answer.text();
      const json = text && /json/.test(answer.headers.get("Content-Type")) ? JSON.parse(text) : {};
      if (answer.ok) {
        asked.etag = answer.headers.get("ETag")?.replace(/^W\//, ""); // a proxy that compresses makes it weak
        return json;
      }
      status = answer.status;
      if (status === 401) document.dispatchEvent(new Event("session:ended"));
      wrong = json;
      problem = (json.detail ? sentence(json.detail) : sentence(json.title)) || `The gateway answered with status ${answer.status}.`;
    } catch {
      problem = "The gateway did not answer.";
      if (method !== "GET") problem += ` It may have been done all the same: check the ${asked.name.startsWith("hook-") ? "webhook" : "queue"} before you repeat it.`;
    } finally {
      asked.dialog.removeAttribute("aria-busy");
    }
    if (act !== asked || acts[asked.name].refused?.(status, problem, wrong) || complainAt(wrong.field, problem)) return null;
    complain(asked.name.startsWith("hook-") && wrong.field ? sentence(`${wrong.field}: ${problem}`) : problem);
    return null;
  }

  async function confirm(form) {
    const asked = act;
    const what = acts[asked.name];
    const button = $("[data-confirm]", asked.dialog);
    if (button.disabled || asked.dialog.hasAttribute("aria-busy")) return;
    if (asked.shown) {
      asked.dialog.close();
      return;
    }
    const body = what.body(form);
    if (body === undefined) return; // what is wrong with the form is said already
    button.disabled = true;
    const answer = await (what.send ? what.send(asked.url, body) : call(asked.url, body, what.method, what.head?.()));
    if (act !== asked) return;
    button.disabled = Boolean(asked.stale);
    if (!answer) return;
    tellDone(what.done(answer) + missed(answer, what.missed), what.failed?.(answer));
    what.then?.();
    if (what.secret) reveal(what.secret(answer));
    else asked.dialog.close();
  }

  // missed says for which contenders it could not be done.
  function missed(answer, words = (n) => `${n} could not be`) {
    const unreached = answer.unreached ?? [];
    const why = [...new Set(unreached.map((n) => n.detail))].map(sentence).join(" ");
    return unreached.length > 0 ? ` ${words(unreached.length)}: ${why}` : "";
  }

  // tellDone says on the page, for a while, what was done.
  function tellDone(text, failed = false) {
    const place = $("#done");
    place.textContent = text;
    place.classList.toggle("good", !failed);
    place.classList.toggle("bad", Boolean(failed));
    setTimeout(() => place.textContent === text && (place.textContent = ""), done);
  }

  // straight asks for what ends no lease, so no dialog comes before. told says of an answer what was done, and whether that is too little.
  async function straight(button, url, request, where, told) {
    button.disabled = true;
    let text = `The gateway did not answer. Check the ${where} before you repeat it.`;
    let failed = true;
    try {
      const answer = await fetch(url, { ...request, cache: "no-store", headers: { "Content-Type": "application/json", Accept: "application/json" }, signal: AbortSignal.timeout(answerWithin) });
      const json = await answer.json();
      if (answer.ok) [text, failed] = told(json);
      else text = sentence(json.detail || json.title);
    } catch {
      // Said above.
    }
    button.disabled = false;
    tellDone(text, failed);
  }

  function withdraw(button) {
    const { who } = button.closest("[data-row]").dataset;
    straight(button, button.dataset.withdraw, { method: "DELETE" }, "queue", (answer) =>
      answer.withdrawn.length > 0
        ? [`Withdrawn: ${who} is not asked to release any more.`, false]
        : [`Nothing was withdrawn: ${who} is not asked any more.${missed(answer)}`, true],
    );
  }

  function deliver(button) {
    straight(button, button.dataset.deliver, { method: "POST", body: '{"waiting":true}' }, "webhook", (answer) =>
      [`${counted(answer.replayed, "message")} ${answer.replayed === 1 ? "is" : "are"} tried now.${missed(answer, (n) => `${counted(n, "gateway")} could not be asked`)}`, false]);
  }

  async function copySecret() {
    let said = "Copied.";
    try {
      await navigator.clipboard.writeText($("[data-value]", act.dialog).textContent);
    } catch {
      getSelection().selectAllChildren($("[data-value]", act.dialog));
      said = "It is selected: copy it.";
    }
    say("[data-copied]", said);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if ("act" in button.dataset) open(button);
    if ("withdraw" in button.dataset) withdraw(button);
    if ("deliver" in button.dataset) deliver(button);
    if ("begin" in button.dataset) acts[act.name].instead();
    if ("copySecret" in button.dataset) copySecret();
    if ("load" in button.dataset) acts[act.name].load();
    if ("close" in button.dataset) button.closest("dialog").close();
  });
  document.addEventListener("submit", (event) => {
    if (!("ask" in event.target.dataset)) return;
    event.preventDefault();
    if (event.submitter && "preview" in event.submitter.dataset) {
      if (event.target.older_than.reportValidity()) acts.reap.preview(); // a reason comes later
    } else confirm(event.target);
  });
  document.addEventListener("input", (event) => {
    if (!act) return;
    const field = event.target;
    for (const place of $$("[data-error]", act.dialog)) if (place.dataset.error === (field.name === "drop" ? "headers" : field.name)) absolve(place);
    acts[act.name].typed?.(field);
    showRequest();
  });
  document.addEventListener("htmx:after:swap", () => act && acts[act.name].look?.());
})();
