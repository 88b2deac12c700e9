/* One group as the log tells it: the entries read so far, and the state after each. What an entry changes is a list of
   [key, value]; the key is a letter and a member's id, the value replaces what was there, and null removes it:
     m member {client, host, limit_ms}   c its current assignment {epoch, state, assigned, pending}   t its target
     g the group {epoch}                 a its target as a whole {epoch}
   A group of another protocol is one record, with all its members; it becomes the same changes. */
const EVENTS_KEPT = 4000, CHANGES_KEPT = 60000, NAMES_KEPT = 5000;
const EMPTY = {};
/* Where such a record has its members, their ids and the group's epoch. */
const WHOLE = { GROUP_METADATA: ["members", "member_id", "generation"], REWRITE_GROUP: ["consumers", "consumer_id", "generation"],
  PUSH_GROUP: ["consumers", "consumer_id", "round"] };
const numberOf = ({ type, value }) => type === "CONSUMER_GROUP_METADATA" ? value?.epoch : type === "PUSH_GROUP" ? value?.round || undefined : value?.[WHOLE[type]?.[2]];
const order = ({ type, value }) => !WHOLE[type] ? 0 : value ? 1 : -1; // a group that changes its protocol is removed first

class History {
  constructor() {
    this.events = []; this.base = new Map(); this.view = null; this.names = new Map(); this.topics = new Map();
    this.uses = new Map(); this.touched = new Set(); this.born = new Set(); this.last = -1; this.fromMs = null; this.changes = 0; this.version = 0;
    this.listed = new Set(); this.epoch = undefined; this.cut = "";
  }

  remember(id, number, client) {
    if (!this.names.has(id) && this.names.size >= NAMES_KEPT) return;
    const one = this.names.get(id) || { number: 0, client: "", name: "" }, before = one.name;
    one.number = number || one.number; one.client = client || one.client;
    this.names.set(id, one);
    one.name = one.number ? "m" + one.number + (one.client ? " (" + one.client + ")" : "") : one.client;
    if (one.name === before) return;
    this.uses.set(before, (this.uses.get(before) || 1) - 1);
    this.uses.set(one.name, (this.uses.get(one.name) || 0) + 1);
  }
  called(id) {
    const name = this.names.get(id)?.name, short = id.length > 10 ? id.slice(0, 4) + "…" + id.slice(-4) : id;
    return !name ? short : this.uses.get(name) > 1 ? name + " (" + short + ")" : name;
  }
  /* Why the group's beginning is not among the entries; empty if it is. */
  lacks() { return this.events.find(one => one.changes.length)?.isFirst ? "" : this.cut; }
  /* From when on the group is known: from its beginning, if that was read. */
  since() {
    const first = this.events.find(one => one.changes.length);
    return first && ![...this.base.values()].some(one => one) ? first.at : this.fromMs ?? first?.at ?? null;
  }

  /* The group as the node shows it; the first one says what stood before the entries, as far as these left it alone. */
  see(view) {
    this.view = view;
    for (const [name, { topic_id }] of Object.entries(view.group?.topics || {})) this.topics.set(topic_id, name);
    for (const one of view.group?.members || []) this.remember(one.member_id, one.number, one.client_id);
    if (this.seen) return;
    this.seen = view.as_of_index;
    if (view.group) {
      const put = (key, value) => { if (!this.touched.has(key)) this.base.set(key, value); };
      put("g", { epoch: view.group.epoch });
      put("a", { epoch: view.group.assignment_epoch });
      for (const one of view.group.members) {
        if (/Rebalance/.test(view.group.state) && !Object.keys(one.assigned).length) continue; // it joins a classic group now
        put("m" + one.member_id, { client: one.client_id, host: one.client_host, limit_ms: one.rebalance_timeout_ms });
        const isConsumer = view.group.type === "consumer";
        if (!isConsumer) put("c" + one.member_id, { epoch: one.member_epoch < 0 ? undefined : one.member_epoch, ...owned(one.state, one.assigned) });
        else if (one.state) put("c" + one.member_id, { epoch: one.member_epoch, state: one.state, assigned: one.assigned, pending: one.pending_revocation });
        put("t" + one.member_id, isConsumer ? one.target : one.assigned);
      }
    }
    this.version++;
  }

