// The search: Ctrl-K, Cmd-K or the button in the header opens a dialog. The gateway renders the results for what is typed; the arrow
// keys choose one of them, Enter opens it. It is the combobox of the ARIA practices, with a list box in groups.
"use strict";
(() => {
  const dialog = document.getElementById("search");
  if (!dialog) return;
  const [form, text, results, says] = [dialog.querySelector("form"), ...["search-text", "search-results", "search-says"].map((id) => document.getElementById(id))];
  const pause = 120; // after the last key
  const answerWithin = 10_000;
  let chosen = -1;
  let asked = null; // the request that is under way
  let timer = 0;
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
  async function enter() {
    clearTimeout(timer);
    if (shown !== text.value.trim()) await ask();
    options()[chosen]?.click();
  }

  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    if (dialog.open) dialog.close();
    else open();
  });
  document.getElementById("search-open").addEventListener("click", open);
  text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, pause);
  });
  text.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) choose(chosen + step);
    else if (event.key === "Enter" && !event.isComposing) enter();
    else return;
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
    asked?.abort();
    asked = null;
  });
})();
