/* The group's offsets and its lag, as the node tells that has the messages; the more partitions, the less often. */
const METADATA = -1, OFFSET_MS = 10;
let offsets = null, offsetsPage = 0, offsetsAsked = null;

async function watchOffsets(id) {
  const mine = offsetsAsked = {};
  offsets = null; offsetsPage = 0;
  put("offsets");
  await ready;
  while (id) {
    await shown();
    if (offsetsAsked !== mine) return;
    let num = 0;
    try {
      const found = await ask(leaderOf(METADATA) || origins[0], "/v1/groups/" + encodeURIComponent(id) + "/offsets");
      if (offsetsAsked !== mine) return;
      offsets = { ...found, of: new Map(Object.entries(found.topics).flatMap(([topic, rows]) => rows.map(row => [topic + " " + row.partition, row]))) };
      num = offsets.of.size;
      later();
    } catch { later(); } // until the next round the last answer is shown, with its age
    await pause(Math.max(CLUSTER_MS, num * OFFSET_MS));
  }
}
const thousands = n => n.toLocaleString("en");
/* How far a member is behind in all that it has; nothing if no end is known. */
function lagOf(member) {
  const lags = [...flat(member.assigned), ...flat(member.pending_revocation)].map(one => offsets?.of.get(one)?.lag ?? null).filter(lag => lag !== null);
  return lags.length ? thousands(lags.reduce((sum, lag) => sum + lag, 0)) : "";
}
function drawOffsets(group) {
  if (!offsets || !group) return put("offsets");
  if (!offsets.of.size) return put("offsets", el("h3", {}, "Offsets"), el("p", { class: "soft" }, "none committed yet"));
  const owners = new Map();
  for (const one of group.members) for (const has of [one.assigned, one.pending_revocation]) for (const partition of flat(has)) owners.set(partition, one.member_id);
  const rows = [...new Set([...offsets.of.keys(), ...owners.keys()])].map(key => ({ key, ...offsets.of.get(key), owner: owners.get(key) }))
    .sort((a, b) => a.key.localeCompare(b.key, undefined, { numeric: true }));
  const isLong = rows.length > ROWS_SHOWN, cell = value => value === undefined || value === null ? "" : thousands(value);
  if (isLong && offsets.lag !== null) rows.sort((a, b) => (b.lag ?? -1) - (a.lag ?? -1));
  offsetsPage = Math.min(offsetsPage, Math.max(0, Math.ceil(rows.length / ROWS_SHOWN) - 1));
  const part = rows.slice(offsetsPage * ROWS_SHOWN, (offsetsPage + 1) * ROWS_SHOWN), known = offsets.lag !== null;
  const without = rows.filter(one => one.offset === undefined).length, unknown = rows.filter(one => one.offset !== undefined && one.end === null).length;
  const age = Lanes.now() - offsets.at_ms, sure = Math.max(CLUSTER_MS, offsets.of.size * OFFSET_MS) + TIMEOUT_MS;
  const said = [known ? "Lag " + thousands(offsets.lag) + " in sum" + (isLong ? ", the largest first." : ".") : "",
    without ? count(without, "partition") + " without a committed offset." : "",
    !unknown ? "" : known ? "The end of " + count(unknown, "partition") + " is not known." : offsets.keeps_messages
      ? "The ends of the partitions are not known at the moment, so there is no lag."
      : "The ends of the partitions are not known, so there is no lag: this cluster does not keep the messages (scratch.log.enable).",
    age > sure ? el("span", {}, "As of ", since(offsets.at_ms), " ago.") : ""];
  put("offsets", el("h3", {}, "Offsets"), el("p", { class: "soft" }, ...said.filter(one => one).flatMap(one => [one, " "])),
    table(["Partition", "Committed", "End", "Lag", "Owner"], part.map(one => [one.key, cell(one.offset) || "none",
      cell(one.end), cell(one.lag), one.owner ? history_.called(one.owner) : ""])),
    pager("Partitions", offsetsPage, ROWS_SHOWN, rows.length, to => { offsetsPage = to; drawOffsets(group); }));
}
