// The colours, on every page: those chosen with the button in the header, or the
// system's. They apply before the first paint: a dark page must not flash white.
"use strict";
(() => {
  const root = document.documentElement;
  const names = { auto: "Auto", light: "Light", dark: "Dark" };
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // No storage in this browser: the system's colours.
  }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  function show() {
    const button = document.getElementById("theme");
    const name = names[root.dataset.theme ?? "auto"];
    button.querySelector(".tool-text").textContent = name;
    button.setAttribute("aria-label", `Colours: ${name}`);
  }

  function next() {
    const all = Object.keys(names);
    const name = all[(all.indexOf(root.dataset.theme ?? "auto") + 1) % all.length];
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
    try {
      localStorage.setItem("theme", name);
    } catch {
      // Not remembered, then.
    }
    show();
  }

  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("click", (event) => {
    if (event.target.closest("#theme")) next();
  });
})();
