/* Draws the visible lanes, and defines how everything looks. Everything is redrawn each time; only visible parts cost
   anything, and whatever is narrower than a pixel is drawn as the worst state in it. */
const Draw = (() => {
  const {colour, isDark} = Frame;
  const {members, epochs, takeovers, HAND, STAND, SIZE} = Model;
  const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif";
  const HUES = [255, 75, 160, 310, 200, 115, 345, 280];  // far apart, and none of them the red of what is wrong
  const TIERS = {light: [[0.80, 0.10], [0.70, 0.11], [0.87, 0.06]], dark: [[0.47, 0.11], [0.38, 0.09], [0.55, 0.08]]};
  const NAMES = ["paper", "ink", "soft", "line", "line-soft", "accent", "on-accent", "cursor", "quiet", "stripe", "unsettled",
    "edge", "settled", "unowned", "several", "takeover", "bad", "warn", "raised"];
  let look = {}, patterns = new Map();

  function learnColours() {
    patterns = new Map();
    look = Object.fromEntries(NAMES.map((name) => [name, colour(name)]));
    look.segmentInk = isDark() ? "#ffffff" : "#14181d";
  }
  function memberColour(number) {
    const [lightness, chroma] = TIERS[isDark() ? "dark" : "light"][Math.floor(number / HUES.length) % 3];
    return "oklch(" + lightness + " " + chroma + " " + HUES[number % HUES.length] + ")";
  }

  /* Stripes of a colour; their shape (rising, falling, crossed) shows the meaning without the colour. */
  function stripes(context, fill, line, shape) {
    const key = fill + line + shape;
    if (!patterns.has(key)) {
      const size = 8, tile = document.createElement("canvas");
      tile.width = tile.height = size;
      const on = tile.getContext("2d");
      on.fillStyle = fill;
      on.fillRect(0, 0, size, size);
      on.strokeStyle = line;
      on.lineWidth = 2;
      on.beginPath();
      for (const shift of [-size, 0, size]) {
        if (shape !== "falling") { on.moveTo(shift, size); on.lineTo(shift + size, 0); }
        if (shape !== "rising") { on.moveTo(shift, 0); on.lineTo(shift + size, size); }
      }
      on.stroke();
      patterns.set(key, context.createPattern(tile, "repeat"));
    }
    return patterns.get(key);
  }

  function prepared(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = width + "px";
      canvas.style.height = height + "px";
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = look.paper;
    context.fillRect(0, 0, width, height);
    context.textBaseline = "middle";
    return context;
  }
  /* Text; what has no room is cut at its end, a name in its middle, since names often differ at their ends. */
  function write(context, text, x, y, {size = 11.5, weight = 400, fill = look.ink, align = "left", room = Infinity, isName = false} = {}) {
    context.font = weight + " " + size + "px " + FONT;
    context.fillStyle = fill;
    context.textAlign = align;
    if (room < Infinity && context.measureText(text).width > room) {
      if (room < 12) return 0;
      const cut = (length) => isName ? text.slice(0, Math.ceil(length / 2)) + "…" + text.slice(text.length - Math.floor(length / 2)) : text.slice(0, length) + "…";
      let length = text.length - 1;
      while (length > 1 && context.measureText(cut(length)).width > room) length = Math.min(length - 1, Math.ceil(length * 0.9));
      text = cut(length);
    }
    context.fillText(text, x, y);
    return context.measureText(text).width;
  }
  function fits(context, text, room, size = 11) {
    context.font = "400 " + size + "px " + FONT;
    return context.measureText(text).width <= room;
  }

  /* The x of a moment in the lanes and the ruler. The right margin leaves room for the ends of sessions. */
  const END_ROOM = 14, EDGE = 16;
  const inner = (view) => view.width - view.gutter - END_ROOM;
  const xOf = (view, time) => view.gutter + (Scale.place(time) - view.from) / (view.to - view.from) * inner(view);
  const timeOf = (view, x) => Scale.time(view.from + (x - view.gutter) / inner(view) * (view.to - view.from));

  /* Each visible piece of a lane: paint(from x, to x, what, who). */
  function eachPiece(view, segments, rank, paint) {
    const begin = timeOf(view, view.gutter), end = timeOf(view, view.width);
    for (let at = Model.firstAfter(segments, begin); at < segments.length && segments[at] <= end; at += SIZE) {
      let from = xOf(view, segments[at]), to = xOf(view, segments[at] + segments[at + 1]);
      let what = segments[at + 2], who = segments[at + 3];
      if (to - from < 1) {
        const edge = from + 1;
        while (at + SIZE < segments.length && xOf(view, segments[at + SIZE] + segments[at + SIZE + 1]) <= edge) {
          at += SIZE;
          if (rank[segments[at + 2]] > rank[what]) { what = segments[at + 2]; who = segments[at + 3]; }
        }
        to = edge;
      }
      paint(Math.max(from, view.gutter), Math.min(Math.max(to, view.gutter), view.width), what, who, to);
    }
  }
  const HAND_RANK = [0, 1, 3, 2], STAND_RANK = [0, 1, 2, 3, 4];

  function ownedPiece(context, from, to, y, height, what, who, dimmed) {
    const width = Math.max(to - from, 1);
    context.globalAlpha = dimmed ? 0.18 : 1;
    if (what === HAND.UNOWNED) {
      const half = Math.max(6, Math.round(height * 0.5));
      context.fillStyle = look.unowned;
      context.fillRect(from, y + (height - half) / 2, width, half);
    } else {
      const fill = what === HAND.SEVERAL ? look.several : memberColour(who);
      context.fillStyle = what === HAND.SEVERAL ? stripes(context, fill, look.paper, "crossed")
        : what === HAND.REVOKING ? stripes(context, fill, look.paper, "rising") : fill;
      context.fillRect(from, y, width, height);
    }
    if (width > 3) { context.fillStyle = look.paper; context.fillRect(from + width - 0.75, y, 0.75, height); }
    context.globalAlpha = 1;
  }

  function partitionLane(context, view, row, y, height) {
    eachPiece(view, row.segments, HAND_RANK, (from, to, what, who) => {
      const dimmed = view.chosen !== null && who !== view.chosen;
      ownedPiece(context, from, to, y, height, what, who, dimmed);
      const said = what === HAND.UNOWNED ? "" : what === HAND.SEVERAL ? "several" : members[who].name;
      if (said && !dimmed && to - from > 16 && fits(context, said, to - from - 8)) {
        if (what !== HAND.OWNED) {
          context.fillStyle = what === HAND.SEVERAL ? look.several : memberColour(who);
          context.fillRect(from + 2, y + 2, Math.min(context.measureText(said).width + 6, to - from - 4), height - 4);
        }
        write(context, said, from + 5, y + height / 2 + 0.5, {size: 11, fill: look.segmentInk});
      }
    });
  }

  function memberLane(context, view, member, y, height) {
    const fill = memberColour(member.number), dimmed = view.chosen !== null && view.chosen !== member.number;
    eachPiece(view, member.segments, STAND_RANK, (from, to, what, count) => {
      const width = Math.max(to - from, 1);
      context.globalAlpha = dimmed ? 0.18 : 1;
      if (what === STAND.AWAY) {
        context.strokeStyle = look.soft;
        context.setLineDash([5, 4]);
        context.strokeRect(from + 0.5, y + 3.5, Math.max(width - 1, 0.5), height - 7);
        context.setLineDash([]);
      } else {
        const bar = what === STAND.IN_STEP && !count ? 4 : height;
        context.fillStyle = what === STAND.GIVING_UP ? stripes(context, fill, look.paper, "rising")
          : what === STAND.WAITING ? stripes(context, fill, look.paper, "falling") : fill;
        if (what === STAND.BEHIND) context.globalAlpha *= 0.4;
        context.fillRect(from, y + (height - bar) / 2, width, bar);
      }
      context.globalAlpha = 1;
      const said = what === STAND.AWAY ? "away" : count ? String(count) : "";
      if (said && !dimmed && width > 12 && fits(context, said, width - 8)) {
        const plain = what === STAND.IN_STEP || what === STAND.BEHIND || what === STAND.AWAY;
        if (!plain) { context.fillStyle = fill; context.fillRect(from + 2, y + 3, context.measureText(said).width + 6, height - 6); }
        write(context, said, from + 5, y + height / 2 + 0.5, {size: 11, fill: what === STAND.AWAY || what === STAND.BEHIND ? look.ink : look.segmentInk});
      }
    });
    for (const session of member.sessions) if (session.end !== null) sessionEnd(context, view, session, y, height);
  }

  /* The end of a session: a cross if the coordinator ended it, a bar if the member did; with a word if there is room. */
  function sessionEnd(context, view, session, y, height) {
    const x = xOf(view, session.end);
    if (x < view.gutter || x > view.width + 4) return;
    const wrong = session.how.includes("expired") || session.how === "removed", middle = y + height / 2;
    context.strokeStyle = wrong ? look.bad : look.soft;
    context.lineWidth = 2;
    context.beginPath();
    if (wrong) {
      context.moveTo(x + 3, middle - 4); context.lineTo(x + 11, middle + 4);
      context.moveTo(x + 3, middle + 4); context.lineTo(x + 11, middle - 4);
    } else {
      context.moveTo(x + 2, y + 3); context.lineTo(x + 2, y + height - 3);
    }
    context.stroke();
    context.lineWidth = 1;
    const next = view.nextStart(session);
    const room = Math.min(view.width, next === null ? Infinity : xOf(view, next)) - x - 18;
    if (fits(context, session.how, room)) write(context, session.how, x + (wrong ? 15 : 7), middle + 0.5, {size: 11, fill: wrong ? look.bad : look.soft});
  }

  function lanes(canvas, view) {
    const context = prepared(canvas, view.width, view.laneHeight);
    const first = view.lanes.findIndex((lane) => lane.y + lane.height > view.scroll);
    for (let at = Math.max(first, 0); at < view.lanes.length; at++) {
      const lane = view.lanes[at], y = lane.y - view.scroll;
      if (y > view.laneHeight) break;
      if (lane.kind === "head") {
        continue;
      }
      if (lane.stripe) { context.fillStyle = look.stripe; context.fillRect(0, y, view.width, lane.height); }
      if (at === view.lane) { context.fillStyle = look["line-soft"]; context.fillRect(0, y, view.width, lane.height); }
    }
    grid(context, view, 0, view.laneHeight);
    for (let at = Math.max(first, 0); at < view.lanes.length; at++) {
      const lane = view.lanes[at], y = lane.y - view.scroll;
      if (y > view.laneHeight) break;
      const gap = lane.height > 19 ? 3 : 2;
      if (lane.kind === "member") memberLane(context, view, lane.member, y + gap, lane.height - 2 * gap);
      if (lane.kind === "row") partitionLane(context, view, lane.row, y + gap, lane.height - 2 * gap);
      if (lane.kind === "head") heading(context, view, lane, y);
      else label(context, view, lane, y, at === view.lane);
    }
    handovers(context, view, 0, view.laneHeight);
    line(context, xOf(view, view.cursor), 0, view.laneHeight, look.cursor, 1.5);
    // A shadow at the edge behind which there are more lanes.
    if (view.scroll > 1) shadow(context, view.width, 0, EDGE);
    if (view.scroll + view.laneHeight < view.extent - 1) shadow(context, view.width, view.laneHeight, -EDGE);
  }
  function shadow(context, width, y, depth) {
    const shade = context.createLinearGradient(0, y, 0, y + depth);
    shade.addColorStop(0, look.edge);
    shade.addColorStop(1, "transparent");
    context.fillStyle = shade;
    context.fillRect(0, Math.min(y, y + depth), width, Math.abs(depth));
  }

  function heading(context, view, lane, y) {
    context.fillStyle = look.raised;
    context.fillRect(0, y, view.width, lane.height);
    const used = write(context, lane.text, 8, y + lane.height / 2 + 0.5, {size: 12, weight: 600, room: view.width - 16});
    write(context, lane.beside, 16 + used, y + lane.height / 2 + 0.5, {fill: look.soft, room: view.width - used - 24});
  }
  function label(context, view, lane, y, chosen) {
    const middle = y + lane.height / 2 + 0.5, wide = view.gutter - 12;
    context.fillStyle = chosen ? look["line-soft"] : lane.stripe ? look.stripe : look.paper;
    context.fillRect(0, y, view.gutter - 1, lane.height);
    if (lane.found) { context.fillStyle = look.accent; context.fillRect(0, y, 3, lane.height); }
    if (lane.kind === "row") {
      // The numbers distinguish partitions of one topic, so the topic's name is shortened first.
      const numbers = lane.row.numbersText;
      context.font = "400 11.5px " + FONT;
      const kept = Math.min(context.measureText(numbers).width, wide * 0.6);
      const used = write(context, lane.row.topic, 8, middle, {room: wide - kept - 5, isName: true});
      write(context, numbers, 13 + used, middle, {room: wide - used - 5});
      return;
    }
    const {member} = lane;
    context.fillStyle = memberColour(member.number);
    context.fillRect(8, middle - 5, 9, 9);
    const used = write(context, member.name, 22, middle, {weight: 600, room: wide - 14});
    write(context, member.instance || member.client, 28 + used, middle, {fill: look.soft, room: wide - 22 - used, isName: true});
  }

  function line(context, x, from, to, style, width = 1) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x, from);
    context.lineTo(x, to);
    context.stroke();
    context.lineWidth = 1;
  }

  /* The background: squeezed times, and the beginnings of epochs where they are far enough apart. */
  function grid(context, view, from, to) {
    for (const [begin, end] of Scale.pieces()) {
      const a = Math.max(xOf(view, begin), view.gutter), b = Math.min(xOf(view, end), view.width);
      if (b > a) { context.fillStyle = look.quiet; context.fillRect(a, from, b - a, to - from); }
    }
    const first = Math.max(Model.newest(epochs, timeOf(view, view.gutter)), 0), last = Model.newest(epochs, timeOf(view, view.width));
    if ((last - first) * 12 > view.width) return;
    let before = -Infinity;
    for (const epoch of epochs.slice(first, last + 1)) {
      const x = xOf(view, epoch.at);
      if (x < view.gutter || x - before < 6) continue;
      line(context, Math.round(x) + 0.5, from, to, look.line);
      before = x;
    }
  }
  /* The foreground: a takeover by another node affects every lane. */
  function handovers(context, view, from, to) {
    context.setLineDash([3, 3]);
    for (const term of takeovers) {
      const x = xOf(view, term.at);
      if (x >= view.gutter && x <= view.width) line(context, x, from, to, look.takeover, 1.5);
    }
    context.setLineDash([]);
  }

  return {look: () => look, memberColour, learnColours, stripes, prepared, write, fits, line, grid, handovers, lanes, inner, xOf, timeOf, FONT};
})();
