/* Draws the part above the lanes: the strip of the whole period and the ruler with events and epochs; also the legend. */
const Ruler = (() => {
  const {isDark} = Frame;
  const {rows, epochs, findings, takeovers, starts, HAND, SIZE} = Model;
  const {memberColour, stripes, prepared, write, fits, line, grid, handovers, inner, xOf, timeOf, FONT} = Draw;
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
    ticks(context, view, TICK_Y, [20, 25], bubbleOf(context, view));
    marks(context, view);
    epochLane(context, view);
    context.restore();
    const middle = timeOf(view, (view.gutter + view.width) / 2);
    write(context, Frame.day(Model.wall(middle)).slice(view.gutter < 120 ? 5 : 0) + " " + Frame.offsetWords(Model.wall(middle)), 6, TICK_Y, {size: 10.5, fill: look.soft, room: view.gutter - 8});
    write(context, "events", 8, MARK_Y, {size: 11, fill: look.soft, room: view.gutter - 12});
    write(context, Frame.data.noun, 8, EPOCH_Y + EPOCH_HEIGHT / 2, {size: 11, fill: look.soft, room: view.gutter - 12});
    handle(context, view, height);
  }

  /* The times along the visible part: round ones, and how long a squeezed piece is. The first of each day has its date. */
  function ticks(context, view, y, [markFrom, markTo], bubble) {
    const begin = timeOf(view, view.gutter), end = timeOf(view, view.width), day = (at) => Frame.day(Model.wall(at));
    const isDated = day(begin) !== day(end);
    const perPixel = (view.to - view.from) / inner(view);
    const room = perPixel * 90 < 1000 || isDated ? 96 : 76;
    const step = STEPS.find((one) => one / perPixel >= room) || STEPS[STEPS.length - 1];
    let dated = "";
    const say = (at) => {
      const clock = Frame.clock(Model.wall(at));
      if (step >= 864e5) return day(at).slice(5);
      const date = isDated && day(at) !== dated ? day(at).slice(5) + " " : "";
      dated = day(at);
      return date + (step < 1000 ? clock : step < 6e4 ? clock.slice(0, 8) : clock.slice(0, 5));
    };
    const shift = (Model.data.from + Frame.offsetAt(Model.data.from) * 60000) % step;
    const free = (x, half) => x + half < bubble.left - 4 || x - half > bubble.left + bubble.wide + 4;
    const gaps = Scale.pieces().filter(([a, b]) => b > begin && a < end);
    // Between many squeezed pieces there are no round times, so the time at each fixed position is shown.
    if (gaps.length > GAPS_WITH_STEPS_MAX) {
      const words = (at) => isDated ? day(at).slice(5) + " " + Frame.clock(Model.wall(at)).slice(0, 5) : Frame.clock(Model.wall(at)).slice(0, 8);
      for (let x = view.gutter + 40; x < view.width - 40; x += 110) {
        line(context, x, markFrom, markTo, look.soft);
        if (free(x, 34)) write(context, words(timeOf(view, x)), x, y, {size: 11, fill: look.soft, align: "center"});
      }
      return;
    }
    let drawn = 0, last = -Infinity, from = begin;
    // Squeezed pieces are skipped, since thousands of ticks would fall on a few pixels.
    for (const [gapFrom, gapTo] of [...gaps, [end, end]]) {
      for (let at = Math.ceil((from + shift) / step) * step - shift; at <= Math.min(gapFrom, end) && drawn < TICKS_MAX; at += step) {
        const x = xOf(view, at), half = isDated || step < 1000 ? 38 : 26;
        line(context, x, markFrom, markTo, look.soft);
        if (x - last >= room - 12 && x - half > view.gutter - 6 && x + half < view.width + 6 && free(x, half)) {
          write(context, say(at), x, y, {size: 11, fill: look.soft, align: "center"});
          last = x;
        }
        drawn++;
      }
      if (gapTo > gapFrom) {
        // Without the word a length could be taken for a time.
        const a = xOf(view, gapFrom), b = xOf(view, gapTo), words = Frame.duration(gapTo - gapFrom) + " quiet";
        if (fits(context, words, b - a - 6) && a >= last + 30 && free((a + b) / 2, (b - a) / 2)) { write(context, words, (a + b) / 2, y, {size: 11, fill: look.soft, align: "center"}); last = Math.max(last, b - 10); }
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
      const begun = Math.max(xOf(view, epoch.began), view.gutter);
      if (begun < left) context.fillRect(begun, EPOCH_Y, left - begun, EPOCH_HEIGHT);  // a classic group's join phase
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
    const wall = Model.wall(view.cursor), days = Frame.day(Model.wall(0)) !== Frame.day(Model.wall(Model.span));
    const x = xOf(view, view.cursor), said = (days ? Frame.day(wall).slice(5) + " " : "") + Frame.clock(wall);
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

  /* The strip of the whole period, on the axis of the lanes: not stable (amber), unowned (red, from below), epochs, marks,
     the visible part. */
  let summed = null;
  const STRIP_TOP = 18, STRIP_FOOT = 14, NO_BUBBLE = {left: -1000, wide: 0};
  function overview(canvas, view, height) {
    look = Draw.look();
    const context = prepared(canvas, view.width, height), whole = {...view, from: 0, to: Scale.total()};
    const at = (time) => xOf(whole, time), count = Math.max(1, Math.floor(inner(view))), left = view.gutter, right = left + count;
    const key = count + " " + Scale.isSqueezed();
    if (!summed || summed.key !== key)
      summed = {key, ...Model.slices(Array.from({length: count + 1}, (_, x) => Scale.time(x / count * Scale.total())))};
    const bottom = height - STRIP_FOOT, tall = bottom - STRIP_TOP, most = Math.max(1, rows.reduce((sum, row) => sum + row.partitions.length, 0));
    for (const [from, to] of Scale.pieces()) { context.fillStyle = look.quiet; context.fillRect(at(from), STRIP_TOP, at(to) - at(from), tall); }
    for (let slice = 0; slice < count; slice++) {
      // At least a tenth of the height, so that short periods are visible.
      for (const [share, style] of [[summed.restless[slice], look.unsettled], [Math.sqrt(summed.unowned[slice] / most) * 0.9, look.unowned]]) {
        if (!share) continue;
        const high = Math.ceil(tall * Math.min(Math.max(share, 0.1), 1));
        context.fillStyle = style;
        context.fillRect(left + slice, bottom - high, 1, high);
      }
    }
    if (epochs.length * 6 < count) for (const epoch of epochs) if (epoch.at >= 0) line(context, at(epoch.at), STRIP_TOP, STRIP_TOP + 6, look.soft);
    for (const term of takeovers) { context.setLineDash([3, 3]); line(context, at(term.at), 4, bottom, look.takeover, 1.5); context.setLineDash([]); diamond(context, at(term.at), 9, 5); }
    for (const finding of findings) triangle(context, Math.min(Math.max(at(finding.at), left + 7), right - 7), 9, finding.severity);
    const from = left + view.from / Scale.total() * count, to = left + view.to / Scale.total() * count;
    context.fillStyle = look.ink;
    context.globalAlpha = isDark() ? 0.22 : 0.12;
    context.fillRect(left, 0, from - left, bottom);
    context.fillRect(to, 0, right - to, bottom);
    context.globalAlpha = 1;
    context.strokeStyle = look.accent;
    context.lineWidth = 2;
    context.strokeRect(from + 1, 1, Math.max(to - from - 2, 2), bottom - 2);
    context.lineWidth = 1;
    line(context, at(view.cursor), 0, bottom, look.cursor, 2);
    ticks(context, whole, height - 6, [bottom, bottom + 3], NO_BUBBLE);
    write(context, "whole time", 8, STRIP_TOP + tall / 2, {size: 11, fill: look.soft, room: view.gutter - 12});
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
