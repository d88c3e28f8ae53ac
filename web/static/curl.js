// What a dialog will send, as a curl command that can be copied; and a lock's page as text, to paste into an incident. Both are made of what
// the page shows: nothing is asked of the gateway.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => root.querySelectorAll(selector);

  // quote makes one word of a shell's command line, whatever is in it.
  const quote = (text) => (/^[A-Za-z0-9_./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

  const tokenFile = () => (document.body.dataset.credential === undefined ? "" : " -H @TOKEN_FILE");

  // curl is the command of one request. Empty members are not sent.
  function curl(method, url, head = {}, body = null) {
    const sent = body && Object.fromEntries(Object.entries(body).filter(([, value]) => value !== ""));
    let line = `curl -sS -X ${method}${tokenFile()}`;
    for (const [name, value] of Object.entries(head)) line += ` -H ${quote(`${name}: ${value}`)}`;
    if (sent && Object.keys(sent).length > 0) line += ` --json ${quote(JSON.stringify(sent))}`;
    return `${line} ${quote(new URL(url, location.origin).href)}`;
  }

  // showCurl keeps the command of an open dialog true. requests is null while the dialog would send nothing.
  function showCurl(dialog, requests) {
    const place = $("[data-curl]", dialog);
    if (!place) return;
    const text = requests ? requests.map((r) => curl(r.method, r.url, r.head, r.body)).join("\n") : "";
    if (place.textContent !== text) place.textContent = text;
    const none = text === "";
    $("[data-curl-none]", dialog).hidden = !none;
    place.closest("pre").hidden = none;
    const button = $("button[data-copy]", place.closest("details"));
    button.hidden = none;
    button.dataset.copy = text;
  }

  // ---- A lock as text ----------------------------------------------------------

  const utc = (date) => date.toISOString().replace("T", " ").replace(/:\d\d\.\d+Z$/, " UTC");
  const instant = (date) => date.toISOString().replace(/\.\d+Z$/, "Z");
  const listed = 10; // contenders of each kind; more are counted

  // frozen is the address of what is seen now: an hour later it shows the same instant.
  function frozen(now) {
    const url = new URL(location.href);
    if (!url.searchParams.has("at")) url.searchParams.set("at", instant(now));
    url.hash = "";
    return url.href;
  }

  function contenders(selector, verb) {
    const rows = [...$$(selector)];
    const lines = rows.slice(0, listed).map((row) => {
      const since = $("time[data-since]", row)?.getAttribute("datetime");
      let line = `- ${row.dataset.who}`;
      if (row.dataset.leaseId) line += ` (${row.dataset.leaseId})`;
      if (since) line += `, ${verb} since ${"over" in $("time[data-since]", row).dataset ? "before " : ""}${utc(new Date(since))}`;
      const why = $(".purpose-why", row)?.textContent;
      if (why) line += `: ${why}`;
      return line;
    });
    if (rows.length > listed) lines.push(`- and ${rows.length - listed} more on this page`);
    return lines;
  }

  function incident(tools) {
    const now = new Date();
    const { name, ns, lock, contend } = tools.dataset;
    const { holders = "0", waiting = "0" } = $("#incident").dataset;
    const first = $("#queue .holder[data-lease-id]:not([data-over])");
    const lines = [`Lock ${name} (namespace ${ns}) at ${utc(now)}`, frozen(now), ""];
    lines.push(Number(holders) > 0 ? `Held by ${holders}:` : "Not held.", ...contenders("#queue .holder", "held"));
    lines.push(Number(waiting) > 0 ? `Waiting: ${waiting}` : "Nothing waits.", ...contenders("#queue .waiter", "queued"));
    for (const chain of $$(".chain")) lines.push(`Chain: ${chain.innerText.replace(/\s+/g, " ").trim()}`);
    for (const hazard of $$(".hazards li")) lines.push(`Hazard: ${hazard.innerText.replace(/\s+/g, " ").trim()}`);
    lines.push("", curl("GET", lock), curl("GET", contend));
    if (first) lines.push(curl("POST", tools.dataset.ask, {}, { lease_ids: [first.dataset.leaseId], reason: "WHY" }));
    return lines.join("\n");
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-incident]");
    if (!button) return;
    // copy.js, which comes later, copies what the button says now.
    button.dataset.copy = button.dataset.incident === "link" ? frozen(new Date()) : incident(button.closest("[data-lock]"));
  }, true);

  globalThis.showCurl = showCurl;
})();
