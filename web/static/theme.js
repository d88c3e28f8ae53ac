// What each viewer chooses with buttons in the header, on every page: the colours (or the system's), and whether times of day are
// UTC. The colours apply before the first paint: a dark page must not flash white.
"use strict";
(() => {
  const root = document.documentElement;
  const names = { auto: "Auto", light: "Light", dark: "Dark" };
  let chosen = null;
  let zone = null;
  try {
    chosen = localStorage.getItem("theme");
    zone = localStorage.getItem("zone");
  } catch {
    // No storage in this browser: the system's colours, and its clock.
  }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  if (zone === "utc") root.dataset.zone = zone;

  function show() {
    const button = document.getElementById("theme");
    const name = names[root.dataset.theme ?? "auto"];
    button.querySelector(".tool-text").textContent = name;
    button.setAttribute("aria-label", `Colours: ${name}`);
    const times = document.getElementById("zone");
    if (!times) return; // a page without times
    const which = root.dataset.zone ? "UTC" : "Local";
    times.querySelector(".tool-text").textContent = which;
    times.setAttribute("aria-label", `Times: ${which}`);
  }

  function keep(key, value) {
    try {
      localStorage.setItem(key, value);
    } catch {
      // Not remembered, then.
    }
    show();
  }

  function next() {
    const all = Object.keys(names);
    const name = all[(all.indexOf(root.dataset.theme ?? "auto") + 1) % all.length];
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
    keep("theme", name);
  }

  function nextZone() {
    if (root.dataset.zone) delete root.dataset.zone;
    else root.dataset.zone = "utc";
    keep("zone", root.dataset.zone ?? "local");
    document.dispatchEvent(new Event("zone")); // app.js writes the times again
  }

  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("click", (event) => {
    if (event.target.closest("#theme")) next();
    if (event.target.closest("#zone")) nextZone();
  });
})();
