"use strict";
/* Elements, requests, words: what the other parts use. Bounds: what the page keeps and asks for does not grow with the
   cluster or with time. */
const CLUSTER_MS = 5000, TIMEOUT_MS = 4000, LAUNCHER_MS = 50000, ORIGINS_KEPT = 16;
const ROWS_SHOWN = 25, GROUPS_SHOWN = 100, CAUSES_SHOWN = 8, WAITS_SHOWN = 20, PARTITIONS_SHOWN = 24, TOPICS_SHOWN = 10;
const $ = id => document.getElementById(id);
let origins = [location.origin];

// Every text of a client goes through textContent, so no name of a group or client can be markup.
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value); else node.setAttribute(name, value);
  node.append(...children.filter(child => child !== null && child !== ""));
  return node;
}
function put(id, ...children) {
  const place = $(id), held = document.activeElement && place.contains(document.activeElement)
    ? document.activeElement.getAttribute("data-key") : null;
  place.replaceChildren(...children.filter(child => child !== null && child !== ""));
  if (held) [...place.querySelectorAll("[data-key]")].find(one => one.getAttribute("data-key") === held)?.focus();
}
/* A table without the columns that are empty in every row. */
function table(all, given) {
  const used = all.map((_, i) => given.some(row => row[i] !== "")), heads = all.filter((_, i) => used[i]), rows = given.map(row => row.filter((_, i) => used[i]));
  const cells = row => row.map((cell, i) => el("td", { "data-name": heads[i], class: cell === "" ? "none" : "" }, cell));
  return el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(head => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map(row => el("tr", {}, ...cells(row)))));
}
/* Which part of a list is shown, and buttons to the others; nothing if it is short. */
function pager(what, page, most, num, turn) {
  const to = (key, text, on) => el("button", { type: "button", class: "small", "data-key": what + " " + key, onclick: () => turn(on) }, text);
  return num <= most ? "" : el("p", {}, what + " " + (page * most + 1) + " to " + Math.min((page + 1) * most, num) + " of " + num + " ",
    page ? to("back", "Previous", page - 1) : "", (page + 1) * most < num ? to("on", "Next", page + 1) : "");
}
const tag = (text, kind) => el("span", { class: "tag " + kind }, text);
const ago = ms => ms < 0 ? "now" : ms < 9950 ? (ms / 1000).toFixed(1) + " s" : ms < 120000 ? Math.round(ms / 1000) + " s"
  : ms < 7200000 ? Math.round(ms / 60000) + " min" : Math.round(ms / 3600000) + " h";
/* How long ago something was: it goes on by itself, as `goOn` is called every second. */
const since = at => el("span", { "data-since": at }, ago(Lanes.now() - at));
function goOn() { for (const one of document.querySelectorAll("[data-since]")) one.textContent = ago(Lanes.now() - one.getAttribute("data-since")); }
const clock = ms => new Date(ms).toLocaleTimeString([], { hour12: false });
const day = ms => new Date(ms).toLocaleDateString([], { month: "short", day: "numeric" });
const when = ms => (day(ms) === day(Date.now()) ? "" : day(ms) + " ") + clock(ms);
const count = (n, word) => n + " " + word + (n === 1 ? "" : "s");
const url = ({ host, port }) => "http://" + (host.includes(":") ? "[" + host + "]" : host) + ":" + port;
const keep = text => el("span", { class: "keep" }, String(text));
const address = where => { const [host, port] = url(where).slice(7).split(/:(?=\d+$)/); return el("span", {}, host, el("wbr", {}), ":" + port); };
const state = text => tag(text, /^(stable|ready)$/i.test(text) ? "good" : /^(empty|dead)$/i.test(text) ? "" : "warn");

async function ask(origin, path, given = {}, ms = TIMEOUT_MS) {
  const answer = await fetch(origin + path, { credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(ms), ...given });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).message || answer.status + " of " + origin);
  return answer.json();
}
// The first that answers is asked first from then on: the page goes on from another node.
async function fromAny(path) {
  let last;
  for (const origin of [...origins]) try {
    return { origin, body: await ask(origin, path) };
  } catch (error) { last = error; if (origin === origins[0]) origins.push(origins.shift()); }
  throw last;
}
const pause = ms => new Promise(done => setTimeout(done, ms));
const shown = () => document.hidden ? new Promise(done =>
  document.addEventListener("visibilitychange", function back() {
    if (!document.hidden) { document.removeEventListener("visibilitychange", back); done(); } })) : null;
