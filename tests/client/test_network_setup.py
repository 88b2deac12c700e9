"""The set-up of a connection before the first request: ApiVersions, SASL, and their failures."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from scramp import ScramMechanism

from client.core.network.addresses import Address
from client.core.network.connection import REAUTHENTICATE_MS_MIN
from client.core.network.setup import SOFTWARE
from client.core.requests import RequestFailure
from tests.client.fake_network import (
    Answer,
    Answers,
    ClientRig,
    FakeNetwork,
    ReceivedRequest,
    list_offsets,
    served,
)
from wire.apis import API_VERSIONS, ApiKey
from wire.errors import ErrorCode
from wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from wire.messages.list_offsets import ListOffsetsResponse
from wire.messages.sasl_authenticate import SaslAuthenticateResponse
from wire.messages.sasl_handshake import SaslHandshakeResponse


def node_of(max_version: int) -> Callable[[ReceivedRequest], Answer]:
    """A node whose newest version of ApiVersions is that one."""

    def answer(asked: ReceivedRequest) -> Answer:
        if asked.version <= max_version:
            return served(API_VERSIONS=(0, max_version))
        own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=max_version)
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])

    return answer


@pytest.mark.parametrize(("max_version", "asked"), [(4, [4]), (3, [4, 3]), (0, [4, 0])])
def test_the_nodes_version_of_api_versions_is_found(max_version: int, asked: list[int]) -> None:
    network = FakeNetwork()
    network.answer(ApiKey.API_VERSIONS, node_of(max_version))
    rig = ClientRig(network)
    rig.run()
    requests = network.asked_for(ApiKey.API_VERSIONS)
    assert [one.version for one in requests] == asked
    assert (requests[0].body.client_software_name, requests[0].body.client_software_version) == SOFTWARE
    assert rig.coordinator.node_id == 1


def test_a_node_that_refuses_every_version_is_left_alone() -> None:
    network = FakeNetwork()
    code = ErrorCode.UNSUPPORTED_VERSION
    network.answer(ApiKey.API_VERSIONS, lambda asked: ApiVersionsResponse(error_code=code))
    rig = ClientRig(network)
    rig.run(500)
    assert len(network.asked_for(ApiKey.API_VERSIONS)) <= 40
    assert rig.coordinator.node_id is None


def test_the_highest_common_version_is_used() -> None:
    network = FakeNetwork()
    network.limit(METADATA=(0, 9), FIND_COORDINATOR=(0, 99))
    rig = ClientRig(network)
    rig.run()
    assert network.asked_for(ApiKey.METADATA)[0].version == 9
    assert network.asked_for(ApiKey.FIND_COORDINATOR)[0].version == API_VERSIONS[ApiKey.FIND_COORDINATOR][1]


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ((0, 0), "this client speaks ListOffsets 1 to 10; the node at n1:9092 serves its versions 0 to 0"),
        ((0, -1), "this client speaks ListOffsets 1 to 10; the node at n1:9092 does not serve it"),
    ],
)
def test_a_version_that_the_node_lacks_is_named(theirs: tuple[int, int], words: str) -> None:
    network = FakeNetwork()
    network.limit(LIST_OFFSETS=theirs)
    rig, answers = ClientRig(network), Answers()
    rig.run()
    rig.send(list_offsets(answers, to=1))
    rig.run()
    assert answers.last[1:3] == (RequestFailure.UNSUPPORTED_VERSION, -1)
    assert answers.last.words == words


def test_a_node_that_never_answers_api_versions_is_given_up() -> None:
    network = FakeNetwork(nodes=1)
    network.answer(ApiKey.API_VERSIONS, lambda asked: None)
    rig = ClientRig(network)
    rig.run(9_999)
    assert len(network.connections) == 1
    rig.run(1)
    assert len(network.connections) == 0


def test_the_time_limit_of_the_set_up_doubles_until_a_connection_is_usable() -> None:
    """KIP-601."""
    network = FakeNetwork(nodes=1)
    rig = ClientRig(network, reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
    network.answer(ApiKey.API_VERSIONS, lambda asked: None)
    for limit_ms in (10_000, 20_000, 30_000, 30_000):
        rig.run(limit_ms - 1)
        before = set(network.connections)
        rig.run(1)
        assert before.isdisjoint(network.connections)
    network.answer(ApiKey.API_VERSIONS, lambda asked: served())
    rig.run(30_000)
    assert rig.delegate.addresses.failed_setups(Address("n1", 9092)) == 0


# SASL


def sasl(mechanism: str, **settings: Any) -> dict[str, Any]:
    """The settings of a client that authenticates."""
    names = {"sasl_username": "ann", "sasl_password": "pencil"}
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism} | names | settings


def sasl_network(*answers: SaslAuthenticateResponse, mechanisms: tuple[str, ...] = ("PLAIN",)) -> FakeNetwork:
    """Nodes that answer SaslAuthenticate by a list, whose last entry is repeated."""
    network, left = FakeNetwork(), list(answers)

    def handshake(asked: ReceivedRequest) -> SaslHandshakeResponse:
        is_known = asked.body.mechanism in mechanisms
        code = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(error_code=code, mechanisms=list(mechanisms))

    network.answer(ApiKey.SASL_HANDSHAKE, handshake)
    network.answer(ApiKey.SASL_AUTHENTICATE, lambda asked: left.pop(0) if len(left) > 1 else left[0])
    return network


def test_plain_sends_name_and_password() -> None:
    network = sasl_network(SaslAuthenticateResponse())
    rig = ClientRig(network, **sasl("PLAIN"))
    rig.run()
    assert [one.api for one in network.asked][:4] == [
        ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.FIND_COORDINATOR,
    ]  # fmt: skip
    assert network.asked[2].body.auth_bytes == b"\0ann\0pencil"
    assert rig.coordinator.node_id == 1


def test_a_wrong_password_is_told_once_and_fails_what_waits() -> None:
    refusal = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="Invalid username or password"
    )
    network = sasl_network(refusal)
    rig, answers = ClientRig(network, **sasl("PLAIN")), Answers()
    rig.send(list_offsets(answers, to=0))
    rig.run(60_000)
    words = "authentication failed: Invalid username or password (SASL_AUTHENTICATION_FAILED)"
    assert rig.errors() == [words]
    assert rig.coordinator.unknown_because == words
    assert len(network.asked_for(ApiKey.SASL_HANDSHAKE)) < 200  # it goes on trying: a password may be changed


def test_a_mechanism_that_the_node_lacks_is_named() -> None:
    rig = ClientRig(sasl_network(mechanisms=("GSSAPI", "SCRAM-SHA-256")), **sasl("PLAIN"))
    rig.run()
    (error,) = rig.errors()
    assert "UNSUPPORTED_SASL_MECHANISM: PLAIN is not among the mechanisms GSSAPI, SCRAM-SHA-256" in error


def test_a_node_without_authentication_says_so() -> None:
    network = FakeNetwork(nodes=1)
    network.answer(ApiKey.SASL_HANDSHAKE, lambda asked: network.cut(asked.connection))
    rig = ClientRig(network, **sasl("PLAIN"))
    rig.run(2_500)
    assert "ended while authenticating" in rig.coordinator.unknown_because


class ScramNode:
    """The server's side of SCRAM."""

    def __init__(self, mechanism: str, password: str, *, iterations: int = 4096, lies: bool = False) -> None:
        self.mechanism = ScramMechanism(mechanism)
        keys = self.mechanism.make_auth_info(password, iteration_count=4096)
        self.keys, self.iterations, self.lies = keys, iterations, lies
        self.server: Any = None

    def __call__(self, asked: ReceivedRequest) -> SaslAuthenticateResponse:
        text = asked.body.auth_bytes.decode()
        if text.startswith("n,,"):
            self.server = self.mechanism.make_server(lambda name: self.keys)
            self.server.set_client_first(text)
            first = self.server.get_server_first()
            if self.iterations > 4096:
                first = first.replace("i=4096", f"i={self.iterations}")
            return SaslAuthenticateResponse(auth_bytes=first.encode())
        try:
            self.server.set_client_final(text)
        except Exception:
            return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        final = self.server.get_server_final().encode()
        if self.lies:
            final = b"v=" + base64.b64encode(bytes(32))
        return SaslAuthenticateResponse(auth_bytes=final)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_proves_the_password_both_ways(mechanism: str) -> None:
    network = sasl_network(mechanisms=(mechanism,))
    network.answer(ApiKey.SASL_AUTHENTICATE, ScramNode(mechanism, "pencil"))
    rig = ClientRig(network, **sasl(mechanism))
    rig.run()
    assert (rig.coordinator.node_id, rig.errors()) == (1, [])


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (ScramNode("SCRAM-SHA-256", "another"), "no reason given (SASL_AUTHENTICATION_FAILED)"),
        (ScramNode("SCRAM-SHA-256", "pencil", lies=True), "The server signature doesn't match"),
        (ScramNode("SCRAM-SHA-256", "pencil", iterations=10**9), "the server wants b'1000000000' rounds"),
    ],
    ids=["wrong password", "lying server", "a month of hashing"],
)
def test_scram_is_refused(node: ScramNode, words: str) -> None:
    network = sasl_network(mechanisms=("SCRAM-SHA-256",))
    network.answer(ApiKey.SASL_AUTHENTICATE, node)
    rig = ClientRig(network, **sasl("SCRAM-SHA-256"))
    rig.run()
    (error,) = rig.errors()
    assert words in error


