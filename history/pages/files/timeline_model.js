/* The data of the timeline, and the state at a moment. Times are ms since the beginning of the page; lanes are flat
   arrays of numbers, four per segment (from, length, state, member or number of partitions), in order of time. */
const Model = (() => {
  const data = Frame.data;
  const HAND = {OWNED: 0, REVOKING: 1, UNOWNED: 2, SEVERAL: 3};
  const STAND = {IN_STEP: 0, BEHIND: 1, WAITING: 2, GIVING_UP: 3, AWAY: 4};
  const STAND_WORDS = ["in step", "not at the " + data.noun + " yet", "waiting for partitions", "giving up partitions", "away"];
  const SIZE = 4;

  const {members, rows, epochs, findings, terms, span} = data;
  for (const row of rows) { row.numbers = new Set(row.partitions); row.numbersText = row.label.slice(row.topic.length + 1); }
  members.forEach((member, number) => { member.number = number; });
  const takeovers = terms.filter((term) => term.takeover);
  // The term in which a group begins is not an event; any later one explains a silence.
  const starts = terms.filter((term) => !term.takeover && term.at > 0);

  const wall = (at) => data.from + at;

  /* Position (in numbers) of the segment that contains a moment; -1: none. */
  function segmentAt(segments, at) {
    let low = 0, high = segments.length / SIZE - 1;
    while (low <= high) {
      const middle = (low + high) >> 1, from = segments[middle * SIZE];
      if (from > at) high = middle - 1;
      else if (from + segments[middle * SIZE + 1] > at) return middle * SIZE;
      else low = middle + 1;
    }
    return -1;
  }

  /* Position of the first segment that ends after a moment. */
  function firstAfter(segments, at) {
    let low = 0, high = segments.length / SIZE;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (segments[middle * SIZE] + segments[middle * SIZE + 1] <= at) low = middle + 1;
      else high = middle;
    }
    return low * SIZE;
  }

  /* The number of the newest event at or before a moment; -1: none. */
  function newest(events, at) {
    let low = 0, high = events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (events[middle].at <= at) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  const endOf = (epoch) => epoch.end === null ? span : epoch.end;
  const settledBy = (epoch) => epoch.settled === null ? endOf(epoch) : epoch.settled;

  /* The group's state at a moment, by Kafka's name; "" if there is no group. */
  function stateAt(at) {
    const number = newest(epochs, at);
    if (number < 0) return {number, epoch: null, state: ""};
    const epoch = epochs[number];
    const gone = data.gone.some((one) => one.at > epoch.at && one.at <= at);
    if (gone || (epoch.end !== null && at >= epoch.end && number === epochs.length - 1)) return {number, epoch: null, state: "Dead"};
    const next = epochs[number + 1];
    if (next && next.began < next.at && at >= next.began) return {number, epoch, state: "PreparingRebalance"};  // the join phase
    if (epoch.settled !== null && at >= epoch.settled) return {number, epoch, state: epoch.members ? "Stable" : "Empty"};
    return {number, epoch, state: epoch.target === null || at < epoch.target ? "Assigning" : "Reconciling"};
  }

  /* The owners at a moment: a list of {member (-1: no owner), partitions: {topic: numbers}, count, revoking}. */
  function ownersAt(at) {
    const owners = new Map();
    for (const row of rows) {
      const place = segmentAt(row.segments, at);
      if (place < 0) continue;
      const what = row.segments[place + 2];
      const key = what === HAND.SEVERAL ? -2 : row.segments[place + 3];
      if (!owners.has(key)) owners.set(key, {member: key, topics: new Map(), count: 0, revoking: 0});
      const owner = owners.get(key);
      owner.count += row.partitions.length;
      if (what === HAND.REVOKING) owner.revoking += row.partitions.length;
      if (!owner.topics.has(row.topic)) owner.topics.set(row.topic, []);
      owner.topics.get(row.topic).push(...row.partitions);
    }
    for (const member of members) {
      if (!owners.has(member.number) && segmentAt(member.segments, at) >= 0)
        owners.set(member.number, {member: member.number, topics: new Map(), count: 0, revoking: 0});
    }
    return [...owners.values()].sort((a, b) => a.member - b.member);
  }

  function ranges(numbers) {
    const sorted = [...numbers].sort((a, b) => a - b), parts = [];
    for (let first = 0, last; first < sorted.length; first = last + 1) {
      last = first;
      while (sorted[last + 1] === sorted[last] + 1) last++;
      parts.push(first === last ? sorted[first] : sorted[first] + "-" + sorted[last]);
    }
    return parts.join(",");
  }
  const partitionWords = (topics) =>
    [...topics].sort().map(([topic, numbers]) => topic + " " + ranges(numbers)).join("; ") || "nothing";

  /* Whether anything changes in a lane between two moments, ignoring that a member reaches an epoch. */
  function changes(segments, from, to, isMember) {
    let before = null, until = from;
    for (let at = firstAfter(segments, from); at < segments.length && segments[at] < to; at += SIZE) {
      const what = isMember && segments[at + 2] === STAND.BEHIND ? STAND.IN_STEP : segments[at + 2];
      const said = what + " " + segments[at + 3];
      if (segments[at] > until || (before !== null && said !== before)) return true;
      before = said;
      until = segments[at] + segments[at + 1];
    }
    return before !== null && until < Math.min(to, span);
  }
  /* Whether a member owns the partitions of a lane at any time between two moments. */
  function holds(segments, number, from, to) {
    for (let at = firstAfter(segments, from); at < segments.length && segments[at] < to; at += SIZE)
      if (segments[at + 3] === number && segments[at + 2] < HAND.UNOWNED) return true;
    return false;
  }

  /* The lanes that match a search: by name, client id, instance id, member id, host, topic or topic-partition. */
  function matches(text) {
    const said = text.trim().toLowerCase();
    if (!said) return {members: [], rows: []};
    const [, topic, number] = /^(.*?)-(\d+)$/.exec(said) || [];
    const exact = members.filter((member) => member.name.toLowerCase() === said || member.id.toLowerCase() === said);
    return {
      members: exact.length ? exact : members.filter((member) =>
        [member.name, member.client, member.instance || "", member.id, member.host].some((one) => one.toLowerCase().includes(said))),
      rows: rows.filter((row) => row.topic.toLowerCase().includes(said)
        || (topic !== undefined && row.topic.toLowerCase() === topic && row.numbers.has(Number(number)))),
    };
  }

  /* The share of each slice in which the group was not stable; slice i is from edges[i] to edges[i + 1]. */
  function restlessShares(edges) {
    const shares = new Float32Array(edges.length - 1);
    let at = 0;
    for (const epoch of epochs) {
      const to = settledBy(epoch);
      while (at < shares.length && edges[at + 1] <= epoch.began) at++;
      for (let slice = at; slice < shares.length && edges[slice] < to; slice++)
        shares[slice] += (Math.min(to, edges[slice + 1]) - Math.max(epoch.began, edges[slice])) / (edges[slice + 1] - edges[slice]);
    }
    return shares;
  }

  /* For each slice of the strip, the share in which the group was not stable, and its number of unowned partitions;
     slice i is from edges[i] to edges[i + 1]. */
  function slices(edges) {
    const count = edges.length - 1, restless = new Float32Array(count), unowned = new Float32Array(count);
    const sliceOf = (time) => {
      let low = 0, high = count;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (edges[middle] <= time) low = middle;
        else high = middle;
      }
      return low;
    };
    const add = (into, from, to, weight) => {
      for (let at = sliceOf(from); at < count && edges[at] < to; at++)
        into[at] += weight * (Math.min(to, edges[at + 1]) - Math.max(from, edges[at])) / (edges[at + 1] - edges[at]);
    };
    for (const epoch of epochs) add(restless, Math.max(epoch.began, 0), settledBy(epoch), 1);
    for (const row of rows)
      for (let at = 0; at < row.segments.length; at += SIZE)
        if (row.segments[at + 2] === HAND.UNOWNED) add(unowned, row.segments[at], row.segments[at] + row.segments[at + 1], row.partitions.length);
    return {restless, unowned};
  }

  /* Quiet times, in which the group is stable and no member joins or leaves: [[from, to], …], not sorted by length. */
  function quiet(longer) {
    const busy = epochs.map((epoch) => [epoch.began, settledBy(epoch)]);
    for (const term of terms) busy.push([term.at, term.at]);
    for (const finding of findings) busy.push([finding.at, finding.at]);
    for (const fault of data.faults) busy.push([fault.at, fault.at]);
    for (const member of members)
      for (let at = 0; at < member.segments.length; at += SIZE)
        if (member.segments[at + 2] !== STAND.IN_STEP) busy.push([member.segments[at], member.segments[at]], [member.segments[at] + member.segments[at + 1], member.segments[at] + member.segments[at + 1]]);
    busy.sort((a, b) => a[0] - b[0]);
    const found = [];
    let until = 0;
    for (const [from, to] of [...busy, [span, span]]) {
      if (from - until > longer) found.push([until, from]);
      until = Math.max(until, to);
    }
    return found;
  }

  return {data, members, rows, epochs, findings, terms, takeovers, starts, span, HAND, STAND, STAND_WORDS, SIZE, wall,
    segmentAt, firstAfter, newest, endOf, settledBy, stateAt, ownersAt, partitionWords, ranges, changes, holds, matches, restlessShares, slices, quiet};
})();

