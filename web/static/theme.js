// Applies the colours that were chosen with the button in the header, before the
// first paint: a dark page must not flash white. Nothing chosen: the system's.
"use strict";
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // No storage in this browser: the system's colours.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