def token_settings(callback: Callable[[str], Any]) -> dict[str, Any]:
    return sasl(
        "OAUTHBEARER", sasl_oauthbearer_token_callback=callback, sasl_oauthbearer_config="scope=kafka"
    )


def test_oauthbearer_sends_the_token_of_the_users_function() -> None:
    network = sasl_network(SaslAuthenticateResponse(), mechanisms=("OAUTHBEARER",))
    rig = ClientRig(network, **token_settings(lambda config: (f"token-{config}", 1e9)))
    rig.run()
    assert network.asked_for(ApiKey.SASL_AUTHENTICATE)[0].body.auth_bytes == (
        b"n,,\x01auth=Bearer token-scope=kafka\x01\x01"
    )
    assert rig.coordinator.node_id == 1


def test_a_token_function_that_raises_is_named() -> None:
    def fail(config: str) -> str:
        raise RuntimeError("no route to the identity provider")

    rig = ClientRig(sasl_network(mechanisms=("OAUTHBEARER",)), **token_settings(fail))
    rig.run()
    (error,) = rig.errors()
    assert "sasl.oauthbearer.token.callback raised RuntimeError('no route to the identity provider')" in error


def test_a_refused_token_is_named() -> None:
    reason = SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')
    refusal = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
    network = sasl_network(reason, refusal, mechanisms=("OAUTHBEARER",))
    rig = ClientRig(network, **token_settings(lambda config: "token"))
    rig.run()
    assert network.asked_for(ApiKey.SASL_AUTHENTICATE)[1].body.auth_bytes == b"\x01"
    assert len(rig.errors()) == 1


