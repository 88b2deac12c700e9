/* Lanes over time: one for each member or each partition, growing, and the moment that is looked at. */
const ROW = 18, AXIS = 20, LANES_HEIGHT = 380, LABEL = 11.5, TICK_PX = 90;
const SPANS = { "1 min": 60e3, "5 min": 300e3, "30 min": 1800e3, "all": Infinity };
const STANDS = ["has its target", "not at the epoch yet", "waits for partitions", "must release partitions", "away", "not known"];
const HANDS = ["owned", "must be released", "owned by nobody"], UNKNOWN = 5;
const TIERS = { light: [[.80, .10], [.70, .11], [.87, .06]], dark: [[.47, .11], [.38, .09], [.55, .08]] };
const HUES = [255, 75, 160, 310, 200, 115, 345, 280];

const Lanes = {
  span: "5 min", by: "members", moment: null, frozen: 0, skew: 0, found: null, version: -1, of: null,

  now() { return Date.now() + this.skew; },
  /* The window: it moves with the time, and stands still while a moment of the past is looked at. */
  window(history) {
    const to = this.moment === null ? this.now() : this.frozen, all = history.since() ?? to;
    const from = this.moment !== null && this.moment < to - SPANS[this.span] ? all : Math.max(all, to - SPANS[this.span]);
    return { from: Math.min(from, to - 1000), to };
  },
  lookAt(ms) {
    if (this.moment === null) this.frozen = this.now();
    this.moment = ms === null || ms >= this.frozen ? null : ms;
  },
  /* Go so many entries on or back. */
  step(history, by) {
    const { events } = history, here = this.moment === null ? events.length : history.upTo(this.moment);
    let to = Math.max(0, here + by);
    while (by < 0 && to > 0 && events[to - 1].at >= (this.moment ?? Infinity)) to--; // entries of one millisecond are one moment
    this.lookAt(by < 0 && here === 0 ? this.moment : to > events.length || (to === events.length && by > 0 && here === to) ? null
      : to === 0 ? (history.since() ?? this.now()) : events[to - 1].at);
  },

  /* Segments [from, to, what, how many or who] of every member and partition. */
  all(history) {
    if (this.version === history.version && this.of === history) return this.found;
    const start = history.since() ?? this.now(), members = new Map(), partitions = new Map(), owner = new Map();
    const state = new Map(history.base);
    const lane = (lanes, key, at, what, who) => {
      const segments = lanes.get(key) || lanes.set(key, []).get(key), last = segments.at(-1);
      if (last && last[1] === null) {
        if (last[2] === what && last[3] === who) return;
        last[1] = at;
        if (last[1] <= last[0]) segments.pop();
      }
      if (what !== null) segments.push([at, null, what, who]);
    };
    const stands = (id, at) => {
      const there = state.get("m" + id), now = state.get("c" + id), epoch = state.get("g")?.epoch;
      if (!there) { if (members.has(id)) lane(members, id, at, null); return; }
      const held = now ? [...flat(now.assigned), ...flat(now.pending)].length : 0;
      lane(members, id, at, now === undefined ? UNKNOWN : !now ? 1 : now.epoch === -2 ? 4 : now.state === "UNREVOKED_PARTITIONS" ? 3
        : now.state === "UNRELEASED_PARTITIONS" ? 2 : now.epoch < epoch ? 1 : 0, held);
    };
    const owns = (id, before, now, at) => {
      const mine = new Map([...flat(now?.assigned)].map(one => [one, 0]));
      for (const one of flat(now?.pending)) mine.set(one, 1);
      for (const one of before ? [...flat(before.assigned), ...flat(before.pending)] : [])
        if (!mine.has(one) && owner.get(one) === id) { owner.delete(one); lane(partitions, one, at, 2, null); }
      for (const [one, hand] of mine) { owner.set(one, id); lane(partitions, one, at, hand, id); }
    };
    for (const [key, value] of state) if (key[0] === "m") stands(key.slice(1), start); else if (key[0] === "c") owns(key.slice(1), null, value, start);
    for (const { at, changes } of history.events) {
      const moved = new Set();
      for (const [key, value] of changes) {
        if (key[0] === "c") owns(key.slice(1), state.get(key), value, at);
        apply(state, [[key, value]]);
        if (key === "g") { for (const one of state.keys()) if (one[0] === "m") moved.add(one.slice(1)); } else if (key[0] !== "t") moved.add(key.slice(1));
      }
      for (const id of moved) if (id) stands(id, at);
    }
    this.found = { members, partitions }; this.version = history.version; this.of = history;
    return this.found;
  },

  draw(history) {
    const box = $("lanes"), width = box.clientWidth, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    if (!width) return;
    const style = getComputedStyle(document.documentElement), look = name => style.getPropertyValue("--" + name).trim();
    const colours = { ink: look("ink"), soft: look("soft"), line: look("line"), card: look("card"), bad: look("bad"), link: look("link"), bg: look("bg"), dark };
    const numbers = new Map([...history.names.keys()].map((id, n) => [id, n])), { from, to } = this.window(history);
    const paint = { ...colours, fill: id => {
      const n = numbers.get(id) ?? 0, [lightness, chroma] = TIERS[dark ? "dark" : "light"][Math.floor(n / HUES.length) % 3];
      return "oklch(" + lightness + " " + chroma + " " + HUES[n % HUES.length] + ")"; } };
    const lanes = [...this.all(history)[this.by]].filter(([, segments]) => segments.some(one => (one[1] ?? to) >= from && one[0] <= to))
      .map(([key, segments]) => ({ key, segments, label: this.by === "members" ? history.called(key) : key }))
      .sort((a, b) => a.label.localeCompare(b.label, undefined, { numeric: true }));
    const height = Math.max(ROW, Math.min(LANES_HEIGHT, lanes.length * ROW)), canvas = box.querySelector("canvas");
    const gutter = width < 520 ? 92 : 168, x = at => gutter + (Math.max(at, from) - from) / (to - from) * (width - gutter - 8);
    let filler = box.querySelector("div") || box.appendChild(el("div", {}));
    filler.style.height = Math.max(0, lanes.length * ROW - height) + "px";
    const on = sized(canvas, width, height, paint.card), first = Math.floor(box.scrollTop / ROW);
    this.place = { gutter, width, from, to };
    for (let n = first; n < lanes.length && (n - first - 1) * ROW <= height; n++) {
      const y = n * ROW - box.scrollTop, { key, segments, label } = lanes[n];
      if (n % 2) { on.fillStyle = paint.bg; on.fillRect(0, y, width, ROW); }
      for (const [begin, end, what, who] of segments) {
        if ((end ?? to) < from || begin > to) continue;
        const a = x(begin), b = Math.max(x(Math.min(end ?? to, to)), a + 1);
        if (this.by === "members") stand(on, a, b, y + 2, ROW - 4, what, paint.fill(key), paint, who ? String(who) : "");
        else hand(on, a, b, y + 2, ROW - 4, what, who === null ? "" : paint.fill(who), paint, who === null ? "" : history.called(who));
      }
      on.fillStyle = n % 2 ? paint.bg : paint.card; on.fillRect(0, y, gutter - 2, ROW);
      if (this.by === "members") { on.fillStyle = paint.fill(key); on.fillRect(6, y + 5, 8, 8); }
      write(on, label, this.by === "members" ? 20 : 6, y + ROW / 2, paint.ink, gutter - (this.by === "members" ? 26 : 12));
    }
    for (const event of history.events) if (event.at >= from && event.at <= to && (event.epoch !== undefined || event.isTerm)) {
      on.setLineDash(event.isTerm ? [3, 3] : []);
      line(on, x(event.at), height, event.isTerm ? paint.bad : paint.soft, event.isTerm ? 1.5 : .6);
    }
    on.setLineDash([]);
    if (!lanes.length) write(on, "nothing is known of this time", 6, ROW / 2, paint.soft, width - 12);
    line(on, x(this.moment ?? to), height, paint.link, 2);
    axis(from, to, x, width, gutter, paint);
    legend(this.by, paint, lanes.length);
    const scrub = $("scrub");
    scrub.min = Math.floor(from); scrub.max = Math.ceil(to); scrub.value = this.moment ?? Math.ceil(to);
    scrub.parentNode.style.paddingLeft = gutter - 8 + "px";
  },
};

