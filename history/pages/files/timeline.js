/* Interaction of the timeline: the visible part, the cursor, keys, pointers, search. Everything drawn is derived from
   `view`; code that changes it calls `draw`, which draws once per frame. */
(() => {
  const {byId} = Frame;
  const {members, rows, epochs, findings, takeovers, starts, span} = Model;
  const chart = byId("chart"), region = byId("cursor"), scroller = byId("scroller"), tip = byId("tip");
  const LAST = span - 1;  // the page ends behind the last moment, so that what happened then is on it
  const RULER_HEIGHT = 74, OVERVIEW_HEIGHT = 72, PLACES_MIN = 5, HEAD_HEIGHT = 24;
  const CROWDED = 40;  // from so many lanes on they are drawn lower
  for (const one of document.querySelectorAll("[data-noun]")) one.textContent = Frame.data.noun;
  const OPENED_LENGTH_MIN = 20000, OPENED_SHARE = 8;  // ms around a finding; from so much shorter than the whole on, it is zoomed to
  const VISIBLE_SHARE = 0.03;  // an epoch that a jump lands on stays this far from the edge

  let hits = new Set();  // what the search means
  const view = {
    from: 0, to: Scale.total(), cursor: 0, lane: -1, chosen: null,
    lanes: [], extent: 0, width: 0, gutter: 0, laneHeight: 0, scroll: 0,
    draw: () => draw(),
    go: (at) => { moveTo(at); bringIntoSight(at); region.focus({preventScroll: true}); },
    choose: (number) => { view.chosen = view.chosen === number ? null : number; draw(); },
    nextStart: (session) => nextStarts.get(session),
  };
  const nextStarts = new Map();
  for (const member of members) member.sessions.forEach((session, at) => nextStarts.set(session, at + 1 < member.sessions.length ? member.sessions[at + 1].at : null));

  /* The lanes to show: all, those that change in the visible part, or those of the selected member. */
  let filtered = false, laid = "";
  function layLanes() {
    const key = filtered ? [view.from, view.to, view.chosen, Scale.isSqueezed()].join() : "all";
    if (key === laid) return;
    laid = key;
    const begin = Scale.time(view.from), end = Scale.time(view.to), chosen = view.chosen;
    const shownMembers = !filtered ? members : members.filter((member) => chosen === null ? Model.changes(member.segments, begin, end, true) : member.number === chosen);
    const shownRows = !filtered ? rows : rows.filter((row) => chosen === null ? Model.changes(row.segments, begin, end, false) : Model.holds(row.segments, chosen, begin, end));
    const kept = view.lanes[view.lane];
    lay(shownMembers, shownRows);
    for (const lane of view.lanes) lane.found = hits.has(lane.member || lane.row);
    view.lane = kept ? view.lanes.findIndex((lane) => lane.kind !== "head" && lane.member === kept.member && lane.row === kept.row) : -1;
    view.lanes.forEach((lane, at) => { lane.stripe = at % 2 === 1; });
  }
  function lay(members, rows) {
    const lower = members.length + rows.length > CROWDED;
    const memberHeight = lower ? 20 : 26, rowHeight = lower ? 17 : 22;
    let y = 0;
    const lanes = [], add = (lane, height) => { lanes.push({...lane, y, height}); y += height; };
    const partitions = rows.reduce((sum, row) => sum + row.partitions.length, 0);
    const alike = rows.length < partitions ? "by owner; those with the same history share a lane" : "by owner";
    const every = Model.rows.reduce((sum, row) => sum + row.partitions.length, 0);
    const said = (shown, all, noun) => (shown < all ? shown.toLocaleString("en-US") + " of " : "") + Frame.count(all, noun);
    const atOnce = Frame.data.atOnce < Model.members.length ? "at most " + Frame.data.atOnce + " at once; " : "";
    add({kind: "head", text: said(members.length, Model.members.length, "member"), beside: atOnce + "with the number of partitions held"}, HEAD_HEIGHT);
    for (const member of members) add({kind: "member", member}, memberHeight);
    add({kind: "head", text: said(partitions, every, "partition"), beside: alike}, HEAD_HEIGHT);
    for (const row of rows) add({kind: "row", row}, rowHeight);
    view.lanes = lanes;
    view.extent = y;
  }

  function measure() {
    view.width = scroller.clientWidth;
    view.gutter = view.width < 560 ? 108 : view.width < 900 ? 150 : 190;
    byId("extent").style.height = view.extent + "px";
    view.laneHeight = Math.max(1, Math.min(view.extent, scroller.clientHeight));
    view.scroll = scroller.scrollTop;
  }

  let asked = false;
  function draw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; drawNow(); });
  }
  function drawNow() {
    layLanes();
    measure();
    Ruler.ruler(byId("ruler"), view, RULER_HEIGHT);
    Draw.lanes(byId("lanes"), view);
    Ruler.overview(byId("overview"), view, OVERVIEW_HEIGHT);
    Panel.show(byId("panel"), view);
    const {epoch, state} = Model.stateAt(view.cursor);
    region.setAttribute("aria-valuenow", String(Math.round(view.cursor)));
    region.setAttribute("aria-valuetext", Frame.clock(Model.wall(view.cursor)) + (epoch ? ", " + epoch.noun + " " + epoch.epoch : "") + ", " + (state || "no group yet"));
  }

  /* The cursor and the window. */
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  function moveTo(at) { view.cursor = clamp(Math.round(at), 0, LAST); draw(); }
  function setWindow(from, to) {
    const total = Scale.total(), size = clamp(to - from, Math.min(PLACES_MIN, total), total);
    view.from = clamp(from, 0, total - size);
    view.to = view.from + size;
    draw();
  }
  function bringIntoSight(at) {
    const place = Scale.place(at), size = view.to - view.from, edge = size * VISIBLE_SHARE;
    if (place < view.from + edge || place > view.to - edge) setWindow(place - size / 2, place + size / 2);
  }
  function zoom(factor, around = Scale.place(view.cursor)) {
    const kept = clamp(around, view.from, view.to), size = (view.to - view.from) * factor, share = (kept - view.from) / (view.to - view.from);
    setWindow(kept - size * share, kept + size * (1 - share));
  }
  const step = (share) => { moveTo(Scale.time(Scale.place(view.cursor) + (view.to - view.from) * share)); bringIntoSight(view.cursor); };

  /* The next event of a list after the cursor, or the previous one before it. */
  function nextOf(events, direction) {
    const at = view.cursor;
    const found = direction > 0 ? events.find((event) => event.at > at) : events.findLast((event) => event.at < at);
    if (found) { moveTo(found.at); bringIntoSight(Math.max(found.at, 0)); }
    return found;
  }
  const inOrder = [...findings].sort((a, b) => a.at - b.at);
  function zoomToEpoch() {
    const {epoch} = Model.stateAt(view.cursor);
    if (!epoch) return;
    // The interesting part of an epoch is how it became stable; the quiet time after that would hide it.
    const from = Scale.place(Math.max(epoch.at, 0)), settled = Scale.place(Model.settledBy(epoch)), end = Scale.place(Model.endOf(epoch));
    const size = Math.max(Math.min(end - from, (settled - from) * 1.6), PLACES_MIN * 4);
    setWindow(from - size * 0.1, from + size * 1.1);
  }
  function filter() {
    filtered = !filtered;
    document.querySelector('[data-do="filter"]').setAttribute("aria-pressed", String(filtered));
    draw();
  }
  function squeeze() {
    const from = Scale.time(view.from), to = Scale.time(view.to);
    Scale.squeeze(!Scale.isSqueezed());
    showSqueezed();
    Ruler.legend(byId("legend"));
    setWindow(Scale.place(from), Scale.place(to));
  }
  function showSqueezed() {
    const button = document.querySelector('[data-do="squeeze"]');
    button.setAttribute("aria-pressed", String(Scale.isSqueezed()));
    button.disabled = !Scale.canSqueeze;
  }

  /* Selecting lanes with the keyboard. */
  function chooseLane(direction) {
    let at = view.lane;
    do at += direction; while (view.lanes[at] && view.lanes[at].kind === "head");
    if (!view.lanes[at]) return;
    showLane(at);
    const words = Panel.laneWords(view.lanes[at], view.cursor);
    byId("said").textContent = words;
    drawNow();
    showTip(words, Draw.xOf(view, view.cursor), RULER_HEIGHT + view.lanes[at].y - view.scroll + view.lanes[at].height);
  }
  function showLane(at) {
    view.lane = at;
    measure();
    const lane = view.lanes[at];
    if (lane.y < scroller.scrollTop) scroller.scrollTop = lane.y;
    if (lane.y + lane.height > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = lane.y + lane.height - scroller.clientHeight;
    draw();
  }

  const actions = {
    previousEpoch: () => nextOf(epochs, -1), nextEpoch: () => nextOf(epochs, 1),
    zoomIn: () => zoom(0.5), zoomOut: () => zoom(2), showAll: () => setWindow(0, Scale.total()), zoomToEpoch, squeeze, filter,
  };
  const keys = {
    ArrowLeft: (event) => step(event.shiftKey ? -0.1 : -0.01), ArrowRight: (event) => step(event.shiftKey ? 0.1 : 0.01),
    ArrowUp: () => chooseLane(-1), ArrowDown: () => chooseLane(1),
    Home: () => { moveTo(0); bringIntoSight(0); }, End: () => { moveTo(LAST); bringIntoSight(LAST); },
    n: actions.nextEpoch, p: actions.previousEpoch, t: () => nextOf(takeovers, 1) || goFirst(takeovers), f: () => nextOf(inOrder, 1) || goFirst(inOrder),
    "+": actions.zoomIn, "=": actions.zoomIn, "-": actions.zoomOut, "0": actions.showAll, z: zoomToEpoch, q: squeeze, c: filter,
    "/": () => { byId("find").focus(); byId("find").select(); },
    Enter: () => { const lane = view.lanes[view.lane]; if (lane && lane.kind === "member") view.choose(lane.member.number); },
    Escape: letGo,
  };
  function goFirst(events) { if (events.length) { moveTo(events[0].at); bringIntoSight(view.cursor); } }
  function letGo() {
    view.chosen = null; view.lane = -1; byId("find").value = ""; byId("found").textContent = "";
    hits = new Set();
    for (const lane of view.lanes) lane.found = false;
    hideTip(); draw(); region.focus({preventScroll: true});
  }
  // Letters work unless another element takes them; arrows only while the cursor has the focus, since they scroll the page.
  const EVERYWHERE = new Set(["n", "p", "t", "f", "+", "=", "-", "0", "z", "q", "c", "/", "Escape"]);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inside = event.target === region, writes = event.target instanceof HTMLInputElement;
    if (writes && event.key !== "Escape") return;
    if (!keys[event.key] || !(inside || EVERYWHERE.has(event.key))) return;
    event.preventDefault();
    if (!["ArrowUp", "ArrowDown"].includes(event.key)) hideTip();
    keys[event.key](event);
  });
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => actions[button.dataset.do]());

  /* Search: every matching lane gets a mark; Enter moves through them. */
  let hit = -1;
  function search() {
    const wanted = Model.matches(byId("find").value);
    hits = new Set([...wanted.members, ...wanted.rows]);
    for (const lane of view.lanes) lane.found = hits.has(lane.member || lane.row);
    hit = -1;
    byId("found").textContent = byId("find").value.trim() && !hits.size ? "nothing found" : "";
    if (hits.size) nextHit(); else { view.chosen = null; draw(); }
  }
  function nextHit() {
    if (!hits.size) return;
    hit = (hit + 1) % hits.size;
    const meant = [...hits][hit], isMember = members.includes(meant);
    view.chosen = isMember ? meant.number : null;
    layLanes();
    byId("found").textContent = "lane " + (hit + 1) + " of " + hits.size;
    const at = view.lanes.findIndex((lane) => (lane.member || lane.row) === meant);
    if (at >= 0) showLane(at);
    byId("said").textContent = Panel.laneWords({kind: isMember ? "member" : "row", member: meant, row: meant}, view.cursor);
  }
  byId("find").addEventListener("input", search);
  byId("find").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); nextHit(); } });

  /* Tips. */
  function showTip(words, x, y) {
    tip.textContent = words;
    tip.hidden = false;
    const box = region.getBoundingClientRect(), outer = chart.getBoundingClientRect();
    const left = box.left - outer.left + x + 14, top = box.top - outer.top + y + 14;
    tip.style.left = Math.max(4, Math.min(left, outer.width - tip.offsetWidth - 6)) + "px";
    const below = box.top + y + 14 + tip.offsetHeight < innerHeight;
    tip.style.top = (below ? top : top - tip.offsetHeight - 28) + "px";
  }
  function hideTip() { tip.hidden = true; }
  const laneAt = (y) => view.lanes.findIndex((lane) => y >= lane.y && y < lane.y + lane.height);
  function hover(event, canvas) {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let words = "";
    if (canvas.id === "lanes") {
      const lane = view.lanes[laneAt(y + view.scroll)];
      if (lane && lane.kind !== "head") words = Panel.laneWords(lane, x < view.gutter ? view.cursor : Draw.timeOf(view, x));
    } else if (x >= view.gutter) words = rulerWords(x, y);
    if (words) showTip(words, x, y + (canvas.id === "lanes" ? RULER_HEIGHT : 0));
    else hideTip();
  }
  function rulerWords(x, y) {
    const near = (event) => Math.abs(Draw.xOf(view, Math.max(event.at, 0)) - x) < 9;
    if (y < Ruler.epochY && y > Ruler.markY - 12) {
      const said = [...[...takeovers, ...starts].filter(near).map(Panel.termWords), ...findings.filter(near).map(Panel.findingWords)];
      return said.slice(0, 3).join("\n\n");
    }
    if (y < Ruler.epochY) return "";
    const {epoch} = Model.stateAt(Draw.timeOf(view, x));
    return epoch ? Panel.epochWords(epoch) : "";
  }

  /* Pointers: the cursor in ruler and lanes, the window in the strip. */
  function scrubbed(canvas) {
    let down = false;
    const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      region.focus({preventScroll: true});
      if (place(event) < view.gutter) {
        const lane = canvas.id === "lanes" && view.lanes[laneAt(event.clientY - canvas.getBoundingClientRect().top + view.scroll)];
        if (lane && lane.kind === "member") view.choose(lane.member.number);
        return;
      }
      down = true;
      canvas.setPointerCapture(event.pointerId);
      moveTo(Draw.timeOf(view, place(event)));
    });
    canvas.addEventListener("pointermove", (event) => {
      if (down) moveTo(Draw.timeOf(view, clamp(place(event), view.gutter, view.width)));
      if (event.pointerType === "mouse") hover(event, canvas);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { down = false; });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("wheel", (event) => {
      const size = view.to - view.from;
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoom(Math.exp(clamp(event.deltaY, -60, 60) / 120), Scale.place(Draw.timeOf(view, Math.max(place(event), view.gutter))));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        const by = size * (event.deltaX || event.deltaY) / 800;
        setWindow(view.from + by, view.from + by + size);
      }
    }, {passive: false});
  }
  scrubbed(byId("ruler"));
  scrubbed(byId("lanes"));

  const strip = byId("overview");
  let held = null;
  const placeIn = (event) => clamp((event.clientX - strip.getBoundingClientRect().left - view.gutter) / Draw.inner(view), 0, 1) * Scale.total();
  strip.addEventListener("pointerdown", (event) => {
    const place = placeIn(event), size = view.to - view.from;
    if (place < view.from || place > view.to) setWindow(place - size / 2, place + size / 2);
    held = {place, from: view.from};
    if (size >= Scale.total()) moveTo(Scale.time(place));
    strip.setPointerCapture(event.pointerId);
  });
  strip.addEventListener("pointermove", (event) => {
    if (!held) return;
    const place = placeIn(event), size = view.to - view.from;
    if (size >= Scale.total()) moveTo(Scale.time(place));
    else setWindow(held.from + place - held.place, held.from + place - held.place + size);
  });
  for (const name of ["pointerup", "pointercancel"]) strip.addEventListener(name, () => { held = null; });

  /* The initial moment: where the gravest finding (`opens`) is at its worst, or the last epoch; `#epoch=17` and `#at=…`
     (epoch ms) override it. */
  function openPage() {
    const said = new URLSearchParams(location.hash.slice(1)), {opens} = Model.data;
    const named = epochs.find((epoch) => String(epoch.epoch) === said.get("epoch"));
    const isMoment = said.has("at") && Number.isFinite(Number(said.get("at")));
    byId("opened").textContent = "";
    if (named || isMoment) {
      moveTo(named ? named.at : Number(said.get("at")) - Model.data.from);
    } else if (opens) {
      const finding = findings[opens.finding], from = Scale.place(Math.max(finding.at, 0));
      const length = Math.max(Scale.place(finding.end === null ? LAST : finding.end) - from, OPENED_LENGTH_MIN);
      if (length * OPENED_SHARE < Scale.total()) setWindow(from - length, from + 2 * length);
      moveTo(opens.at);
      byId("opened").replaceChildren("This page opens at the gravest finding, ", Frame.element("strong", {}, finding.kind), ", at " + Frame.full(Model.wall(opens.at)) + ".");
    } else {
      moveTo(epochs.length ? epochs[epochs.length - 1].at : LAST);
      byId("opened").textContent = "This page opens at the last " + Frame.data.noun + ": " + (findings.length ? "no finding is graver than a note." : "there are no findings.");
    }
    bringIntoSight(view.cursor);
  }
  function redraw() {
    Draw.learnColours();
    Ruler.legend(byId("legend"));
    drawNow();
  }
  for (const item of document.querySelectorAll("[data-finding]")) {
    const finding = findings[Number(item.dataset.finding)];
    item.querySelector("p").append(Frame.element("button", {type: "button", class: "link no-print", onclick: () => { view.go(finding.at); chart.scrollIntoView({block: "nearest"}); }}, "show"));
  }
  chart.hidden = false;
  region.setAttribute("aria-valuemax", String(LAST));
  showSqueezed();
  measure();
  setWindow(0, Scale.total());
  openPage();
  Frame.onTheme(redraw);
  addEventListener("hashchange", openPage);
  scroller.addEventListener("scroll", () => { hideTip(); draw(); }, {passive: true});
  new ResizeObserver(draw).observe(chart);
  redraw();
})();
