"""The page at a node's HTTP address in Chromium: `quorate up`, confluent-kafka members, a killed node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from cluster.supervisor_socket import ask
from quorate.client import Client
from tests.support import launched
from tests.support.browser import Tab, browser_path, opened
from tests.support.python_clients import (
    ConfluentMemberOfConsumerGroup,
    produce_with_confluent,
    running,
)
from tests.support.waiting import until

BROWSER = browser_path()
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        BROWSER is None,
        reason="no Chromium here, so no page is driven (Debian: apt-get install chromium)",
    ),
    pytest.mark.asyncio(loop_scope="module"),
]
GROUP = "<img src=x onerror=alert(1)>&web"
HOSTILE_CLIENT = "<b>app-3</b>"
WITHIN_S = 60.0
TEXT = "document.getElementById('group').innerText"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A cluster of `quorate up`, as it describes itself."""
    with launched.up(tmp_path_factory.mktemp("up") / "cluster", "--nodes", "3") as announced:
        yield announced


MOVES_TRIED = 10
"""Clicks on a button that moves a shard, while leadership settles after a restart."""


def urls(up: dict[str, Any]) -> list[str]:
    return [f"http://{node['host']}:{node['http_port']}" for node in up["nodes"]]


@pytest_asyncio.fixture(loop_scope="module")
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    assert BROWSER is not None
    async with opened(tmp_path / "browser", BROWSER) as tab:
        yield tab


def member(up: dict[str, Any], name: str) -> ConfluentMemberOfConsumerGroup:
    return ConfluentMemberOfConsumerGroup(up["bootstrap"], GROUP, "orders", name)


async def shows(tab: Tab, expression: str) -> None:
    async def holds() -> bool:
        return bool(await tab.evaluate(expression))

    try:
        await until(holds, WITHIN_S)
    except TimeoutError:
        raise AssertionError(
            f"never {expression} in {await tab.evaluate('document.body.innerText')}, {tab.complaints}"
        ) from None


async def click(tab: Tab, text: str) -> None:
    buttons = "[...document.querySelectorAll('button')]"
    await tab.evaluate(f"{buttons}.find(one => one.dataset.key === {text!r}).click(), 0")


ALL_OF_IT = """new Promise(done => {
  const read = [], feed = new EventSource(feedOrigin + '/v1/groups/' + encodeURIComponent(groupId) +
    '/events');
  feed.addEventListener('entry', ({ data }) => {
    read.push(JSON.parse(data).index);
    if (read.at(-1) < history_.last) return;
    feed.close();
    done(JSON.stringify(read) === JSON.stringify(history_.events.map(one => one.index)));
  });
})"""
"""Whether the page has every entry once, as one who reads them all now."""


