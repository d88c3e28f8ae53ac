// The search: Ctrl-K, Cmd-K or the button in the header opens a dialog. The gateway renders the results for what is typed; the arrow
// keys choose one of them, Enter opens it. It is the combobox of the ARIA practices, with a list box in groups.
"use strict";
(async () => {
  const opener = document.getElementById("search-open");
  try {
    const answer = await fetch(opener.dataset.url, { cache: "no-store", headers: { "HX-Request": "true" } });
    if (answer.status === 401) document.dispatchEvent(new Event("session:ended"));
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    document.body.append(...new DOMParser().parseFromString(await answer.text(), "text/html").body.children);
  } catch {
    opener.dispatchEvent(new Event("search:failed", { bubbles: true }));
    return;
  }
  const dialog = document.getElementById("search");
  const [form, text, results, says] = [dialog.querySelector("form"), ...["search-text", "search-results", "search-says"].map((id) => document.getElementById(id))];
  const pause = 120; // after the last key
  const answerWithin = 10_000;
  let chosen = -1;
  let asked = null; // the request that is under way
  let timer = 0;
  let entered = false; // Enter waits for the results
  let shown = null; // the text whose results are shown

  const options = () => [...results.querySelectorAll("[role=option]")];

  function choose(at) {
    const all = options();
    chosen = all.length === 0 ? -1 : (at + all.length) % all.length;
    for (const [i, option] of all.entries()) option.setAttribute("aria-selected", String(i === chosen));
    if (chosen < 0) text.removeAttribute("aria-activedescendant");
    else {
      text.setAttribute("aria-activedescendant", all[chosen].id);
      all[chosen].scrollIntoView({ block: "nearest" });
    }
  }

  function say(words) {
    if (says.textContent !== words) says.textContent = words; // it is read out whenever it is written
  }

  function show(found) {
    results.replaceChildren(...found);
    text.setAttribute("aria-expanded", String(options().length > 0));
    choose(0);
  }

  async function ask() {
    const q = text.value.trim();
    asked?.abort();
    const request = new AbortController();
    asked = request;
    let problem = "The gateway did not answer.";
    try {
      const answer = await fetch(`${form.dataset.url}?${new URLSearchParams({ q })}`, {
        cache: "no-store", headers: { "HX-Request": "true" }, signal: AbortSignal.any([request.signal, AbortSignal.timeout(answerWithin)]),
      });
      if (answer.status === 401) document.dispatchEvent(new Event("session:ended"));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (asked !== request) return;
      if (answer.ok) {
        shown = q;
        show(page.querySelector("[data-results]").childNodes);
        say(page.querySelector("[data-says]").textContent);
        if (entered) go();
        return;
      }
      problem = page.querySelector(".lead")?.textContent ?? `The gateway answered with status ${answer.status}.`;
    } catch {
      if (asked !== request) return; // another one is under way
    }
    shown = null;
    show([]);
    say(problem);
  }

  const runs = {
    theme: () => document.getElementById("theme").click(),
    keys: () => document.getElementById("help").showModal(),
    copy: () => navigator.clipboard?.writeText(location.href),
  };

  function open() {
    if (document.querySelector("dialog[open]")) return;
    dialog.showModal();
    text.select();
    ask();
  }

  // What is typed last counts: Enter waits for its results.
  function enter() {
    if (shown === text.value.trim()) return go();
    entered = true;
    clearTimeout(timer);
    ask();
  }

  function go() {
    entered = false;
    options()[chosen]?.click();
  }

  // app.js sends it when the keys or the button are pressed. Not "search": Chromium sends that for Enter in a field of this type.
  dialog.addEventListener("search:toggle", () => (dialog.open ? dialog.close() : open()));
  form.addEventListener("submit", (event) => { // by Enter
    event.preventDefault();
    enter();
  });
  form.querySelector("[value=close]").addEventListener("click", () => dialog.close());
  text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, pause);
  });
  text.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    choose(chosen + step);
    event.preventDefault();
  });
  results.addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (!option) return;
    dialog.close(); // a link goes by itself
    runs[option.dataset.run]?.();
  });
  dialog.addEventListener("close", () => {
    clearTimeout(timer);
    entered = false;
    asked?.abort();
    asked = null;
  });
  open();
})();