/* Maps moments to positions: x grows with time, but quiet times may be squeezed. Positions ("places") are also ms, on
   a time axis in which the squeezed pieces are short. */
const Scale = (() => {
  const {span, quiet, epochs, settledBy} = Model;
  const lengths = epochs.map((epoch) => settledBy(epoch) - epoch.at).filter((length) => length > 0).sort((a, b) => a - b);
  const short = Math.max(1000, 3 * (lengths[lengths.length >> 1] || 0));
  const pieces = quiet(2 * short);
  const knots = [[0, 0]];
  for (const [from, to] of pieces) {
    const [time, place] = knots[knots.length - 1];
    knots.push([from, place + from - time], [to, place + from - time + short]);
  }
  const [lastTime, lastPlace] = knots[knots.length - 1];
  knots.push([span, lastPlace + span - lastTime]);
  const total = knots[knots.length - 1][1];
  let squeezed = span > 3 * total;

  function along(value, from, to) {
    if (!squeezed) return value;
    let low = 0, high = knots.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (knots[middle][from] <= value) low = middle;
      else high = middle;
    }
    const a = knots[low], b = knots[high];
    return b[from] === a[from] ? a[to] : a[to] + (value - a[from]) * (b[to] - a[to]) / (b[from] - a[from]);
  }
  return {
    place: (time) => along(time, 0, 1),
    time: (place) => along(place, 1, 0),
    total: () => squeezed ? total : span,
    pieces: () => squeezed ? pieces : [],
    isSqueezed: () => squeezed,
    canSqueeze: pieces.length > 0,
    squeeze: (on) => { squeezed = on && pieces.length > 0; },
  };
})();