async def test_the_page_follows_a_group_and_goes_on_when_its_node_is_killed(
    up: dict[str, Any], tab: Tab
) -> None:
    with Client(up["bootstrap"].split(",")[0]) as client:
        client.create_topic("orders", 6)
    with running(*(member(up, name) for name in ("app-1", "app-2", HOSTILE_CLIENT))):
        await tab.look(width=1400)
        await tab.visit(f"{urls(up)[0]}/")
        await shows(tab, "document.getElementById('lead').textContent === 'all well'")
        await shows(tab, "document.querySelectorAll('#list a').length === 1")
        assert await tab.evaluate("document.querySelector('#list a').textContent") == GROUP

        # By keyboard: the group's link, and back with Escape.
        await tab.evaluate("document.querySelector('#list a').focus()")
        await tab.press("Enter")
        await shows(tab, f"{TEXT}.includes('3 members') && {TEXT}.includes('s ago')")
        await shows(tab, f"{TEXT}.includes({HOSTILE_CLIENT!r}) && /joined: epoch \\d+ began/.test({TEXT})")
        assert await tab.evaluate("document.querySelectorAll('#group img, #group b').length") == 0
        assert await tab.evaluate("document.activeElement !== document.body")

        # Live: a fourth member comes without a reload, in the table and in the lanes.
        with running(member(up, "late")):
            await shows(tab, f"{TEXT}.includes('4 members') && {TEXT}.includes('(late) joined')")
            await shows(tab, "Lanes.all(history_).members.size === 4")
            await shows(tab, "Lanes.all(history_).partitions.size === 6")

            # How far the group is behind, by the node that has the messages.
            produce_with_confluent(up["bootstrap"], "orders", [b"message"] * 60)
            await shows(tab, f"offsets?.lag === 0 && offsets.of.size > 0 && {TEXT}.includes('lag 0,')")
            assert await tab.evaluate("[...offsets.of.values()].every(one => one.end === one.offset)")

            # The past by keyboard: from entry to entry, to the oldest, and back to now.
            await tab.evaluate("document.getElementById('scrub').focus()")
            while await tab.evaluate(f"!{TEXT}.includes('3 members')"):
                await tab.press("ArrowLeft")
            assert await tab.evaluate(f"{TEXT}.includes('As it was at') && !{TEXT}.includes('(late) joined')")
            await tab.press("Home")
            assert await tab.evaluate(f"{TEXT}.includes('0 members') || {TEXT}.includes('1 member')")
            await tab.press("End")
            assert await tab.evaluate(f"{TEXT}.includes('4 members') && {TEXT}.includes('Now.')")

            for width in (1400, 390):
                await tab.look(width=width, dark=width == 390)
                assert await tab.evaluate("document.documentElement.scrollWidth") <= width
            fetched = [url for url in tab.requests if not url.startswith("data:")]
            assert [url for url in fetched if not url.startswith(tuple(urls(up)))] == []
            assert [url for url in fetched if "/log?" in url] == []
            assert tab.complaints == []

            await tab.evaluate("window.confirm = text => { window.question = text; return true; }, 0")
            await click(tab, "kill 1")
            await shows(tab, "document.getElementById('source').textContent.includes('going on from node')")
            assert "this page's own node" in await tab.evaluate("window.question")
            await shows(tab, "document.getElementById('lead').textContent === 'degraded: node 1 is away'")
            assert await tab.evaluate("document.querySelectorAll('#cluster button').length") == 0
            said = "document.getElementById('said').textContent"
            await shows(tab, f"{said}.startsWith('Node 1 was killed as asked.')")
            gone_to = [url in await tab.evaluate(said) for url in urls(up)]
            assert gone_to in ([False, True, False], [False, False, True])
        await shows(tab, f"{TEXT}.includes('3 members') && {TEXT}.includes('(late) left')")
        assert await tab.evaluate(ALL_OF_IT)
        data = Path(up["nodes"][0]["data"]).parent
        await asyncio.to_thread(ask, data, "restart", 1, WITHIN_S)
        # Two looks, without the page's pause before each: the first sees the node, the second asks it.
        is_home = "() => document.getElementById('source').textContent === ''"
        await shows(tab, f"lookAtCluster().then(lookAtCluster).then({is_home})")

    await tab.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))")
    await shows(tab, "document.getElementById('group').hidden")


A_GROUP = """
  const parts = numbers => [{ topic_id: 'T', partitions: numbers }];
  const record = (type, member_id, value) =>
    ({ type: 'CONSUMER_GROUP_' + type, key: { group_id: 'g', member_id }, value });
  const current = (id, state, own, asked) => record('CURRENT_MEMBER_ASSIGNMENT', id,
    { member_epoch: 2, state, assigned_partitions: parts(own), partitions_pending_revocation: parts(asked) });
  const entry = (index, trigger, member_id, ...records) =>
    ({ index, timestamp_ms: index * 1000, cause: { trigger, member_id }, records, left_out: 0 });
  const client = id => ({ client_id: id.toUpperCase(), client_host: '/h', rebalance_timeout_ms: 9000 });
  const member = (id, own) => ({ ...client(id), member_id: id, state: 'STABLE', member_epoch: 3,
    assigned: { orders: own }, pending_revocation: {}, target: { orders: own } });
  const made = new History();
  made.fromMs = 5000;
  const group = { type: 'consumer', epoch: 3, assignment_epoch: 3, topics: { orders: { topic_id: 'T' } },
    members: [member('a', [0]), member('b', [1]), member('c', [2]),
      { ...member('d', []), member_epoch: -2 }] };
  made.see({ as_of_index: 12, at_ms: 13000, group });
  made.add(entry(9, 'MEMBER_JOINED', 'b', record('MEMBER_METADATA', 'b', client('b')),
    record('METADATA', undefined, { epoch: 3 }),
    record('TARGET_ASSIGNMENT_MEMBER', 'b', { topic_partitions: parts([1]) })));
  made.add(entry(10, 'HEARTBEAT', 'a', current('a', 'UNREVOKED_PARTITIONS', [0], [1])));
"""
"""A group as the page reads it: c did not move, b joined, a is asked to release a partition."""


async def told(tab: Tab, expression: str) -> Any:
    return json.loads(await tab.evaluate(f"(() => {{ {A_GROUP}; return JSON.stringify({expression}); }})()"))


