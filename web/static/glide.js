// A queue moves on all the time, and its page does not jump: rows that stay glide to their new places in a moment, and the holders' part does not
// get lower as soon as the next holder takes less room. Where a row has the pointer or the focus, it stays where it is (rest.js), and nothing glides.
"use strict";
(() => {
  const lists = ".waiters, #history ol, #nodes tbody";
  // How long a glide takes, in ms. Where pushes follow one another quickly it is short: each frame costs processor time.
  const calmly = 120;
  const quickly = 30;
  const often = 1000; // pushes that follow one another within so long
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const gliding = new Map(); // lists: {far, took, since}
  let frame = 0; // the next one, if it is asked for
  let glided = -often; // when rows went to new places last
  let seen = []; // the lists and their rows, with their places: [{list, top, rows: [{row, top}]}]

  const topOf = (row) => row.getBoundingClientRect().top;

  function look() {
    const rows = (list) => [...list.children].map((row) => ({ row, top: topOf(row) }));
    seen = calm.matches ? [] : [...document.querySelectorAll(lists)].map((list) => ({ list, top: topOf(list), rows: rows(list) }));
  }

  function glide() {
    const now = performance.now();
    const took = now - glided < often ? quickly : calmly;
    const before = new Map(seen.flatMap(({ rows }) => rows.map(({ row, top }) => [row, top])));
    for (const list of gliding.keys()) list.style.transform = "";
    gliding.clear();
    look(); // all places are read before a transform changes: the browser lays out once
    for (const { list, top, rows } of seen) {
      const stays = rows.find(({ row }) => before.has(row));
      const far = stays ? before.get(stays.row) - stays.top : 0;
      // Where the list begins above the window, the browser scrolls along with its rows, unless a transform changes.
      if (Math.abs(far) < 1 || top < 0) continue;
      list.style.transform = `translateY(${far}px)`;
      for (const place of rows) place.top += far; // where the reader sees it: the next push may have looked before this one was shown
      gliding.set(list, { far, took });
      glided = now;
      frame ||= requestAnimationFrame(step);
    }
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
