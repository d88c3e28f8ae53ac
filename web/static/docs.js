// Gives each block of code in the documentation a button that copies it (copy.js).
"use strict";
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
