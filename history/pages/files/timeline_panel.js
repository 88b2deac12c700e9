/* The text beside the lanes: the state at the cursor, its reason, and the owners of partitions. */
const Panel = (() => {
  const {element, full, clock, duration, count} = Frame;
  const {members, epochs, findings, wall, HAND, STAND_WORDS} = Model;
  const OWNERS_SHOWN = 12, OWNERS_MAX = 400, NEAR_FINDINGS_MAX = 20;

  const jump = (view, at, words) => element("button", {type: "button", class: "link", onclick: () => view.go(at)}, words);

  function stateBadge(state) {
    const kind = state === "Stable" || state === "Empty" ? "settled" : state === "Dead" || !state ? "" : "restless";
    return element("span", {class: "state " + kind}, state || "no group yet");
  }

  function settledWords(epoch) {
    if (epoch.settled !== null) {
      const own = epoch.settled - epoch.began, unrest = epoch.toStable !== null && epoch.toStable > own ? ", after " + duration(epoch.toStable) + " of unrest" : "";
      return (epoch.members ? "stable " : "empty ") + (own > 0 ? "after " + duration(own) : "at once") + unrest + " (index " + epoch.settledIndex + ")";
    }
    return epoch.overtaken !== null ? "overtaken by " + epoch.noun + " " + epoch.overtaken + " after " + duration(Model.endOf(epoch) - epoch.at) : "not stable by the end";
  }

  /* A list with a heading; if it was cut, the number of omitted items is shown. */
  function list(heading, said, item) {
    if (!said.lines.length) return null;
    const lines = said.lines.map((line) => element("li", {class: item.later && item.later(line) ? "later" : null}, item.show(line)));
    if (said.more) lines.push(element("li", {class: "later-not"}, "… and " + said.more.toLocaleString("en-US") + " more"));
    return element("div", {}, element("h3", {}, heading), element("ul", {}, ...lines));
  }

  function show(place, view) {
    const at = view.cursor, {epoch, state} = Model.stateAt(at);
    const head = element("h2", {}, epoch ? epoch.noun[0].toUpperCase() + epoch.noun.slice(1) + " " + epoch.epoch + " " : "", stateBadge(state));
    const when = element("p", {class: "when"}, full(wall(at)));
    const parts = [head, when];
    parts.push(findingsHere(view, epoch, at));
    if (epoch) parts.push(...whyParts(view, epoch, at));
    parts.push(owners(view, at));
    if (epoch) parts.push(...stepParts(view, epoch, at));
    place.replaceChildren(...parts.filter((part) => part));
  }

  function whyParts(view, epoch, at) {
    const since = at === epoch.at ? "began here" : "began " + duration(at - epoch.at) + " before";
    return [
      ...epoch.why.lines.map((line) => element("p", {class: "why"}, line)),
      epoch.why.more ? element("p", {}, "… and " + count(epoch.why.more, "more reason")) : null,
      element("p", {}, "It ", jump(view, Math.max(epoch.at, 0), since), " (index " + epoch.index + "), with " + count(epoch.members, "member") + "; ", element("span", {}, settledWords(epoch)), "."),
    ];
  }
  function stepParts(view, epoch, at) {
    const later = ([moment]) => moment > at;
    return [
      list("Moved (" + count(epoch.moved, "partition") + ")", epoch.moves, {show: (line) => line}),
      list("Waits", epoch.waits, {later, show: ([moment, , words]) => element("span", {}, jump(view, moment, "+" + duration(moment - epoch.at)), " " + words)}),
      list("Step by step", epoch.steps, {later, show: ([moment, index, words]) => element("span", {}, jump(view, moment, "+" + duration(moment - epoch.at)), " " + words + " (index " + index + ")")}),
    ];
  }

  function findingsHere(view, epoch, at) {
    const here = findings.filter((one) => (one.at <= at && (one.end === null ? Model.span : one.end) >= at) || (epoch && one.epochs.includes(epoch.epoch)));
    if (!here.length) return null;
    const items = here.slice(0, NEAR_FINDINGS_MAX).map((one) => element("li", {class: "near"},
      element("span", {class: "severity " + one.severity}, one.severity), " ",
      jump(view, Math.max(one.at, 0), one.kind), " " + one.words));
    return element("ul", {}, ...items);
  }

  function owners(view, at) {
    const found = Model.ownersAt(at);
    if (!found.length) return null;
    const heading = element("h3", {}, "Who owned what");
    const row = (owner) => ownerRow(view, owner, at);
    if (found.length <= OWNERS_SHOWN + 4) return element("div", {}, heading, element("ul", {}, ...found.map(row)));
    // Owners in transition come first.
    const notable = (owner) => owner.member < 0 || owner.member === view.chosen || owner.revoking > 0 || standOf(owner, at) > 0;
    const sorted = [...found.filter(notable), ...found.filter((owner) => !notable(owner))];
    const rest = sorted.slice(OWNERS_SHOWN);
    const more = element("details", {open: unfolded, ontoggle: (event) => { unfolded = event.target.open; view.draw(); }},
      element("summary", {}, count(rest.length, "other")),
      unfolded ? element("ul", {}, ...rest.slice(0, OWNERS_MAX).map(row)) : null,
      rest.length > OWNERS_MAX ? element("p", {}, "and " + (rest.length - OWNERS_MAX) + " more: find them with /") : null);
    return element("div", {}, heading, element("ul", {}, ...sorted.slice(0, OWNERS_SHOWN).map(row)), more);
  }
  let unfolded = false;
  function standOf(owner, at) {
    const segments = members[owner.member].segments, place = Model.segmentAt(segments, at);
    return place < 0 ? 0 : segments[place + 2];
  }

  /* Long lists of partitions break after a comma. */
  function ownerItem(swatch, who, what) {
    const parts = what.split(",").flatMap((part, at) => at ? [",", element("wbr"), part] : [part]);
    return element("li", {class: "owner"}, swatch, element("span", {}, ...who, " ", element("span", {class: "what"}, ...parts)));
  }
  function ownerRow(view, owner, at) {
    const swatch = element("span", {class: "swatch", "aria-hidden": "true"});
    const what = Model.partitionWords(owner.topics);
    const some = owner.count ? owner.count + ": " + what : "nothing";
    if (owner.member < 0) {
      swatch.style.background = owner.member === -1 ? "var(--unowned)" : "var(--several)";
      return ownerItem(swatch, [element("span", {class: "bad"}, owner.member === -1 ? "nobody" : "several")], some);
    }
    const member = members[owner.member], stand = standOf(owner, at);
    swatch.style.background = Draw.memberColour(owner.member);
    const name = element("button", {type: "button", class: "link", title: "Bring this member out", "aria-pressed": String(view.chosen === owner.member), onclick: () => view.choose(owner.member)}, member.name);
    const client = member.instance || member.client;
    return ownerItem(swatch, [name, client ? " " + client : ""], some + (owner.revoking ? " (" + owner.revoking + " being given up)" : "") + (stand ? " — " + STAND_WORDS[stand] : ""));
  }

  /* The state of a lane at a moment in words, for the tooltip and for screen readers. */
  function laneWords(lane, at) {
    const clockWords = clock(wall(at));
    if (lane.kind === "row") {
      const place = Model.segmentAt(lane.row.segments, at), name = lane.row.label;
      if (place < 0) return name + "\n" + clockWords + ": not in the group";
      const [from, length, what, who] = lane.row.segments.slice(place, place + 4);
      const whose = what === HAND.UNOWNED ? "nobody's" : what === HAND.SEVERAL ? "in several hands, too fast to show"
        : what === HAND.REVOKING ? memberWords(members[who]) + " has it and was told to give it up" : memberWords(members[who]) + "'s";
      return name + "\n" + clockWords + ": " + whose + "\nfrom " + clock(wall(from)) + " for " + duration(length);
    }
    const place = Model.segmentAt(lane.member.segments, at);
    const described = memberWords(lane.member) + "\n" + lane.member.id + (lane.member.host ? " at " + lane.member.host : "");
    if (place < 0) {
      const ended = lane.member.sessions.filter((session) => session.end !== null && session.end <= at).pop();
      return described + "\n" + clockWords + ": not a member" + (ended ? " (" + ended.how + " at " + clock(wall(ended.end)) + ")" : "");
    }
    const [from, length, what, held] = lane.member.segments.slice(place, place + 4);
    return described + "\n" + clockWords + ": " + STAND_WORDS[what] + ", holds " + count(held, "partition") + "\nso from " + clock(wall(from)) + " for " + duration(length);
  }
  const memberWords = (member) => member.name + (member.instance ? " (instance " + member.instance + ")" : member.client ? " (" + member.client + ")" : "");

  function epochWords(epoch) {
    return epoch.noun + " " + epoch.epoch + " at " + clock(wall(epoch.at)) + "\n" + epoch.why.lines.slice(0, 3).join("\n") + "\n" + settledWords(epoch);
  }
  const termWords = (term) => clock(wall(term.at)) + " (index " + term.index + ")\n" + term.words;
  const findingWords = (finding) => finding.kind + " (" + finding.severity + ")\n" + finding.words;

  return {show, laneWords, epochWords, termWords, findingWords};
})();
