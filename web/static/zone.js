// Times of day, in the zone that the viewer has chosen with the button in the header (theme.js): the browser's, or UTC. Always with the zone, in
// 24 hours, and on hover both. The server writes UTC. Scripts that come after this one use zone.
"use strict";
const zone = (() => {
  const $$ = (selector, root = document) => root.querySelectorAll(selector);
  const minutes = { hourCycle: "h23", hour: "2-digit", minute: "2-digit" };
  const seconds = { ...minutes, timeZoneName: "short", second: "2-digit" };
  const withDate = { year: "numeric", month: "short", day: "numeric" };
  const isUTC = () => document.documentElement.dataset.zone === "utc";

  // formsOf are the forms of times in a zone; without one it is the browser's.
  const formsOf = (timeZone) => {
    const form = (parts) => new Intl.DateTimeFormat(undefined, { ...parts, timeZone });
    return {
      time: form(seconds),
      exact: form({ ...seconds, fractionalSecondDigits: 3 }),
      date: form({ ...minutes, timeZoneName: "short", ...withDate }),
      whole: form({ ...seconds, ...withDate }),
      axis: form(minutes),
      day: form({ month: "short", day: "numeric" }),
    };
  };
  const local = formsOf();
  let chosen;
  const choose = () => (chosen = isUTC() ? formsOf("UTC") : local);

  // offset is how far the chosen zone is before UTC then.
  const offset = (t) => (isUTC() ? 0 : new Date(t).getTimezoneOffset() * -60_000);

  const nameOf = (form, t) => form.formatToParts(t).find(({ type }) => type === "timeZoneName").value;

  // A text that begins with one instant, or two, in UTC. Names of others may come after those, and stay as they are.
  const instants = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d(:\d\d)?)(?: to (\d{4}-\d\d-\d\d) (\d\d:\d\d(:\d\d)?))? UTC/;
  const said = (text, forms) =>
    text.replace(instants, (_, day, time, exact, lastDay, lastTime, lastExact) => {
      const form = exact || lastExact ? forms.whole : forms.date;
      const from = new Date(`${day}T${time}Z`);
      if (!lastDay) return form.format(from);
      const both = form.formatRange(from, new Date(`${lastDay}T${lastTime}Z`));
      const named = ` ${nameOf(form, from)}`; // with seconds a browser names it twice
      return both.indexOf(named) < both.lastIndexOf(named) ? both.replace(named, "") : both;
    });

  // The server's ticks stand at round times in UTC: in another zone they move to its own, and one from beyond the end comes in.
  function writeAxis(bars) {
    const [from, to, step] = [bars.dataset.from, bars.dataset.to, bars.dataset.step].map(Number);
    for (const tick of $$("[data-tick]", bars)) {
      const ahead = offset(Number(tick.dataset.tick));
      const at = tick.dataset.tick - (((ahead % step) + step) % step);
      const x = ((at - from) / (to - from)) * 100;
      tick.setAttribute("x", `${x.toFixed(2)}%`);
      tick.setAttribute("visibility", x < 0 || x > 100 ? "hidden" : "visible");
      const form = (at + ahead) % 86_400_000 ? chosen.axis : chosen.day;
      tick.lastElementChild.textContent = x < 3 || x > 97 ? "" : form.format(at);
    }
  }

  // The field for an instant has the time of day of the chosen zone; its address has UTC.
  const instantIn = (field) => new Date(field.value + (field.dataset.local === undefined ? "Z" : ""));

  function writeField() {
    const field = document.getElementById("past-at");
    if (!field) return;
    const at = instantIn(field);
    if (isUTC()) delete field.dataset.local;
    else field.dataset.local = "";
    if (field.value) field.value = new Date(at.getTime() + offset(at)).toISOString().slice(0, 19);
    document.querySelector(".past-zone").textContent = `(${nameOf(chosen.date, field.value ? at : new Date())})`;
  }

  document.addEventListener("formdata", ({ target, formData }) => {
    const field = target.elements["past-at"];
    if (field) formData.set("at", instantIn(field).toISOString().replace(/(:00)?\.000Z/, "Z"));
  });

  const put = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
    if (element.localName === "time") element.dataset.on ??= ""; // the stylesheet hides a time until it has been written
  };

  // write writes what does not change by itself. What a push brings anew has an empty data-utc.
  function write() {
    for (const e of $$("time[data-clock]")) put(e, chosen.exact.format(Number(e.dataset.clock)));
    for (const e of $$("time[data-date]")) put(e, chosen.date.format(Number(e.dataset.date)));
    for (const e of $$("[data-origin]")) put(e, location.origin);
    for (const e of $$("[data-utc]")) put(e, said((e.dataset.utc ||= e.textContent), chosen));
    for (const e of $$("svg[data-step]")) writeAxis(e);
  }

  document.addEventListener("pointerover", ({ target }) => {
    const says = target.closest?.("[data-utc]");
    const utc = says?.dataset.utc.match(instants)?.[0];
    if (utc) says.title = `${said(utc, local)} (${utc})`;
    const e = target.closest?.("time[datetime]");
    if (!e || !e.title.includes(e.dateTime)) return;
    const both = `${local.whole.format(new Date(e.dateTime))} (${e.dateTime})`;
    if (!e.title.includes(both)) e.title = e.title.replace(e.dateTime, both);
  });

  document.addEventListener("zone", () => {
    choose();
    write();
    writeField();
  });

  choose();
  writeField();
  return { write, timeOfDay: (t) => chosen.time.format(t) };
})();
