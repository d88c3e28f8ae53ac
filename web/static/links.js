// A hundred rows of a queue would be hundreds of stops for the Tab key. It comes to the first row alone, and to the links of a row
// while the focus is in it. The rows have their links with tabindex -1, also when they come again with a push.
"use strict";
(() => {
  let row = null;

  function reach(to) {
    if (row && row !== to) for (const link of row.querySelectorAll("a[tabindex='0']")) link.tabIndex = -1;
    row = to;
    for (const link of row?.querySelectorAll("a[tabindex='-1']") ?? []) link.tabIndex = 0;
  }

  document.addEventListener("focusin", ({ target }) => reach(target.closest?.("#queue [data-row]") ?? null));
  document.addEventListener("htmx:after:swap", () => reach(document.activeElement?.closest("#queue [data-row]") ?? null));
})();
