/* One group: its live feed, how it stands now or stood at an earlier moment. */
const DRAW_MS = 1000, DRAW_MS_MIN = 100, DRAW_SHARE = 5, SILENCE_MS = 12000, RETRY_MS_MIN = 500, RETRY_MS_MAX = 5000, VIEW_OLD_MS = 5000;
let groupId = "", history_ = null, feed = null, feedOrigin = "", shard = null, heard = 0, retries = 0, retry = 0, members = 0, drawn = 0;

async function watchGroup(id) {
  closeFeed();
  groupId = id; history_ = new History(); shard = null; members = 0; retries = 0;
  Lanes.moment = null;
  $("group").hidden = !id; $("timeline").hidden = true;
  for (const part of ["about", "waits", "causes", "members"]) put(part);
  watchOffsets(id);
  if (!id) return;
  put("about", el("h2", {}, id), el("p", { class: "soft" }, "reading …"));
  await ready; // says who leads, and only a leader knows who waits how long
  if (groupId === id) openFeed();
}
function closeFeed() { feed?.close(); feed = null; clearTimeout(retry); }
/* The leader's feed if it can be had, else any other's. An entry's id is the same on every node, so nothing is missed. */
function openFeed() {
  closeFeed();
  if (!groupId || document.hidden) return;
  const all = [...new Set([leaderOf(shard), ...origins])].filter(one => one);
  feedOrigin = all[retries % all.length];
  const mine = new EventSource(feedOrigin + "/v1/groups/" + encodeURIComponent(groupId) + "/events" + (history_.last >= 0 ? "?after=" + history_.last : ""));
  feed = mine; heard = Date.now();
  const on = (name, take) => mine.addEventListener(name, event => {
    if (feed !== mine) return;
    heard = Date.now();
    take(JSON.parse(event.data));
  });
  on("start", ({ shard: number, from_index, from_ms }) => {
    shard = number;
    if (followLeader()) return;
    if (from_index > history_.last + 1) { history_ = new History(); history_.fromMs = from_ms; history_.cut = from_index > 1 ? "old" : ""; }
  });
  on("entry", entry => { if (history_.add(entry)) later(); });
  on("group", view => { retries = 0; Lanes.skew = view.at_ms - Date.now(); history_.see(view); later(); if (groups) drawGroups(); });
  on("alive", () => { retries = 0; });
  mine.onerror = () => { if (feed === mine) lost(); };
}
function lost() {
  closeFeed(); retries++;
  drawStale();
  retry = setTimeout(openFeed, Math.min(RETRY_MS_MAX, RETRY_MS_MIN * retries));
}
/* A row of the list of groups as the feed tells it, which is newer: none for a group that has gone. */
function asWatched(row) {
  if (row.group_id !== groupId || retries || !history_.view) return [row];
  const one = history_.view.group;
  return one ? [{ ...row, state: one.state, type: one.type, members: one.members.length, epoch: one.epoch }] : [];
}
/* What is said of the group may have changed since: the feed is lost, or its views are rare as they are large. */
function drawStale() {
  const at = history_.view?.at_ms;
  if ($("stale")) put("stale", retries ? "Not live at the moment; trying again. " : "",
    at !== undefined && (retries || Lanes.now() - at > VIEW_OLD_MS) ? el("span", {}, "As of ", since(at), " ago.") : "");
}
/* Whether the feed is opened anew, at the leader. */
function followLeader() {
  const leader = feed && shard !== null && leaderOf(shard);
  if (!leader || leader === feedOrigin || retries) return false;
  openFeed();
  return true;
}
setInterval(() => {
  if (!groupId || document.hidden) return;
  if (feed && Date.now() - heard > SILENCE_MS) lost();
  tick();
}, DRAW_MS);
/* Draw soon, and the less often, the longer it takes. */
let due = 0, tookMs = 0;
function later() {
  due ||= setTimeout(() => {
    const beganMs = performance.now();
    drawGroup();
    tookMs = performance.now() - beganMs;
  }, Math.max(DRAW_MS_MIN, DRAW_SHARE * tookMs));
}
/* Time goes on though nothing happens. */
function tick() {
  goOn();
  drawStale();
  if (history_.view?.group && Lanes.moment === null && Date.now() - drawn > DRAW_MS) { Lanes.draw(history_); drawWaits(now()); }
}
const now = () => ({ waits: waitsNow(), at: Lanes.now() });
/* What the leader says, and where it cannot say since when, what the log says. */
function waitsNow() {
  const { view } = history_, known = view.group.members.flatMap(one => one.waits_for.map(wait => [one, wait]));
  const told = known.some(([, wait]) => wait.told_ms_ago === null) ? history_.at(history_.events.length).waits : [];
  return known.map(([one, { topic, partition, owner, told_ms_ago, left_ms }]) => ({ waiter: one.member_id, owner, topic, partition,
    since: told_ms_ago !== null ? view.at_ms - told_ms_ago : told.find(each => each.topic === topic && each.partition === partition)?.since ?? null,
    until: left_ms === null ? null : view.at_ms + left_ms }));
}

