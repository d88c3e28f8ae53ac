// A queue moves on all the time, and its page does not jump: rows that stay glide to their new places in a moment, and the holders' part does not
// get lower as soon as the next holder takes less room. Where a row has the pointer or the focus, it stays where it is (rest.js), and nothing glides.
"use strict";
(() => {
  const lists = ".waiters, #history ol, #nodes tbody";
  // How long a glide takes, in ms. Where pushes follow one another quickly it is short: each frame costs processor time.
  const calmly = 120;
  const quickly = 40;
  const often = 1000; // pushes that follow one another within so long
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const gliding = new Map(); // lists: {far, took, since}
  let frame = 0; // the next one, if it is asked for
  let glided = -often; // when rows went to new places last
  let seen = []; // for each list its rows, with their places: [{row, top}]

  const topOf = (row) => row.getBoundingClientRect().top;

  function look() {
    seen = calm.matches ? [] : [...document.querySelectorAll(lists)].map((list) => [...list.children].map((row) => ({ row, top: topOf(row) })));
  }

  function glide() {
    const now = performance.now();
    const took = now - glided < often ? quickly : calmly;
    for (const rows of seen) {
      const stays = rows.find(({ row }) => row.isConnected);
      const list = stays?.row.parentElement;
      if (!list?.matches(lists)) continue;
      if (gliding.delete(list)) list.style.transform = "";
      const far = stays.top - topOf(stays.row);
      // Where the list begins above the window, the browser scrolls along with its rows, unless a transform changes.
      if (Math.abs(far) < 1 || topOf(list) < 0) continue;
      list.style.transform = `translateY(${far}px)`;
      gliding.set(list, { far, took });
      glided = now;
      frame ||= requestAnimationFrame(step);
    }
    look(); // the next push may have looked before this one was shown
  }

  // step draws the next frame. The first one after a push shows the rows where they were: by the browser's count, a page jumps when the layout moves
  // rows and a transform does not take that back in the same frame.
  function step(t) {
    for (const [list, way] of gliding) {
      way.since ??= t;
      const left = 1 - (t - way.since) / way.took;
      list.style.transform = left > 0 ? `translateY(${way.far * left * left}px)` : "";
      if (left <= 0) gliding.delete(list);
    }
    frame = gliding.size > 0 ? requestAnimationFrame(step) : 0;
  }

  const lowerAfter = 30_000; // another holder may take as much room again
  let high = 0; // of the holders' part, in pixels
  let highAt = 0; // when the holders took so much room last

  function keepHeight() {
    const chamber = document.querySelector(".chamber");
    if (!chamber) return;
    const height = chamber.lastElementChild.getBoundingClientRect().bottom - topOf(chamber) + parseFloat(getComputedStyle(chamber).paddingBottom);
    const t = performance.now();
    if (height >= high || t - highAt > lowerAfter) [high, highAt] = [height, t];
    const least = `${high}px`;
    if (chamber.style.minHeight !== least) chamber.style.minHeight = least;
  }

  document.addEventListener("toggle", () => (high = 0), true); // the reader has opened or closed something
  document.addEventListener("htmx:before:swap", look);
  document.addEventListener("htmx:after:swap", keepHeight, true); // before rest.js looks where its row is
  document.addEventListener("htmx:after:swap", glide);
})();
