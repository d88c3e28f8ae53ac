// Lists that move on glide: when a row leaves or comes, those that stay go to their new places in a moment, and do not jump. Where a row has the
// pointer or the focus, it stays where it is (rest.js), and nothing glides.
"use strict";
(() => {
  const lists = ".waiters, #history ol, #nodes tbody";
  const moment = { duration: 120, easing: "ease-out" };
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let seen = []; // for each list its rows, with their places: [{row, top}]

  const topOf = (row) => row.getBoundingClientRect().top;

  function look() {
    seen = calm.matches ? [] : [...document.querySelectorAll(lists)].map((list) => [...list.children].map((row) => ({ row, top: topOf(row) })));
  }

  document.addEventListener("htmx:before:swap", look);
  document.addEventListener("htmx:after:swap", () => {
    for (const rows of seen) {
      const stays = rows.find(({ row }) => row.isConnected);
      const list = stays?.row.parentElement;
      if (!list?.matches(lists)) continue;
      for (const glide of list.getAnimations()) glide.cancel();
      const far = stays.top - topOf(stays.row);
      if (Math.abs(far) >= 1) list.animate([{ transform: `translateY(${far}px)` }, { transform: "none" }], moment);
    }
    look(); // the next push may have looked before this one was shown
  });
})();
