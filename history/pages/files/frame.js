"use strict";
/* Shared by every page: its data; elements that contain text only (clients choose the names of members and topics, so
   nothing is ever parsed as HTML); times in the time zone that the reader chose; and the colours. */
const Frame = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);

  /* element("button", {class: "link", onclick: f, "aria-label": "…"}, "text", otherElement) */
  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else made.setAttribute(key, value === true ? "" : String(value));
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  /* Offsets from UTC with the moment from which each holds: [[epoch ms, minutes], …], from `frame.zone_offsets`. */
  const offsets = (data && data.offsets) || [[0, 0]];
  function offsetAt(ms) {
    let minutes = offsets[0][1];
    for (const [from, value] of offsets) if (from <= ms) minutes = value;
    return minutes;
  }
  const two = (number) => String(number).padStart(2, "0");
  function offsetWords(ms) {
    const minutes = offsetAt(ms), size = Math.abs(minutes);
    return (minutes < 0 ? "-" : "+") + two(Math.floor(size / 60)) + ":" + two(size % 60);
  }
  const shifted = (ms) => new Date(ms + offsetAt(ms) * 60000).toISOString();
  const day = (ms) => shifted(ms).slice(0, 10);
  const clock = (ms) => shifted(ms).slice(11, 23);
  const full = (ms) => day(ms) + " " + clock(ms) + offsetWords(ms);

  function duration(span) {
    if (span < 0) return "-" + duration(-span);
    if (span < 1000) return Math.round(span) + " ms";
    const seconds = span / 1000;
    if (seconds < 59.95) return seconds.toFixed(1) + " s";
    const whole = Math.round(seconds);
    for (const [unit, below, size, limit] of [["min", "s", 60, 3600], ["h", "min", 3600, 86400], ["d", "h", 86400, Infinity]]) {
      if (whole >= limit) continue;
      const rest = Math.floor((whole % size) / (unit === "d" ? 3600 : size / 60));
      return Math.floor(whole / size) + " " + unit + (rest ? " " + rest + " " + below : "");
    }
  }
  const count = (number, noun) =>
    number.toLocaleString("en-US") + " " + (number === 1 ? noun : noun.endsWith("y") ? noun.slice(0, -1) + "ies" : noun + "s");

  /* A colour by its name in the style sheet, in a form that a canvas accepts. */
  const probe = element("span", {hidden: true});
  document.body.append(probe);
  function colour(name) {
    probe.style.color = "var(--" + name + ")";
    return getComputedStyle(probe).color;
  }

  /* The reader's setting decides between dark and light; the buttons override it while the page is open. */
  const listeners = [];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : dark.matches;
  };
  const onTheme = (listener) => listeners.push(listener);
  const themeChanged = () => listeners.forEach((listener) => listener());
  dark.addEventListener("change", themeChanged);
  const buttons = [...document.querySelectorAll("[data-theme-choice]")];
  function choose(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.themeChoice === theme));
    themeChanged();
  }
  for (const button of buttons) {
    button.addEventListener("click", () => choose(button.dataset.themeChoice));
    button.parentElement.hidden = false;
    button.setAttribute("aria-pressed", String(button.dataset.themeChoice === ""));
  }
  // Print is light, canvases included: listeners redraw synchronously, since nothing runs between this event and printing.
  let before = "";
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme || "";
    for (const one of document.querySelectorAll("details.more-findings")) one.open = true;
    choose("light");
  });
  addEventListener("afterprint", () => choose(before));

  return {data, byId, element, full, day, clock, offsetWords, offsetAt, duration, count, colour, isDark, onTheme};
})();
