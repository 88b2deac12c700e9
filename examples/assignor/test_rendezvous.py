"""`python -m pytest` in this directory, with Quorate installed."""

from quorate_rendezvous import Rendezvous

from coordinator.assignors.checking import check_assignor


def test_rendezvous() -> None:
    check_assignor(Rendezvous())