async def test_the_page_tells_what_the_log_says_and_no_more(up: dict[str, Any], tab: Tab) -> None:
    await tab.visit(f"{urls(up)[1]}/")
    before = await told(tab, "made.at(0).members.map(one => [one.member_id, one.known, one.assigned])")
    assert before == [["a", False, {}], ["c", True, {"orders": [2]}], ["d", True, {"orders": []}]]
    assert await told(tab, "made.at(2).waits") == [
        {"waiter": "b", "owner": "a", "topic": "orders", "partition": 1, "since": 10_000, "limit_ms": 9_000}
    ]
    assert await told(tab, "made.causes(2, 9)") == [
        [10_000, "A was asked to revoke partitions."], [9_000, "B joined: epoch 3 began."]
    ]  # fmt: skip
    lanes = await told(tab, "Object.fromEntries(Lanes.all(made).partitions)")
    assert lanes == {
        "orders 0": [[10_000, None, 0, "a"]],
        "orders 1": [[10_000, None, 1, "a"]],
        "orders 2": [[5_000, None, 0, "c"]],
    }
    assert await told(tab, "Lanes.all(made).members.get('d')") == [[5_000, None, 4, 0]]  # it is away
    # An entry is taken in once; one that came without its records makes the past unknown.
    assert await told(tab, "made.add(entry(10, 'HEARTBEAT', 'a'))") is False
    anew = (
        "(made.add({ ...entry(11, 'HEARTBEAT', 'a'), left_out: 900 }), [made.events.length, made.base.size])"
    )
    assert await told(tab, anew) == [1, 0]


WHOLE_GROUPS = """
  const whole = (type, index, trigger, value) => ({ index, timestamp_ms: index * 1000, left_out: 0,
    cause: { trigger }, records: [{ type, key: { group_id: 'g' }, value }] });
  const read = (type, ...values) => {
    const made = new History();
    values.forEach((value, n) => made.add(whole(type, 1 + n, 'GENERATION_COMPLETED', value)));
    const { members, partitions } = Lanes.all(made);
    const epochs = made.events.map(one => one.epoch ?? null);
    return [epochs, Object.fromEntries(members), Object.fromEntries(partitions)];
  };
  const member = ([member_id, numbers]) =>
    ({ member_id, client_id: '', client_host: '/h', assigned: numbers.length ? { o: numbers } : {} });
  const classic = (generation, has) => ({ generation, members: Object.entries(has).map(member) });
  const consumer = ([consumer_id, state, ...partitions]) =>
    ({ consumer_id, state, owned: partitions.length ? [{ topic: 'o', partitions }] : [] });
  const older = (number, name, has) => ({ [name]: number, consumers: has.map(consumer) });
"""
"""Groups that are one record each, as the page reads them."""


async def test_the_page_names_a_new_leader_and_why_it_leads(up: dict[str, Any], tab: Tab) -> None:
    await tab.visit(f"{urls(up)[1]}/")
    of_term = (
        "['START', 'EXPIRY', 'RESET', 'TRANSFER'].flatMap(why => [-1, 1, 2].map(previous_leader => {"
        " made.add({ ...entry(++made.last + 1, 'TERM_OPENED'), records: [{ type: 'TERM_START',"
        " value: { node_id: 2, previous_leader, why } }] });"
        " return made.causes(made.events.length, 1)[0][1]; }))"
    )
    assert await told(tab, of_term) == [
        *["Node 2 leads the group's shard: the node started."] * 3,
        "Node 2 took over the group's shard from the former leader, which did not respond in time.",
        "Node 2 took over the group's shard from node 1, which did not respond in time.",
        "Node 2 lost the leadership of the group's shard and leads it again.",
        "Node 2 took over the group's shard from the former leader, whose connection broke.",
        "Node 2 took over the group's shard from node 1, whose connection broke.",
        "Node 2 lost the leadership of the group's shard and leads it again.",
        "Node 2 took over the group's shard from the former leader, which handed it over as planned.",
        "Node 2 took over the group's shard from node 1, which handed it over as planned.",
        "Node 2 lost the leadership of the group's shard and leads it again.",
    ]


LINES = """[...document.querySelectorAll('#cluster td')].filter(one =>
  one.getAttribute('data-name') === 'Lag by node' && one.clientHeight > 40).length"""


async def test_rows_of_shards_are_one_line_and_groups_come_first_on_a_phone(
    up: dict[str, Any], tab: Tab
) -> None:
    await tab.look(width=1280)
    await tab.visit(f"{urls(up)[1]}/")
    await shows(tab, "document.querySelectorAll('#cluster td .keep').length > 5 && groups !== null")
    await shows(tab, f"{LINES} === 0")
    top = "document.getElementById('{}').getBoundingClientRect().top"
    assert await tab.evaluate(top.format("groups") + " > " + top.format("cluster"))
    await tab.look(width=390)
    assert await tab.evaluate(top.format("groups") + " < " + top.format("cluster"))


