/* Draws the part above the lanes: the strip of the whole period and the ruler with events and epochs; also the legend. */
const Ruler = (() => {
  const {isDark} = Frame;
  const {rows, epochs, findings, takeovers, starts, HAND, SIZE} = Model;
  const {memberColour, stripes, prepared, write, fits, line, grid, handovers, xOf, timeOf, FONT} = Draw;
  const TICKS_MAX = 200, GAPS_WITH_STEPS_MAX = 8;
  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5,
    72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 26784e5, 31536e6];
  let look = {};

  function diamond(context, x, y, size) {
    context.fillStyle = look.takeover;
    context.beginPath();
    context.moveTo(x, y - size); context.lineTo(x + size, y); context.lineTo(x, y + size); context.lineTo(x - size, y);
    context.fill();
  }
  function hollow(context, x, y, size) {
    context.strokeStyle = look.takeover;
    context.lineWidth = 1.5;
    context.strokeRect(x - size, y - size, 2 * size, 2 * size);
    context.lineWidth = 1;
  }
  const severityColour = (severity) => severity === "error" ? look.bad : severity === "warning" ? look.unsettled : look.soft;
  function triangle(context, x, y, severity) {
    context.fillStyle = severityColour(severity);
    context.beginPath();
    context.moveTo(x, y - 6); context.lineTo(x + 6.5, y + 5.5); context.lineTo(x - 6.5, y + 5.5);
    context.fill();
    context.fillStyle = look.paper;
    context.fillRect(x - 0.8, y - 2.2, 1.6, 4);
    context.fillRect(x - 0.8, y + 2.9, 1.6, 1.5);
  }

  const TICK_Y = 12, MARK_Y = 34, EPOCH_Y = 48, EPOCH_HEIGHT = 22;
  function ruler(canvas, view, height) {
    look = Draw.look();
    const context = prepared(canvas, view.width, height);
    context.save();
    context.beginPath();
    context.rect(view.gutter, 0, view.width - view.gutter, height);
    context.clip();
    grid(context, view, 24, height);
    handovers(context, view, 40, height);
    ticks(context, view);
    marks(context, view);
    epochLane(context, view);
    context.restore();
    const middle = timeOf(view, (view.gutter + view.width) / 2);
    write(context, Frame.day(Model.wall(middle)).slice(view.gutter < 120 ? 5 : 0) + " " + Frame.offsetWords(Model.wall(middle)), 6, TICK_Y, {size: 10.5, fill: look.soft, room: view.gutter - 8});
    write(context, "events", 8, MARK_Y, {size: 11, fill: look.soft, room: view.gutter - 12});
    write(context, Frame.data.noun, 8, EPOCH_Y + EPOCH_HEIGHT / 2, {size: 11, fill: look.soft, room: view.gutter - 12});
    handle(context, view, height);
  }

  function ticks(context, view) {
    const perPixel = (view.to - view.from) / (view.width - view.gutter);
    const room = perPixel * 90 < 1000 ? 96 : 76;
    const step = STEPS.find((one) => one / perPixel >= room) || STEPS[STEPS.length - 1];
    const say = (at) => {
      const clock = Frame.clock(Model.wall(at));
      if (step >= 864e5) return Frame.day(Model.wall(at)).slice(5);
      return step < 1000 ? clock : step < 6e4 ? clock.slice(0, 8) : clock.slice(0, 5);
    };
    const shift = (Model.data.from + Frame.offsetAt(Model.data.from) * 60000) % step;
    const begin = timeOf(view, view.gutter), end = timeOf(view, view.width);
    const bubble = bubbleOf(context, view);
    const free = (x, half) => x + half < bubble.left - 4 || x - half > bubble.left + bubble.wide + 4;
    const gaps = Scale.pieces().filter(([a, b]) => b > begin && a < end);
    // Between many squeezed pieces there are no round times, so the time at each fixed position is shown.
    if (gaps.length > GAPS_WITH_STEPS_MAX) {
      const words = (at) => view.to - view.from > 864e5 ? Frame.day(Model.wall(at)).slice(5) + " " + Frame.clock(Model.wall(at)).slice(0, 5) : Frame.clock(Model.wall(at)).slice(0, 8);
      for (let x = view.gutter + 40; x < view.width - 40; x += 110) {
        line(context, x, 20, 25, look.soft);
        if (free(x, 34)) write(context, words(timeOf(view, x)), x, TICK_Y, {size: 11, fill: look.soft, align: "center"});
      }
      return;
    }
    let drawn = 0, last = -Infinity, from = begin;
    // Squeezed pieces are skipped, since thousands of ticks would fall on a few pixels.
    for (const [gapFrom, gapTo] of [...gaps, [end, end]]) {
      for (let at = Math.ceil((from + shift) / step) * step - shift; at <= Math.min(gapFrom, end) && drawn < TICKS_MAX; at += step) {
        const x = xOf(view, at);
        line(context, x, 20, 25, look.soft);
        if (x - last >= room - 12 && x < view.width - 20 && free(x, step < 1000 ? 38 : 26)) { write(context, say(at), x, TICK_Y, {size: 11, fill: look.soft, align: "center"}); last = x; }
        drawn++;
      }
      if (gapTo > gapFrom) {
        const a = xOf(view, gapFrom), b = xOf(view, gapTo), said = Frame.duration(gapTo - gapFrom);
        const words = [said + " quiet", said].find((text) => fits(context, text, b - a - 6));
        if (words && a >= last + 30 && free((a + b) / 2, (b - a) / 2)) { write(context, words, (a + b) / 2, TICK_Y, {size: 11, fill: look.soft, align: "center"}); last = Math.max(last, b - 10); }
      }
      from = gapTo;
    }
  }

  function marks(context, view) {
    const shown = [
      ...takeovers.map((term) => ({at: term.at, term})),
      ...starts.map((start) => ({at: start.at, start})),
      ...findings.map((finding) => ({at: Math.max(finding.at, 0), finding})),
      ...Model.data.gone.map((gone) => ({at: gone.at, gone})),
      ...Model.data.faults.map((fault) => ({at: fault.at, fault})),
    ].sort((a, b) => a.at - b.at);
    let until = -Infinity;
    shown.forEach((mark, number) => {
      const x = xOf(view, mark.at);
      if (mark.finding && mark.finding.end > mark.at) {
        context.fillStyle = severityColour(mark.finding.severity);
        context.fillRect(x, MARK_Y + 8, xOf(view, mark.finding.end) - x, 2);
      }
      if (x < view.gutter - 8 || x > view.width + 8 || x < until - 3) return;
      if (mark.term) diamond(context, x, MARK_Y, 6);
      else if (mark.start) hollow(context, x, MARK_Y, 5);
      else if (mark.finding) triangle(context, x, MARK_Y, mark.finding.severity);
      else line(context, x, MARK_Y - 7, MARK_Y + 7, look.bad, mark.fault ? 1 : 3);
      const next = number + 1 < shown.length ? xOf(view, shown[number + 1].at) : view.width;
      const words = mark.term ? "node " + mark.term.node + " took over" : mark.start ? "node " + mark.start.node + " started" : mark.finding ? mark.finding.kind.toLowerCase().replaceAll("_", " ") : mark.fault ? "fault" : "group gone";
      until = x + 10;
      if (fits(context, words, next - x - 22)) until = x + 10 + write(context, words, x + 10, MARK_Y + 0.5, {size: 11});
    });
  }

  /* Where epochs are narrower than pixels, each column shows the share of time in which the group was not stable. */
  function crowdedEpochs(context, view) {
    const count = Math.floor(view.width - view.gutter);
    const shares = Model.restlessShares(Array.from({length: count + 1}, (_, x) => timeOf(view, view.gutter + x)));
    const from = Math.max(xOf(view, epochs[0].at), view.gutter), to = Math.min(xOf(view, Model.endOf(epochs[epochs.length - 1])), view.width);
    context.fillStyle = look.settled;
    context.fillRect(from, EPOCH_Y, Math.max(to - from, 0), EPOCH_HEIGHT);
    context.fillStyle = look.unsettled;
    shares.forEach((share, x) => {
      const high = share > 0 ? Math.max(Math.round(EPOCH_HEIGHT * Math.min(share, 1)), 2) : 0;
      context.fillRect(view.gutter + x, EPOCH_Y + EPOCH_HEIGHT - high, 1, high);
    });
  }

  function epochLane(context, view) {
    let before = view.gutter - 1;
    const begin = timeOf(view, view.gutter);
    const seen = Model.newest(epochs, timeOf(view, view.width)) - Model.newest(epochs, begin);
    if (seen * 3 > view.width - view.gutter) { crowdedEpochs(context, view); return; }
    for (let number = Math.max(Model.newest(epochs, begin), 0); number < epochs.length; number++) {
      const epoch = epochs[number], from = xOf(view, epoch.at), to = xOf(view, Model.endOf(epoch));
      if (from > view.width) break;
      if (to - before < 0.5) continue;
      const settled = xOf(view, Model.settledBy(epoch)), left = Math.max(from, view.gutter), right = Math.min(to, view.width);
      context.fillStyle = epoch.settled !== null ? look.settled : look.quiet;
      context.fillRect(left, EPOCH_Y, Math.max(right - left, 0.5), EPOCH_HEIGHT);
      context.fillStyle = epoch.overtaken !== null ? stripes(context, look.unsettled, look.paper, "rising") : look.unsettled;
      context.fillRect(left, EPOCH_Y, Math.max(Math.min(settled, right) - left, epoch.at === Model.settledBy(epoch) ? 0 : 1), EPOCH_HEIGHT);
      if (to - from > 4) line(context, Math.round(from) + 0.5, EPOCH_Y, EPOCH_Y + EPOCH_HEIGHT, look.soft);
      const shortest = String(epoch.epoch);
      const said = epoch.brief && fits(context, shortest + "  " + epoch.brief, right - left - 12) ? shortest + "  " + epoch.brief : shortest;
      if (fits(context, said, right - left - 8)) {
        context.fillStyle = look.paper;
        const wide = context.measureText(said).width;
        if (settled > left + 3) { context.globalAlpha = 0.75; context.fillRect(left + 2, EPOCH_Y + 3, wide + 6, EPOCH_HEIGHT - 6); context.globalAlpha = 1; }
        write(context, said, left + 5, EPOCH_Y + EPOCH_HEIGHT / 2 + 0.5, {size: 11, weight: said === shortest ? 600 : 500});
      }
      before = to;
    }
  }

  /* The time at the cursor is shown above it; other times make room. */
  function bubbleOf(context, view) {
    const x = xOf(view, view.cursor), said = Frame.clock(Model.wall(view.cursor));
    context.font = "600 11.5px " + FONT;
    const wide = context.measureText(said).width + 12;
    if (x < view.gutter - 1 || x > view.width + 1) return {x, said, wide: 0, left: -1000};
    return {x, said, wide, left: Math.min(Math.max(x - wide / 2, view.gutter), view.width - wide)};
  }
  function handle(context, view, height) {
    const {x, said, wide, left} = bubbleOf(context, view);
    if (!wide) return;
    line(context, x, 20, height, look.cursor, 1.5);
    context.fillStyle = look.cursor;
    context.beginPath();
    context.roundRect(left, 2, wide, 20, 4);
    context.fill();
    context.beginPath();
    context.moveTo(x - 5, 21); context.lineTo(x + 5, 21); context.lineTo(x, 27);
    context.fill();
    write(context, said, left + 6, TICK_Y + 0.5, {weight: 600, fill: look["on-accent"]});
  }

  /* The strip of the whole period: not stable (amber), unowned (red, from below), epochs, marks, the window. */
  let summed = null;
  function overview(canvas, view, width, height) {
    look = Draw.look();
    const context = prepared(canvas, width, height);
    const at = (time) => Scale.place(time) / Scale.total() * width;
    const count = Math.max(1, Math.floor(width));
    const key = count + " " + Scale.isSqueezed();
    if (!summed || summed.key !== key)
      summed = {key, ...Model.slices(Array.from({length: count + 1}, (_, x) => Scale.time(x / count * Scale.total())))};
    const top = 18, tall = height - top, most = Math.max(1, rows.reduce((sum, row) => sum + row.partitions.length, 0));
    for (const [from, to] of Scale.pieces()) { context.fillStyle = look.quiet; context.fillRect(at(from), top, at(to) - at(from), tall); }
    for (let slice = 0; slice < count; slice++) {
      // At least a tenth of the height, so that short periods are visible.
      for (const [share, style] of [[summed.restless[slice], look.unsettled], [Math.sqrt(summed.unowned[slice] / most) * 0.9, look.unowned]]) {
        if (!share) continue;
        const high = Math.ceil(tall * Math.min(Math.max(share, 0.1), 1));
        context.fillStyle = style;
        context.fillRect(slice, height - high, 1, high);
      }
    }
    if (epochs.length * 6 < width) for (const epoch of epochs) line(context, at(epoch.at), top, top + 6, look.soft);
    for (const term of takeovers) { context.setLineDash([3, 3]); line(context, at(term.at), 4, height, look.takeover, 1.5); context.setLineDash([]); diamond(context, at(term.at), 9, 5); }
    for (const finding of findings) triangle(context, Math.min(Math.max(at(finding.at), 7), width - 7), 9, finding.severity);
    const from = view.from / Scale.total() * width, to = view.to / Scale.total() * width;
    context.fillStyle = look.ink;
    context.globalAlpha = isDark() ? 0.22 : 0.12;
    context.fillRect(0, 0, from, height);
    context.fillRect(to, 0, width - to, height);
    context.globalAlpha = 1;
    context.strokeStyle = look.accent;
    context.lineWidth = 2;
    context.strokeRect(from + 1, 1, Math.max(to - from - 2, 2), height - 2);
    context.lineWidth = 1;
    line(context, at(view.cursor), 0, height, look.cursor, 2);
  }

  /* The legend: each sign as it appears in the lanes. */
  function legend(place) {
    look = Draw.look();
    const sign = (words, paint) => {
      const canvas = document.createElement("canvas"), context = prepared(canvas, 26, 14);
      paint(context);
      return Frame.element("span", {}, canvas, words);
    };
    const own = memberColour(0), block = (style) => (context) => { context.fillStyle = typeof style === "function" ? style(context) : style; context.fillRect(0, 0, 26, 14); };
    const children = [
      sign("a member's, in its colour", block(own)),
      sign("giving up", block((context) => stripes(context, own, look.paper, "rising"))),
      sign("waiting", block((context) => stripes(context, own, look.paper, "falling"))),
      sign("not at the " + Frame.data.noun + " yet", (context) => { context.globalAlpha = 0.4; block(own)(context); }),
      sign("nobody's", (context) => { context.fillStyle = look.unowned; context.fillRect(0, 3, 26, 8); }),
      sign("away", (context) => { context.strokeStyle = look.soft; context.setLineDash([5, 4]); context.strokeRect(0.5, 2.5, 25, 9); }),
      sign("not stable", block(look.unsettled)),
      sign("overtaken", block((context) => stripes(context, look.unsettled, look.paper, "rising"))),
      sign("stable", block(look.settled)),
    ];
    if (takeovers.length) children.push(sign("another node took over", (context) => diamond(context, 13, 7, 6)));
    if (starts.length) children.push(sign("node started", (context) => hollow(context, 13, 7, 5)));
    if (findings.length) children.push(sign("finding", (context) => triangle(context, 13, 7, "warning")));
    if (rows.some((row) => row.segments.some((value, at) => at % SIZE === 2 && value === HAND.SEVERAL)))
      children.push(sign("several, too fast to show", block((context) => stripes(context, look.several, look.paper, "crossed"))));
    if (Scale.isSqueezed()) children.push(sign("quiet time, squeezed", block(look.quiet)));
    place.replaceChildren(...children);
  }

  return {ruler, overview, legend, markY: MARK_Y, epochY: EPOCH_Y};
})();
