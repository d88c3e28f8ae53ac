// The login page: it says when the browser cannot keep a session here, and tells the other tabs that their user has
// logged out.
"use strict";
(() => {
  const insecure = document.getElementById("insecure");
  if (insecure && !isSecureContext) insecure.hidden = false;
  if (document.querySelector("[data-out]") && "BroadcastChannel" in globalThis) {
    const channel = new BroadcastChannel("lockkeeper");
    channel.postMessage("");
    channel.close();
  }
})();