def test_a_mechanism_without_end_is_ended() -> None:
    network = sasl_network(SaslAuthenticateResponse(auth_bytes=b"x"), mechanisms=("SCRAM-SHA-256",))
    rig = ClientRig(network, **sasl("SCRAM-SHA-256"))
    rig.run()
    assert len(rig.errors()) == 1


def test_a_session_is_renewed_on_the_same_connection_before_it_ends() -> None:
    """KIP-368: requests in flight get their answers, later ones wait for the authentication."""
    network = sasl_network(SaslAuthenticateResponse(session_lifetime_ms=10_000))
    rig, slow, waiting = ClientRig(network, **sasl("PLAIN")), Answers(), Answers()
    rig.run()
    rig.send(list_offsets(slow, to=1))
    rig.run(8_400)
    (asked,) = network.asked_for(ApiKey.LIST_OFFSETS)
    before = dict(network.connections)
    network.nodes[1].answers[ApiKey.SASL_HANDSHAKE] = lambda asked: None
    rig.run(100)
    rig.send(list_offsets(waiting, to=1))
    rig.run()
    assert len(network.asked_for(ApiKey.LIST_OFFSETS)) == 1
    network.reply(asked, ListOffsetsResponse())
    handshake = network.asked_for(ApiKey.SASL_HANDSHAKE)[-1]
    network.reply(handshake, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    rig.run()
    assert slow.failures == [None]
    assert len(network.asked_for(ApiKey.LIST_OFFSETS)) == 2
    assert network.connections == before


@pytest.mark.parametrize(("lifetime_ms", "times"), [(1, 11), (-1, 1), (-(2**63), 1), (2**63 - 1, 1)])
def test_a_session_of_any_lifetime_is_renewed_once_a_second_at_most(lifetime_ms: int, times: int) -> None:
    network = sasl_network(SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))
    rig = ClientRig(network, group_id=None, **sasl("PLAIN"))
    rig.run(10 * REAUTHENTICATE_MS_MIN)
    assert len(network.asked_for(ApiKey.SASL_AUTHENTICATE)) == times


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"r=,s=,i=",
        b"i=" + b"9" * 5_000,
        b"r=x,s=!!!,i=4096",
        b"i=4096",
        b"\xff\xfei=4096",
        b"r=" + b"A" * 22 + b"x,s=A,i=4096",
        b"r=" + b"A" * 22 + b"x,s=QUFB,i=4096,i=0",
        b"r=" + b"A" * 22 + b"x,s=QUFB,i=0",
        b"m=x,,=,i=1",
    ],
)
def test_a_hostile_answer_to_scram_is_a_refusal(first: bytes) -> None:
    network = sasl_network(mechanisms=("SCRAM-SHA-256",))
    network.answer(ApiKey.SASL_AUTHENTICATE, lambda asked: SaslAuthenticateResponse(auth_bytes=first))
    rig = ClientRig(network, **sasl("SCRAM-SHA-256"))
    rig.run()
    (error,) = rig.errors()
    assert "authentication failed" in error