async def test_groups_of_other_protocols_have_lanes_from_their_one_record(
    up: dict[str, Any], tab: Tab
) -> None:
    await tab.visit(f"{urls(up)[1]}/")

    async def lanes(expression: str) -> Any:
        return json.loads(
            await tab.evaluate(f"(() => {{ {WHOLE_GROUPS}; return JSON.stringify({expression}); }})()")
        )

    of_classic = (
        "read('GROUP_METADATA', classic(0, {}), classic(1, {a: [0, 1]}), classic(2, {a: [0], b: [1]}),"
        " classic(3, {b: [0, 1]}), null)"
    )
    assert await lanes(of_classic) == [
        [None, 1, 2, 3, None],
        {"a": [[2000, 3000, 0, 2], [3000, 4000, 0, 1]], "b": [[3000, 4000, 0, 1], [4000, 5000, 0, 2]]},
        {
            "o 0": [[2000, 4000, 0, "a"], [4000, 5000, 0, "b"], [5000, None, 2, None]],
            "o 1": [[2000, 3000, 0, "a"], [3000, 5000, 0, "b"], [5000, None, 2, None]],
        },
    ]
    of_rewrite = "read('REWRITE_GROUP', older(4, 'generation', [['a', undefined, 0]]))"
    assert await lanes(of_rewrite) == [[4], {"a": [[1000, None, 0, 1]]}, {"o 0": [[1000, None, 0, "a"]]}]
    of_push = (
        "read('PUSH_GROUP', older(1, 'round', [['a', 'STARTED', 0]]), "
        "older(2, 'round', [['a', 'STOPPING', 0], ['b', 'WAITING']]), "
        "older(2, 'round', [['a', 'STARTING'], ['b', 'STARTED', 0]]))"
    )
    assert await lanes(of_push) == [
        [1, 2, None],
        {
            "a": [[1000, 2000, 0, 1], [2000, 3000, 3, 1], [3000, None, 1, 0]],
            "b": [[2000, 3000, 1, 0], [3000, None, 0, 1]],
        },
        {"o 0": [[1000, 2000, 0, "a"], [2000, 3000, 1, "a"], [3000, None, 0, "b"]]},
    ]
    # A group that was seen before the first record that is read, and a member that has gone since.
    seen = (
        "(() => { const made = new History(), has = numbers => ({ ...classic(1, { a: numbers }).members[0], "
        "member_epoch: 7, pending_revocation: {} }); made.fromMs = 500; "
        "made.see({ as_of_index: 1, at_ms: 900, group: { type: 'classic', state: 'Stable', epoch: 7, "
        "members: [has([0])] } }); made.add(whole('GROUP_METADATA', 2, 'MEMBER_LEFT', classic(8, {}))); "
        "return Object.fromEntries(Lanes.all(made).members); })()"
    )
    assert await lanes(seen) == {"a": [[500, 2000, 0, 1]]}


async def test_the_page_says_when_lanes_do_not_begin_with_the_group(up: dict[str, Any], tab: Tab) -> None:
    await tab.visit(f"{urls(up)[1]}/")
    assert await told(tab, "made.lacks()") == ""
    assert await told(tab, "(made.cut = 'old', made.lacks())") == "old"
    begun = "(() => { const all = new History(); all.cut = 'old'; all.add(entry(8, 'MEMBER_JOINED', 'a', "
    begun += "record('METADATA', undefined, { epoch: 1 }))); return all.lacks(); })()"
    assert await told(tab, begun) == ""  # it began among the entries that were read
    classic = "(() => { const all = new History(); all.cut = 'old'; for (const generation of [0, 2]) "
    classic += (
        "all.add({ ...entry(8 + generation, 'MEMBER_JOINED', 'a'), records: [{ type: 'GROUP_METADATA', "
    )
    classic += "value: { generation, members: [] } }] }); return all.lacks(); })()"
    assert await told(tab, classic) == ""
    many = "(() => { for (let n = 0; n < EVENTS_KEPT; n++) made.add(entry(20 + n, 'HEARTBEAT', 'a')); "
    assert await told(tab, many + "return made.lacks(); })()") == "many"
    assert (
        await told(tab, "(made.add({ ...entry(11, 'HEARTBEAT', 'a'), left_out: 9 }), made.lacks())")
        == "large"
    )
    begin = "(history_ = made, drawBegin(), document.getElementById('begin').textContent)"
    assert await told(tab, begin) == ""
    said = await told(tab, f"(made.cut = 'old', {begin})")
    assert said.startswith("The group is older than these lanes, which begin at ")
    assert "quorate log timeline" in said