function sized(canvas, width, height, back) {
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px"; canvas.style.height = height + "px";
  }
  const on = canvas.getContext("2d");
  on.setTransform(ratio, 0, 0, ratio, 0, 0);
  on.fillStyle = back; on.fillRect(0, 0, width, height);
  return on;
}
function write(on, text, x, y, fill, room) {
  on.font = LABEL + "px system-ui, sans-serif"; on.textBaseline = "middle"; on.fillStyle = fill;
  if (on.measureText(text).width > room) { // cut in the middle: names of clients differ at their ends
    let kept = text.length - 1;
    while (kept > 2 && on.measureText(text.slice(0, Math.ceil(kept / 2)) + "…" + text.slice(-Math.floor(kept / 2))).width > room) kept--;
    text = text.slice(0, Math.ceil(kept / 2)) + "…" + text.slice(-Math.floor(kept / 2));
  }
  on.fillText(text, x, y);
}
function line(on, x, height, stroke, width) {
  on.strokeStyle = stroke; on.lineWidth = width; on.beginPath(); on.moveTo(x, 0); on.lineTo(x, height); on.stroke();
}
/* Stripes show the meaning without the colour: rising what must be released, falling what is waited for. */
function stripes(on, a, b, y, height, rising, paint) {
  on.save(); on.beginPath(); on.rect(a, y, b - a, height); on.clip();
  on.strokeStyle = paint.card; on.lineWidth = 2; on.beginPath();
  for (let at = a - height - a % 8; at < b + height; at += 8) { on.moveTo(at, rising ? y + height : y); on.lineTo(at + height, rising ? y : y + height); }
  on.stroke(); on.restore();
}
function said(on, text, a, b, y, height, fill, paint, plain) {
  on.font = LABEL + "px system-ui, sans-serif";
  const wide = text ? on.measureText(text).width : 0;
  if (!text || wide > b - a - 8) return;
  if (!plain) { on.fillStyle = fill; on.fillRect(a + 2, y + 1, wide + 6, height - 2); }
  write(on, text, a + 5, y + height / 2, paint.dark ? "#fff" : "#14181d", Infinity);
}
function stand(on, a, b, y, height, what, fill, paint, text) {
  if (what === 4 || what === UNKNOWN) {
    on.strokeStyle = paint.soft; on.setLineDash(what === 4 ? [5, 4] : [1, 3]); on.lineWidth = 1;
    on.strokeRect(a + .5, y + 2.5, Math.max(b - a - 1, .5), height - 5); on.setLineDash([]);
    return;
  }
  const thin = what === 0 && !text;
  on.globalAlpha = what === 1 ? .4 : 1; on.fillStyle = fill;
  on.fillRect(a, thin ? y + height / 2 - 2 : y, b - a, thin ? 4 : height); on.globalAlpha = 1;
  if (what === 2 || what === 3) stripes(on, a, b, y, height, what === 3, paint);
  said(on, text, a, b, y, height, fill, paint, what < 2);
}
function hand(on, a, b, y, height, what, fill, paint, text) {
  on.fillStyle = what === 2 ? paint.bad : fill;
  on.fillRect(a, what === 2 ? y + height / 2 - 2 : y, b - a, what === 2 ? 4 : height);
  if (what === 1) stripes(on, a, b, y, height, true, paint);
  said(on, text, a, b, y, height, fill, paint, what === 0);
}
function axis(from, to, x, width, gutter, paint) {
  const on = sized($("axis"), width, AXIS, paint.card), steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  const step = 1000 * (steps.find(one => one * 1000 / (to - from) * (width - gutter) >= TICK_PX) || 86400 * Math.ceil((to - from) / 86400e3));
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const place = Math.min(x(at), width - (to - from > 86400e3 ? 78 : 52));
    on.fillStyle = paint.line; on.fillRect(x(at), AXIS - 5, 1, 5);
    write(on, to - from > 86400e3 ? day(at) + " " + clock(at).slice(0, 5) : clock(at), place, AXIS / 2 - 2, paint.soft, 80);
  }
}
function legend(by, paint, num) {
  const words = by === "members" ? STANDS : HANDS, key = by + paint.dark + num, hidden = num * ROW > LANES_HEIGHT;
  if ($("legend").getAttribute("data-of") === key) return;
  $("legend").setAttribute("data-of", key);
  put("legend", hidden ? num + " lanes, scroll for the others. " : "", ...words.map((text, what) => {
    const canvas = el("canvas", { "aria-hidden": "true" }), on = sized(canvas, 22, 12, paint.card), fill = paint.fill("");
    if (by === "members") stand(on, 0, 22, 0, 12, what, fill, paint, what ? "" : " "); else hand(on, 0, 22, 0, 12, what, fill, paint, "");
    return el("span", { class: "keep" }, canvas, text);
  }), "Lines are new epochs, dashed ones new leaders" + (by === "members" ? "; numbers count partitions." : "."));
}