function drawGroup() {
  clearTimeout(due); due = 0;
  const { view } = history_, past = Lanes.moment !== null;
  if (!view || !groupId) return;
  if (!view.group && !history_.events.length) {
    put("about", el("h2", {}, groupId), el("p", { class: "soft" }, "This group does not exist (any more). It is shown here as soon as it does."));
    $("timeline").hidden = true;
    return;
  }
  drawn = Date.now();
  const number = past ? history_.upTo(Lanes.moment) : history_.events.length, then = past || !view.group ? history_.at(number) : null;
  $("timeline").hidden = !Lanes.all(history_).members.size; // it only has offsets
  drawAbout(then);
  drawChoices();
  Lanes.draw(history_);
  const [cause] = history_.causes(number, 1), moment = $("moment");
  moment.className = past ? "past" : "soft";
  moment.textContent = past ? "As it was at " + when(Lanes.moment) + (number ? ", after entry " + history_.events[number - 1].index + ". " + cause[1] : ": before the entries that were read.") : "Now.";
  drawBegin();
  $("scrub").setAttribute("aria-valuetext", moment.textContent);
  drawWaits(then ? { waits: then.waits.map(one => ({ ...one, until: one.since !== null && one.limit_ms > 0 ? one.since + one.limit_ms : null })), at: Lanes.moment } : now());
  const lines = history_.causes(number, CAUSES_SHOWN);
  put("causes", el("h3", {}, past ? "Last causes until then" : "Last causes"), lines.length ? el("ul", {}, ...lines.map(([at, words]) =>
    el("li", {}, el("time", {}, when(at)), words))) : el("p", { class: "soft" }, "none in what was read of the shard's log"));
  drawStale();
  drawMembers(then);
  drawOffsets(then ? null : view.group);
}
/* Where the lanes do not begin with the group, and why. */
const CUTS = { old: "older entries of the shard's log are not read here", many: "the page keeps no more of so many changes",
  large: "an entry that came then was too large to be sent, so what it changed is not known" };
