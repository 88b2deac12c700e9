"""The handshake of two nodes, without a socket: the order of messages, and proof of the cluster's secret.

    dialer                     acceptor
      HELLO  ------------------>   checks what is claimed
      checks what is claimed  <--  HELLO
      PROOF  ------------------>   checks proof and membership, syncs the boot id
      the same                <--  PROOF
      first packet ------------>   the link is up here too

A proof is HMAC-SHA256 with the secret over the role and both hellos; the keys of the session are the same
with the direction in place of the role.

Invariants: a nonce is used once, so a recorded hello proves nothing; the role is part of the proof,
so a proof cannot be reflected to its sender; each direction has a key of its own, so a packet cannot either.
Before the proof nothing that a peer sends has any effect but a refusal.
"""

from __future__ import annotations

import dataclasses
import hmac
from enum import Enum

from raftlog.transport.claims import check_claims, check_membership
from raftlog.transport.hello import Hello, HelloFrame, decode_hello, encode_hello, frame
from raftlog.transport.refusals import HelloRefusal, HelloRefused, RefusedByPeer


class Stage(Enum):
    """The stages of a handshake; `take` moves it on, `accept` ends it."""

    HELLO = "waiting for the peer's hello"
    PROOF = "waiting for the peer's proof"
    DECIDING = "the peer is authenticated; its boot id is being checked"
    DONE = "both are authenticated, or one refused"


class Handshake:
    """One side of a handshake; `own` names the node we dial, an acceptor learns from the hello who calls."""

    def __init__(self, secret: bytes, own: Hello, *, is_dialer: bool) -> None:
        self._secret = secret
        self.own = own
        self.is_dialer = is_dialer
        self.stage = Stage.HELLO
        self.peer: Hello | None = None
        self._hellos = b""

    def begin(self) -> bytes:
        """The bytes to send when the connection opens."""
        return frame(HelloFrame.HELLO, encode_hello(self.own)) if self.is_dialer else b""

    def take(self, kind: int, body: bytes) -> bytes:
        """Take a frame and return the bytes to send; raises HelloRefused or RefusedByPeer.

        After a peer's valid proof the stage is DECIDING: check its boot id, then call `accept`.
        """
        if kind == HelloFrame.REFUSED:
            self.stage = Stage.DONE
            is_proven = bool(self._hellos) and hmac.compare_digest(body[1:], self._refusal_proof(body[:1]))
            raise RefusedByPeer(body[:1], is_proven=is_proven)
        if kind == HelloFrame.HELLO and self.stage is Stage.HELLO:
            return self._take_hello(body)
        if kind == HelloFrame.PROOF and self.stage is Stage.PROOF:
            return self._take_proof(body)
        raise HelloRefused(HelloRefusal.MALFORMED, f"sent frame {kind} out of order")

    def accept(self) -> bytes:
        """Accept the peer, whose boot id is noted durably; returns the bytes to send.  Keys apply now."""
        assert self.stage is Stage.DECIDING, self.stage
        self.stage = Stage.DONE
        return b"" if self.is_dialer else self._proof_frame()

    def refuse(self, code: HelloRefusal) -> bytes:
        """The bytes to send to a peer that is refused; proven once both hellos are known."""
        self.stage = Stage.DONE
        reason = bytes([code])
        return frame(HelloFrame.REFUSED, reason + (self._refusal_proof(reason) if self._hellos else b""))

    def _refusal_proof(self, reason: bytes) -> bytes:
        return self._digest(b"refusal " + reason)

    def keys(self) -> tuple[bytes, bytes]:
        """The session keys: (for sending, for receiving)."""
        of_dialer = self._digest(b"key of the dialer")
        of_acceptor = self._digest(b"key of the acceptor")
        return (of_dialer, of_acceptor) if self.is_dialer else (of_acceptor, of_dialer)

    def _take_hello(self, body: bytes) -> bytes:
        self.peer = peer = decode_hello(body)
        check_claims(self.own, peer, is_dialer=self.is_dialer)
        self.stage = Stage.PROOF
        if self.is_dialer:
            self._hellos = _framed(encode_hello(self.own)) + _framed(body)
            return self._proof_frame()
        self.own = dataclasses.replace(self.own, to_node_id=peer.node_id)
        answer = encode_hello(self.own)
        self._hellos = _framed(body) + _framed(answer)
        return frame(HelloFrame.HELLO, answer)

    def _take_proof(self, body: bytes) -> bytes:
        role = b"acceptor" if self.is_dialer else b"dialer"
        if not hmac.compare_digest(body, self._digest(role)):
            raise HelloRefused(
                HelloRefusal.SECRET,
                "does not know this cluster's secret; cluster.secret.file must hold the same secret on "
                "every node",
            )
        assert self.peer is not None
        check_membership(self.own, self.peer)
        self.stage = Stage.DECIDING
        return b""

    def _proof_frame(self) -> bytes:
        return frame(HelloFrame.PROOF, self._digest(b"dialer" if self.is_dialer else b"acceptor"))

    def _digest(self, purpose: bytes) -> bytes:
        return hmac.digest(self._secret, _framed(purpose) + self._hellos, "sha256")


def _framed(part: bytes) -> bytes:
    return len(part).to_bytes(4, "little") + part