  /* Take in an entry. Returns whether it was new. */
  add(entry) {
    if (entry.index <= this.last) return false;
    this.last = entry.index;
    if (entry.left_out) { // too large to be sent, so what it changed is unknown: history begins anew
      this.events = []; this.changes = 0; this.base.clear(); this.touched.clear(); this.born.clear(); this.seen = 0;
      this.fromMs = entry.timestamp_ms; this.cut = "large"; this.listed.clear();
    }
    const { cause = {}, records } = entry, isOld = !this.seen || entry.index <= this.seen;
    const changes = [...records].sort((a, b) => order(a) - order(b)).flatMap(one => this.change(one, isOld));
    const areNew = isNew(cause) || records.some(one => WHOLE[one.type]); // who was a member before such a record is not known
    for (const [key, value] of changes) if (isOld && key[0] === "m" && value && !this.touched.has(key) && areNew) this.born.add(key.slice(1));
    for (const [key, value] of changes) if (!this.touched.has(key)) {
      this.touched.add(key);
      if (isOld) this.before(key, value);
    }
    const event = { index: entry.index, at: entry.timestamp_ms, changes, ...this.told(cause, records) };
    const newest = this.events.at(-1);
    if (newest && event.at < newest.at) event.at = newest.at; // clocks of two leaders
    this.events.push(event);
    this.changes += changes.length;
    while (this.events.length > EVENTS_KEPT || this.changes > CHANGES_KEPT) {
      const oldest = this.events.shift();
      this.changes -= oldest.changes.length;
      this.fromMs = oldest.at; this.cut = "many";
      apply(this.base, oldest.changes);
    }
    this.version++;
    return true;
  }
  /* What is known of a key before the first entry that changed it. */
  before(key, value) {
    const id = key.slice(1), isBorn = this.born.has(id);
    if (key[0] === "m" && !isBorn) { this.base.set(key, value || { client: this.names.get(id)?.client || "", host: "" }); return; }
    if (isBorn && key[0] !== "m") this.base.set(key, null); else this.base.delete(key);
    if (key[0] === "m") for (const part of ["c" + id, "t" + id]) if (!this.touched.has(part)) this.base.set(part, null);
  }
  named(list) {
    const parts = {};
    for (const { topic_id, partitions } of list || []) if (partitions.length) parts[this.topics.get(topic_id) || topic_id] = partitions;
    return parts;
  }
  /* The changes of a record. */
  change(record, isOld) {
    if (WHOLE[record.type]) return this.whole(record, isOld);
    const one = this.part(record);
    return one ? [one] : [];
  }
  whole({ type, value }, isOld) {
    const [list, id, number] = WHOLE[type], epoch = value?.[number] || undefined, changes = [];
    const members = new Map((value?.[list] || []).map(one => [one[id], one]));
    const before = isOld || this.listed.size ? this.listed : new Set([...this.base].filter(([key, known]) => key[0] === "m" && known).map(([key]) => key.slice(1)));
    for (const gone of before) if (!members.has(gone)) for (const part of "ctm") changes.push([part + gone, null]);
    this.listed = new Set(members.keys());
    for (const part of "ga") changes.push([part, value && { epoch }]);
    for (const [key, one] of members) {
      const has = one.assigned || Object.fromEntries((one.owned || []).map(({ topic, partitions }) => [topic, partitions]));
      const isBehind = type === "PUSH_GROUP" && epoch && one.state !== "STARTED";
      this.remember(key, 0, one.client_id);
      changes.push(["m" + key, { client: one.client_id || "", host: one.client_host || "", limit_ms: one.rebalance_timeout_ms ?? null }],
        ["c" + key, { epoch: isBehind ? epoch - 1 : epoch, ...owned(one.state, has) }], ["t" + key, has]);
    }
    return changes;
  }
  part({ type, key = {}, value }) {
    const id = key.member_id;
    switch (type) {
      case "CONSUMER_GROUP_PARTITION_METADATA":
        for (const { topic_id, topic_name } of value?.topics || []) this.topics.set(topic_id, topic_name);
        return null;
      case "CONSUMER_GROUP_MEMBER_METADATA":
        if (value) this.remember(id, 0, value.client_id);
        return ["m" + id, value && { client: value.client_id, host: value.client_host, limit_ms: value.rebalance_timeout_ms }];
      case "MEMBER_NUMBER": if (id && value?.number) this.remember(id, value.number, ""); return null;
      case "CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT":
        return ["c" + id, value && { epoch: value.member_epoch, state: value.state, assigned: this.named(value.assigned_partitions),
          pending: this.named(value.partitions_pending_revocation) }];
      case "CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER": return ["t" + id, value && this.named(value.topic_partitions)];
      case "CONSUMER_GROUP_METADATA": return ["g", value && { epoch: value.epoch }];
      case "CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA": return ["a", value && { epoch: value.assignment_epoch }];
    }
    return null;
  }