A_QUIET_GROUP = """(() => {
  const clock = Date.now, at_ms = Date.now(), text = id => document.getElementById(id).innerText;
  const members = ['a', 'b', 'c'].map((id, n) => ({ ...member(id, [n]), waits_for: [],
    last_heartbeat_ms: at_ms - 1000 * (n + 1) }));
  const row = { group_id: 'g', state: 'Reconciling', type: 'consumer', members: 2, epoch: 2, offsets: 0 };
  Date.now = () => at_ms; Lanes.skew = 0;
  groupId = 'g'; history_ = made; groups = { groups: [row], next_after: null };
  history_.view = { shard: 0, at_ms, as_of_index: 12,
    group: { ...group, group_id: 'g', state: 'Stable', state_since_ms: at_ms - 700, members } };
  drawGroup(); drawGroups();
  const read = ['about', 'list', 'members'].map(text);
  Date.now = () => at_ms + 60000;
  tick();
  read.push(...['about', 'members'].map(text));
  Date.now = clock;
  retries = 1; drawGroups();
  read.push(text('list'));
  retries = 0; history_.view = { ...history_.view, group: null }; drawGroups();
  return [...read, text('list')];
})()"""
"""The page at once, a minute later without an event, without its feed, and when the group has gone."""


async def test_times_go_on_while_nothing_happens_and_the_list_agrees_with_the_group(
    up: dict[str, Any], tab: Tab
) -> None:
    await tab.visit(f"{urls(up)[1]}/")
    await shows(tab, "document.getElementById('lead').textContent.length > 0 && groups !== null")
    await tab.evaluate("document.getElementById('group').hidden = false, 0")
    about, listed, members, *later, lost, gone = await told(tab, A_QUIET_GROUP)
    assert "stable for 0.7 s" in about
    assert "As of" not in about
    assert "1.0 s ago" in members
    assert "Stable" in listed
    assert "stable for 61 s" in later[0]
    assert "As of 60 s ago." in later[0]
    assert [f"{60 + n} s ago" in later[1] for n in (1, 2, 3)] == [True] * 3
    assert "Reconciling" in lost, "the list is newer than a feed that is lost"
    assert gone == "no group yet: start a consumer"


async def test_the_page_of_another_node_restarts_it_and_moves_a_shard(up: dict[str, Any], tab: Tab) -> None:
    await tab.visit(f"{urls(up)[1]}/")
    await shows(tab, "!!document.querySelector('[data-key=\"restart 1\"]')")
    await click(tab, "restart 1")
    await shows(tab, "document.getElementById('said').textContent.startsWith('node 1 serves again')")
    for _ in range(MOVES_TRIED):  # the metadata shard's leader takes the request, and node 1 may get it back
        leader = await tab.evaluate("cluster.shards.find(one => one.shard < 0).leader_id")
        if leader is not None:
            await tab.visit(f"{urls(up)[leader - 1]}/")
        await shows(tab, "!!document.querySelector('#cluster table')")
        button = "document.querySelector('[data-key^=move][data-key$=\" 3\"]:enabled')"
        if await tab.evaluate(f"!!{button}"):
            await tab.evaluate(f"{button}.click(), 0")
            await shows(tab, "/: .*[^…]$/.test(document.getElementById('said').textContent)")
            if await tab.evaluate("document.getElementById('said').textContent.endsWith(': done')"):
                return
    raise AssertionError(await tab.evaluate("document.body.innerText"))


async def test_a_hidden_page_asks_for_nothing(up: dict[str, Any], tab: Tab) -> None:
    await tab.visit(f"{urls(up)[1]}/#{quote(GROUP, safe='')}")
    await shows(tab, "document.getElementById('lead').textContent.length > 0 && feed?.readyState === 1")
    await tab.evaluate(
        "Object.defineProperty(document, 'hidden', {get: () => window.isHidden ?? true, configurable: true}),"
        "window.asked = 0, window.realFetch = window.fetch,"
        "window.fetch = (...given) => { window.asked++; return window.realFetch(...given); },"
        "document.dispatchEvent(new Event('visibilitychange')), 0"
    )
    # A round of the page's own interval, on the page's own clock.
    await tab.evaluate("new Promise(done => setTimeout(done, 1.1 * CLUSTER_MS))")
    assert await tab.evaluate("window.asked === 0 && feed === null")
    await tab.evaluate("window.isHidden = false, document.dispatchEvent(new Event('visibilitychange')), 0")
    await shows(tab, "window.asked > 0 && feed?.readyState === 1")
