/* The cluster, its groups, and what `quorate cluster kill|restart|transfer` do. */
let cluster = null, views = new Map(), groups = null, after = "", filter = "", asking = false;
let home = null, answered = location.origin; // the node of this page, and the origin that told of the cluster
let began; const ready = new Promise(done => { began = done; }); // the first look, which says who leads

async function watchCluster() {
  for (;;) {
    await shown();
    await lookAtCluster();
    began();
    try {
      groups = (await fromAny("/v1/groups?limit=" + GROUPS_SHOWN + "&after=" + encodeURIComponent(after))).body;
      drawGroups();
    } catch { put("groups", el("h2", {}, "Groups"), el("p", { class: "soft" }, "cannot be read at the moment: a shard has not caught up, or has no leader")); }
    await pause(CLUSTER_MS);
  }
}
async function lookAtCluster() {
  try {
    const { origin, body } = await fromAny("/v1/cluster");
    cluster = body; answered = origin;
    if (origin === location.origin) home = body.node_id;
    const isBack = body.node_id !== home && body.nodes.some(node => node.node_id === home && node.http);
    const known = body.nodes.filter(node => node.http).map(node => url(node.http));
    const self = body.nodes.find(node => node.is_self);
    origins = [...new Set([...(isBack ? [location.origin] : []), origin, ...known.filter(one => one !== url(self.http)), ...origins])].slice(0, ORIGINS_KEPT);
    views = new Map([[body.node_id, body]]);
    const others = body.nodes.filter(node => node.http && !node.is_self && body.shards.some(s => s.leader_id === node.node_id));
    await Promise.allSettled(others.map(async node => views.set(node.node_id, await ask(url(node.http), "/v1/cluster"))));
    if (origin === location.origin) put("source");
    else put("source", (home === null ? "this page's node" : "node " + home + ", which served this page,") + " does not answer; going on from node " + body.node_id,
      body.launcher ? el("span", {}, "; to restart nodes go to ", pageOf(origin)) : "");
    drawCluster();
    followLeader();
  } catch { put("source", "no node answers; trying again"); }
}
const pageOf = origin => el("a", { href: origin + "/" + location.hash }, origin);
function leaderOf(shard) {
  const id = cluster?.shards.find(one => one.shard === shard)?.leader_id;
  const node = cluster?.nodes.find(one => one.node_id === id);
  return !node?.http ? null : node.is_self ? answered : url(node.http);
}

