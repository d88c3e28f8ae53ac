// Rows of a table rest. While the pointer or the focus is among the rows of a table, none of them moves: what a row shows changes where it stands, rows that
// have gone are grey, and those that have come wait. A button tells how many changes wait, and shows them. The same happens for a while when
// so many rows come and go that the table would jump all the time.
//
// What waits is the last table that was pushed, with a mark in the place of each row that the page has (README.md), so that later
// pushes can still name its rows.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  const readFor = 90_000; // after the pointer or a key was last used; then the reader is taken to be gone
  const longest = 60_000; // that rows rest without a reader
  const jumps = 0.08; // how far a table may move in a minute, as layout shift counts it (0.1 is good)

  let used = -readFor; // when the pointer or a key was last used
  let held = null; // the table that waits: {shell, since}
  let left = jumps; // what is left of jumps
  let counted = 0; // when left was counted

  const table = () => $("[data-rest]");
  const rowsOf = (root) => $$("[data-row], [data-same]", root);
  const same = (row) => "same" in row.dataset;
  const rowIn = (root, id) => $(`#${CSS.escape(id)}`, root);

  for (const kind of ["pointermove", "keydown"]) {
    document.addEventListener(kind, (event) => event.pointerType !== "touch" && (used = performance.now()), { passive: true });
  }

  const present = () => performance.now() - used < readFor;
  const read = () => present() && Boolean($("[data-rest] tbody:is(:hover, :focus-within)"));

  // jump is how far the rows would move, as the browser counts it: the part of the window that moves, times how far.
  function jump(shell) {
    const next = new Map(rowsOf(shell).map((row, at) => [row.id, at]));
    let moved = 0;
    let far = 0;
    for (const [at, row] of rowsOf(table()).entries()) {
      const to = next.get(row.id) ?? at;
      if (to !== at) moved++;
      far = Math.max(far, Math.abs(to - at));
    }
    const height = rowsOf(table())[0]?.offsetHeight ?? 0;
    return Math.min(1, (moved * height) / innerHeight) * Math.min(1, (far * height) / Math.max(innerWidth, innerHeight));
  }

  // rests reports whether the rows of a table that was pushed must wait. When not, it has counted what they move.
  function rests(shell, since) {
    const t = performance.now();
    left = Math.min(jumps, left + (jumps * (t - counted)) / 60_000);
    counted = t;
    if (read()) return true;
    const far = jump(shell);
    if (far > left && t - since < longest) return true;
    left = Math.max(0, left - far);
    return false;
  }

  const parse = (text) => {
    const made = document.createElement("template");
    made.innerHTML = text.replace(/<(\/?)hx-partial\b/g, "<$1template");
    return made.content;
  };
  const written = (content) => [...content.children].map((e) => e.outerHTML).join("").replace(/<(\/?)template\b/g, "<$1hx-partial");

  function markOf(row) {
    const mark = row.cloneNode(false);
    for (const { name } of [...mark.attributes]) if (name !== "id") mark.removeAttribute(name);
    mark.dataset.same = "";
    return mark;
  }

  function alone(row) {
    const partial = document.createElement("template");
    partial.id = row.id;
    partial.setAttribute("hx-swap", "outerMorph");
    partial.content.append(row);
    return partial;
  }

  // take keeps back what must wait of a push, and gives the rest of it.
  function take(text) {
    const shown = table();
    if (!shown || (!held && !text.includes(`id="${shown.id}"`))) return text; // rows alone change where they stand
    const content = parse(text);
    const shell = content.getElementById(shown.id);
    if (shell) {
      for (const row of rowsOf(shell)) {
        const waits = held && same(row) && !rowIn(shown, row.id) && rowIn(held.shell, row.id);
        if (waits) row.replaceWith(waits);
      }
      const since = held?.since ?? performance.now();
      held = null;
      if (!rests(shell, since)) {
        release(shell);
        return written(content);
      }
      for (const row of rowsOf(shell)) {
        if (same(row) || !rowIn(shown, row.id)) continue;
        row.replaceWith(markOf(row));
        content.append(alone(row));
      }
      shell.remove();
      held = { shell, since };
    }
    for (const partial of content.querySelectorAll(":scope > template, template")) {
      if (!held || rowIn(shown, partial.id)) continue;
      rowIn(held.shell, partial.id)?.replaceWith(partial.content.firstElementChild);
      partial.remove();
    }
    return written(content);
  }

  // tell marks the rows that have gone, and says how many changes wait.
  function tell() {
    const shown = table();
    const chip = $("#rested");
    if (!chip) return;
    let n = 0;
    if (held && shown) {
      const next = new Set(rowsOf(held.shell).map((row) => row.id));
      const gone = rowsOf(shown).filter((row) => row.classList.toggle("gone", !next.has(row.id)));
      n = gone.length + rowsOf(held.shell).filter((row) => !same(row)).length || 1;
    }
    const text = n === 1 ? "1 change" : `${n.toLocaleString("en")} changes`;
    if (chip.textContent !== text && n > 0) chip.textContent = text;
    chip.hidden = n === 0;
  }

  function release(shell) {
    for (const row of rowsOf(table())) row.classList.remove("gone");
    held = null;
    return shell.outerHTML;
  }

  // apply shows what waits.
  function apply() {
    if (!held) return;
    const text = release(held.shell);
    const live = $("#live");
    if (live) htmx.swap({ sourceElement: live, target: live, swap: "none", text });
    tell();
  }

  document.addEventListener("htmx:ws:before:message:incoming", ({ detail: { message } }) => {
    if (typeof message.data === "string") message.data = take(message.data);
  });
  document.addEventListener("htmx:after:swap", tell);
  // Another filter's table, and what a poll brings, are whole.
  for (const kind of ["htmx:config:request", "rest:over"]) document.addEventListener(kind, () => table() && held && (release(held.shell), tell()));
  document.addEventListener("click", (event) => event.target.closest("#rested") && apply());

  // ---- A queue -----------------------------------------------------------------
  // Its rows do not rest: they say who is next. The one with the pointer or the focus keeps its place all the same. What goes before it leaves a
  // gap, which closes when the pointer and the focus have left; for what comes before it, the page scrolls.

  const pointed = () => present() && ($(".waiters > :hover") ?? $(".waiters > :focus-within"));
  let kept = null; // the row that keeps its place in a push: {row, top}

  document.addEventListener("htmx:before:swap", () => {
    const row = pointed();
    kept = row ? { row, top: row.getBoundingClientRect().top } : null;
  });
  document.addEventListener("htmx:after:swap", () => {
    const { row, top } = kept ?? {};
    if (!row?.isConnected) return;
    const { style } = row.parentElement;
    const gap = (parseFloat(style.paddingTop) || 0) + top - row.getBoundingClientRect().top;
    style.paddingTop = `${Math.max(0, gap)}px`;
    if (gap < 0) scrollBy({ top: -gap, behavior: "instant" });
  });

  function close() {
    const list = $(".waiters");
    if (list?.style.paddingTop && !pointed()) list.style.paddingTop = "";
  }

  setInterval(close, 500);
  setInterval(() => held && table() && !document.hidden && !rests(held.shell, held.since) && apply(), 500);
})();
