// A click on a button with data-copy copies what that says; one with data-copy-code the code beside it: its
// title, where it is shown in part, or the command that it is.
"use strict";
(() => {
  // The clipboard's API is there only in secure contexts, and a gateway on the
  // local network is none.
  async function copy(text) {
    try {
      if (navigator.clipboard) return await navigator.clipboard.writeText(text);
    } catch {
      // The browser does not allow it: the old way.
    }
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy], button[data-copy-code]");
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    await copy(button.dataset.copy ?? (code.title || code.textContent.replace(/^\$ /, "")));
    button.dataset.copied = "";
    button.focus();
    setTimeout(() => delete button.dataset.copied, 1200);
  });
})();