// Only this page's own node takes changes from it, and only the launcher's nodes have what it takes.
const mayChange = () => cluster.launcher && cluster.node_id === home;
async function change(what, path, body = {}, ends = "") {
  if (asking) return;
  let isCut = false;
  asking = true; drawCluster();
  $("said").textContent = what + " …";
  const given = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  try {
    const answer = await ask(location.origin, path, given, LAUNCHER_MS);
    $("said").textContent = answer.said || what + ": done";
  } catch (error) { isCut = error instanceof TypeError; $("said").textContent = what + ": " + (isCut ? "this page's node has gone before it answered" : error.message); }
  asking = false;
  await lookAtCluster();
  if (isCut && ends && answered !== location.origin) put("said", ends + " as asked. It served this page, so it could not answer; go on at ", pageOf(answered), ".");
}
function button(key, text, title, run) {
  const one = el("button", { class: "small", type: "button", "data-key": key, title, onclick: run }, text);
  one.disabled = asking;
  return one;
}
function nodeButtons({ node_id: id, in_contact, is_self }) {
  const path = "/v1/nodes/" + id + "/", own = is_self ? " It is this page's own node: the page goes on from another." : "";
  const kill = button("kill " + id, "Kill", "kill -9 node " + id, () =>
    confirm("Kill node " + id + " with kill -9? It stays down until it is restarted." + own) && change("killing node " + id, path + "kill", {}, is_self && "Node " + id + " was killed"));
  return el("span", { class: "keep" }, in_contact ? kill : "", button("restart " + id, "Restart", in_contact ? "stop node " + id + " and start it again" : "start node " + id, () =>
    (!is_self || confirm("Restart node " + id + "?" + own)) && change("restarting node " + id, path + "restart", {}, is_self && "Node " + id + " restarts")));
}
function moveButtons(shard) {
  const takes = !cluster.transfers_last ? shard : cluster.shards.find(one => one.shard < 0) || shard;
  const leader = cluster.nodes.find(node => node.node_id === takes.leader_id), name = shard.name || shard.shard;
  if (!leader?.http) return "";
  if (!leader.is_self) return el("a", { href: url(leader.http) + "/" }, "node " + leader.node_id + "'s page");
  const path = "/v1/shards/" + (shard.shard < 0 ? "metadata" : shard.shard) + "/transfer";
  return el("span", { class: "keep" }, ...cluster.nodes.filter(node => node.in_contact && node.node_id !== shard.leader_id).map(({ node_id: to }) =>
    button("move " + name + " " + to, "to " + to, "transfer " + name + " to node " + to, () => change("transferring " + name + " to node " + to, path, { to }))));
}
function drawCluster() {
  const { nodes, shards } = cluster, away = nodes.filter(node => !node.in_contact), changes = mayChange();
  const headless = shards.filter(shard => shard.leader_id === null);
  $("lead").textContent = headless.length ? count(headless.length, "shard") + " of " + shards.length + " without a leader"
    : away.length ? "degraded: node " + away.map(node => node.node_id).join(", ") + (away.length > 1 ? " are" : " is") + " away" : "all well";
  const followers = shard => views.get(shard.leader_id)?.shards.find(one => one.shard === shard.shard)?.log.followers || [];
  put("cluster", el("h2", {}, "Cluster"), el("div", { class: "pair" },
    table(["Node", "State", "Leads", "Kafka", "HTTP", ...(changes ? ["Change"] : [])], nodes.map(node => [String(node.node_id),
      node.in_contact ? tag("up", "good") : tag("away", "bad"),
      shards.filter(shard => shard.leader_id === node.node_id).map(shard => shard.name || shard.shard).join(", ") || "–",
      node.kafka ? address(node.kafka) : "", node.http ? address(node.http) : "",
      ...(changes ? [nodeButtons(node)] : [])])),
    table(["Shard", "Leader", "Term", "Committed", "Lag by node", ...(changes ? ["Move"] : [])], shards.map(shard => {
      const lags = followers(shard).flatMap((one, n) => [n ? ", " : "", keep(one.node_id + ": " +
        (!one.in_contact ? "away" : one.last_ack_ago_ms === null || one.mode === "probing" ? "?" : one.lag))]);
      return [keep(shard.name || shard.shard), shard.leader_id === null ? tag("none", "bad") : keep("node " + shard.leader_id),
        String(shard.term), String((views.get(shard.leader_id)?.shards.find(one => one.shard === shard.shard) || shard).committed_index),
        lags.length ? el("span", {}, ...lags) : (nodes.length > 1 ? "?" : "–"), ...(changes ? [moveButtons(shard)] : [])];
    }))));
}
function drawGroups() {
  const rows = groups.groups.flatMap(asWatched).filter(one => one.group_id.includes(filter));
  if (!$("filter")) put("groups", el("h2", {}, "Groups"),
    el("p", {}, el("input", { id: "filter", type: "search", placeholder: "filter this page", "aria-label": "Filter groups",
      oninput: event => { filter = event.target.value; drawGroups(); } })), el("div", { id: "list" }));
  const drawn = JSON.stringify([rows, filter, after, groups.next_after]);
  if ($("list").getAttribute("data-of") === drawn) return;
  $("list").setAttribute("data-of", drawn);
  put("list", rows.length ? table(["Group", "State", "Type", "Members", "Epoch", "Offsets"], rows.map(one => [
    el("a", { href: "#" + encodeURIComponent(one.group_id), "data-key": one.group_id }, one.group_id), state(one.state), one.type,
    String(one.members), String(one.epoch), String(one.offsets)])) : el("p", { class: "soft" }, filter ? "no group here matches" : "no group yet: start a consumer"),
    after ? el("button", { "data-key": "first", onclick: () => turn("") }, "First groups") : "",
    groups.next_after !== null ? el("button", { "data-key": "more", onclick: () => turn(groups.next_after) }, "Next groups") : "");
}
async function turn(to) { after = to; try {
  groups = (await fromAny("/v1/groups?limit=" + GROUPS_SHOWN + "&after=" + encodeURIComponent(to))).body; drawGroups(); } catch { /* the next round */ } }