  /* The words of an entry, and which member reached which epoch by it. */
  told(cause, records) {
    const newest = records.map(numberOf).filter(one => one !== undefined).at(-1); // 0: a classic group that nobody has joined yet
    const epoch = newest && newest !== this.epoch ? newest : undefined;
    this.epoch = epoch ?? this.epoch;
    const step = records.find(one => one.type === "CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT" && one.value);
    const who = step?.key.member_id, said = step && epoch === undefined && STEPS[step.value.state];
    return { epoch, isFirst: newest <= 1, who, cause, term: records.find(one => one.type === "TERM_START")?.value, isTerm: cause.trigger === "TERM_OPENED",
      reached: said && step.value.state === "STABLE" ? step.value.member_epoch : null,
      step: said && cause.trigger === "HEARTBEAT" ? said.replace("{e}", step.value.member_epoch) : "" };
  }
  words({ epoch, who, cause, step, term }) { return term ? ofTerm(term) : step ? this.called(who) + " " + step + "." : sentence(this, cause, epoch); }

  /* The newest causes up to an event, as [at, words]; members that reach the same epoch one after the other are one line. */
  causes(upTo, most) {
    const lines = [];
    for (let at = upTo - 1; at >= 0 && lines.length < most; at--) {
      const event = this.events[at];
      let more = 0, first = event;
      while (event.reached !== null && at > 0 && this.events[at - 1].reached === event.reached) { first = this.events[--at]; more++; }
      lines.push([event.at, more ? this.called(first.who) + " and " + count(more, "other") + " have their target of epoch " + event.reached + "." : this.words(event)]);
    }
    return lines;
  }

  /* The number of events at or before a moment. */
  upTo(ms) {
    let low = 0, high = this.events.length;
    while (low < high) { const middle = (low + high) >> 1; if (this.events[middle].at <= ms) low = middle + 1; else high = middle; }
    return low;
  }
  /* The group after so many events. */
  at(number) {
    const all = new Map(this.base), asked = new Map();
    for (const event of this.events.slice(0, number)) {
      apply(all, event.changes);
      for (const [key] of event.changes) if (key[0] === "c") note(asked, key.slice(1), all.get(key), event.at);
    }
    const members = [...all].filter(([key, value]) => key[0] === "m" && value).map(([key, value]) => {
      const id = key.slice(1), now = all.get("c" + id);
      return { member_id: id, ...value, known: now !== undefined, state: now?.state, epoch: now?.epoch, assigned: now?.assigned || EMPTY,
        pending: now?.pending || EMPTY, target: all.get("t" + id) };
    });
    return { epoch: all.get("g")?.epoch, assigned_epoch: all.get("a")?.epoch, members, waits: waitsOf(members, asked) };
  }
}
/* What a member has that is part of such a record: in a push group it was asked for it, unless it was told to start. */
const owned = (state, has) => /^(WAITING|STOPPING)$/.test(state) && Object.values(has).some(one => one.length)
  ? { state: "UNREVOKED_PARTITIONS", assigned: EMPTY, pending: has } : { state: "STABLE", assigned: has, pending: EMPTY };
/* Whether members that an entry describes are new. */
const isNew = ({ trigger, reasons = [] }) => /^MEMBER_(JOINED|REPLACED)$|^IMPORTED$/.test(trigger) || reasons.some(one => /^GROUP_(UP|DOWN)GRADED$/.test(one.kind));
function apply(all, changes) { for (const [key, value] of changes) if (value === null && key[0] === "m") { all.delete(key); } else all.set(key, value); }
/* Since when a member has been asked for each partition that it must release. */
function note(asked, id, now, at) {
  const before = asked.get(id) || new Map(), mine = new Map();
  for (const partition of flat(now?.pending)) mine.set(partition, before.get(partition) ?? at);
  asked.set(id, mine);
}
function* flat(parts) { for (const [topic, numbers] of Object.entries(parts || {})) for (const n of numbers) yield topic + " " + n; }
function waitsOf(members, asked) {
  const owners = new Map(), waits = [];
  for (const one of members) for (const parts of [one.assigned, one.pending]) for (const partition of flat(parts)) owners.set(partition, one);
  for (const one of members) for (const [topic, numbers] of Object.entries(one.target || {})) for (const partition of numbers) {
    const owner = owners.get(topic + " " + partition);
    if (owner && owner !== one) waits.push({ waiter: one.member_id, owner: owner.member_id, topic, partition,
      since: asked.get(owner.member_id)?.get(topic + " " + partition) ?? null, limit_ms: owner.limit_ms });
  }
  return waits;
}

