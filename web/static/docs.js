// Gives each block of code in the documentation a button that copies it (copy.js), and shows where the page is in a long
// navigation.
"use strict";
for (const link of document.querySelectorAll(".docs-nav [aria-current]")) {
  const nav = link.closest(".docs-nav");
  nav.scrollTop = link.offsetTop - nav.clientHeight / 2;
}
for (const pre of document.querySelectorAll(".doc pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "tool copy-code";
  button.textContent = "Copy";
  button.dataset.copy = pre.textContent.trimEnd();
  const block = document.createElement("div");
  block.className = "code";
  pre.replaceWith(block);
  block.append(pre, button);
}