function drawBegin() {
  const why = history_.lacks(), since = history_.since();
  put("begin", why && since !== null ? el("span", {}, "The group is older than these lanes, which begin at " + when(since) + ": " + CUTS[why] + ". ",
    "Its whole history: ", el("code", { class: "keep" }, "quorate log timeline GROUP --html FILE")) : "");
}
function drawAbout(then) {
  const { view } = history_, one = view.group, leader = cluster?.shards.find(each => each.shard === view.shard)?.leader_id;
  const tail = [", shard " + view.shard + (leader ? " led by node " + leader : "") + ". ", el("span", { id: "stale", class: "soft" }), " ",
    el("a", { href: "#", "data-key": "close" }, "Close")];
  if (then || !one) put("about", el("h2", {}, groupId, " ", one ? tag("an earlier moment", "warn") : tag("does not exist any more", "")),
    el("p", {}, count(then.members.length, "member") + (then.epoch === undefined ? "" : ", epoch " + then.epoch), ...tail));
  else put("about", el("h2", {}, one.group_id + " ", state(one.state)),
    el("p", {}, count(one.members.length, "member") + ", epoch " + one.epoch + (offsets && offsets.lag !== null ? ", lag " + thousands(offsets.lag) : "") + (one.assignor ? ", assignor " + one.assignor : "") +
      (one.state_since_ms ? ", " + one.state.toLowerCase() + " for " : ""), one.state_since_ms ? since(one.state_since_ms) : "", ...tail),
    one.assignor_error ? el("p", {}, tag("assignor failed", "bad"), " " + one.assignor_error) : "");
}
function drawChoices() {
  const choice = (name, value, text) => el("button", { type: "button", class: "small", "data-key": text, "aria-pressed": String(Lanes[name] === value),
    onclick: () => { Lanes[name] = value; $("lanes").scrollTop = 0; drawGroup(); } }, text);
  const go = to => { to(); drawGroup(); };
  put("choices", el("span", {}, choice("by", "members", "Members"), choice("by", "partitions", "Partitions")),
    el("span", {}, ...Object.keys(SPANS).map(one => choice("span", one, one))),
    el("span", {}, el("button", { type: "button", class: "small", "data-key": "earlier", onclick: () => go(() => Lanes.step(history_, -1)) }, "Earlier"),
      el("button", { type: "button", class: "small", "data-key": "later", onclick: () => go(() => Lanes.step(history_, 1)) }, "Later"),
      Lanes.moment === null ? "" : el("button", { type: "button", class: "small", "data-key": "now", onclick: () => go(() => Lanes.lookAt(null)) }, "Back to now")));
}
/* Who must release what before whom can have it: one line for each pair, with the time that has passed and what is left. */
function drawWaits({ waits, at }) {
  const pairs = new Map();
  for (const wait of waits) {
    const key = JSON.stringify([wait.owner, wait.waiter]), pair = pairs.get(key) || pairs.set(key, { ...wait, parts: {} }).get(key);
    (pair.parts[wait.topic] ||= []).push(wait.partition);
    pair.since ??= wait.since; pair.until ??= wait.until;
  }
  const rows = [...pairs.values()].sort((a, b) => (a.since ?? Infinity) - (b.since ?? Infinity));
  put("waits", ...(!rows.length ? [] : [el("h3", {}, "Who waits for whom"), el("ul", { class: "waits" }, ...rows.slice(0, WAITS_SHOWN).map(one => {
    const passed = one.since === null ? null : Math.max(0, at - one.since), left = one.until === null ? null : Math.max(0, one.until - at);
    const bar = passed === null || left === null ? "" : el("progress", { max: passed + left, value: passed, class: passed > 2 * left ? "late" : "",
      "aria-label": "time that " + history_.called(one.owner) + " has taken of what it has" });
    return el("li", {}, el("span", {}, history_.called(one.owner)),
      el("span", { class: "what" }, "must release ", el("strong", {}, parts(one.parts)), " for →"), el("span", {}, history_.called(one.waiter)),
      el("span", {}, bar, (passed === null ? left === null ? "not asked yet" : "asked by a former leader" : "asked " + ago(passed) + " ago") +
        (left === null ? "" : left ? ", " + ago(left) + " left" : ", no time left")));
  })), rows.length > WAITS_SHOWN ? el("p", { class: "soft" }, "and " + (rows.length - WAITS_SHOWN) + " more") : ""]));
}
const STANDING = { UNREVOKED_PARTITIONS: "revoking", UNRELEASED_PARTITIONS: "waiting" };
function drawMembers(then) {
  const { view } = history_, all = [...(then || view.group).members].sort((a, b) =>
    history_.called(a.member_id).localeCompare(history_.called(b.member_id), undefined, { numeric: true }));
  members = Math.min(members, Math.max(0, Math.ceil(all.length / ROWS_SHOWN) - 1));
  const from = members * ROWS_SHOWN;
  const standing = text => text ? state(STANDING[text] || text.toLowerCase()) : "";
  const name = member => el("span", { title: member.member_id }, history_.called(member.member_id) + (member.instance_id ? " · static " + member.instance_id : ""));
  const rows = all.slice(from, from + ROWS_SHOWN).map(member => {
    const has = then && !member.known ? "not known" : parts(member.assigned), target = member.target ? parts(member.target) : "–";
    const same = !then && view.group.type !== "consumer" ? "" : target === has ? "same" : target; // classic members have no other
    if (then) return [name(member), standing(member.state), member.epoch === undefined ? "" : String(member.epoch), has, parts(member.pending) === "–" ? "" : parts(member.pending), same];
    return [name(member), member.client_host.replace(/^\//, "") || "", member.is_away ? tag("away", "warn") : standing(member.state),
      member.last_heartbeat_ms ? el("span", {}, since(member.last_heartbeat_ms), " ago") : "",
      member.member_epoch < 0 ? "" : String(member.member_epoch), has, lagOf(member), same];
  });
  put("members", el("h3", {}, "Members"), table(then ? ["Member", "State", "Epoch", "Has", "Must release", "Target"]
    : ["Member", "Host", "State", "Heard", "Epoch", "Has", "Lag", "Target"], rows),
    pager("Members", members, ROWS_SHOWN, all.length, to => { members = to; drawGroup(); }));
}

function chosen() { try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; } }
addEventListener("hashchange", () => { watchGroup(chosen()); if (chosen()) { $("group").focus(); scrollTo(0, 0); } });
document.addEventListener("visibilitychange", () => { if (document.hidden) closeFeed(); else openFeed(); });
addEventListener("resize", () => { if (!$("timeline").hidden) Lanes.draw(history_); });
addEventListener("keydown", event => {
  if (event.key !== "Escape" || event.target.id === "filter") return;
  if (groupId && Lanes.moment !== null) { Lanes.lookAt(null); drawGroup(); } else location.hash = "";
});
$("lanes").addEventListener("scroll", () => Lanes.draw(history_));
$("lanes").addEventListener("click", event => {
  const { gutter, width, from, to } = Lanes.place, x = event.clientX - $("lanes").getBoundingClientRect().left;
  if (x < gutter) return;
  Lanes.lookAt(from + (x - gutter) / (width - gutter - 8) * (to - from)); drawGroup(); $("scrub").focus();
});
$("scrub").addEventListener("input", event => {
  const { value, max } = event.target;
  Lanes.lookAt(Number(value) >= Number(max) ? null : Number(value)); drawGroup();
});
$("scrub").addEventListener("keydown", event => {
  const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 }[event.key];
  if (by) Lanes.step(history_, by);
  else if (event.key === "Home") Lanes.lookAt(history_.since());
  else if (event.key === "End") Lanes.lookAt(null);
  else return;
  event.preventDefault(); drawGroup();
});
watchCluster(); watchGroup(chosen());