const STEPS = { STABLE: "has its target of epoch {e}", UNREVOKED_PARTITIONS: "was asked to revoke partitions",
  UNRELEASED_PARTITIONS: "is in epoch {e} and waits for partitions of others" };
const PLAIN = {
  MEMBER_JOINED: "{m} joined", MEMBER_REJOINED: "{m} joined again", MEMBER_LEFT: "{m} left", MEMBER_REMOVED: "{m} was removed by an operator",
  SESSION_EXPIRED: "{m} sent no heartbeat in time and was removed", REBALANCE_EXPIRED: "{m} did not revoke its partitions in time and was removed",
  SUBSCRIPTION_CHANGED: "{m} changed its subscription", MEMBER_REPLACED: "{m} took over a static membership", MEMBER_AWAY: "{m}, a static member, left temporarily",
  TOPIC_CREATED: "topic {t} was created", TOPIC_GROWN: "topic {t} got more partitions", TOPIC_DELETED: "topic {t} was deleted",
  TERM_OPENED: "a new leader took over the group's shard", HEARTBEAT: "{m} reported its assignment", MEMBER_ACKED: "{m} confirmed its assignment",
  TARGET_COMPUTED: "a new target assignment was computed", GENERATION_COMPLETED: "the leader {m} assigned the partitions",
  LEADER_REJOINED: "the leader {m} joined again", JOIN_TIMED_OUT: "{m} did not join again in time", SYNC_TIMED_OUT: "{m} did not send SyncGroup in time",
  GROUP_UPGRADED: "the group moved from the classic to the consumer protocol with {m}", GROUP_DOWNGRADED: "the group moved back to the classic protocol, which all members speak now", GROUP_DELETED: "the group was deleted", MEMBER_UPDATED: "{m} changed what it asks for" };
const LOST = { EXPIRY: ", which did not respond in time", RESET: ", whose connection broke", TRANSFER: ", which handed it over as planned" };
function ofTerm({ node_id: node, previous_leader: before, why }) {
  const whom = before < 0 ? "the former leader" : "node " + before;
  return "Node " + node + (!LOST[why] ? " leads the group's shard: the node started."
    : before === node ? " lost the leadership of the group's shard and leads it again."
    : " took over the group's shard from " + whom + LOST[why] + ".");
}
function sentence(history, { trigger, member_id, reasons = [] }, epoch) {
  const say = (kind, id, topic, detail) => (PLAIN[kind] || String(kind).toLowerCase().replaceAll("_", " ") + (id ? " ({m})" : ""))
    .replace(/\{([mt])\}/g, (_, what) => what === "m" ? history.called(id || "") || "a member" : topic) + (detail ? " (" + detail + ")" : "");
  const parts = reasons.length ? reasons.slice(0, 3).map(one => say(one.kind, one.member_id, one.topic, one.detail)) : [say(trigger, member_id, "", "")];
  const rest = reasons.length > 3 ? " and " + (reasons.length - 3) + " more" : "";
  const words = parts.join(", ") + rest + (epoch === undefined ? "." : ": epoch " + epoch + " began.");
  return /^(topic|a|the) /.test(words) ? words[0].toUpperCase() + words.slice(1) : words;
}
function ranges(numbers) {
  const found = [];
  for (const n of numbers) { const last = found.at(-1); if (last && last[1] === n - 1) last[1] = n; else found.push([n, n]); }
  return found.slice(0, PARTITIONS_SHOWN).map(([a, b]) => a === b ? a : a + "–" + b).join(", ") + (found.length > PARTITIONS_SHOWN ? " …" : "");
}
const parts = owned => Object.entries(owned).slice(0, TOPICS_SHOWN).map(([topic, numbers]) => topic + " " + ranges(numbers)).join("; ") || "–";
