"""The table of time budgets covers exactly the suites that exist."""

from pathlib import Path

from tests.report import BUDGETS_S


def test_every_suite_has_a_budget_and_every_budget_a_suite() -> None:
    here = Path(__file__).parent
    suites = {folder.name for folder in here.iterdir() if any(folder.glob("test_*.py"))}
    assert suites == {name for name in BUDGETS_S if name != "tests"}
