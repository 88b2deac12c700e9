"""The recorded cluster in `examples/`: three nodes, a killed leader, a killed consumer."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
"""The repository."""
INCIDENT = ROOT / "examples" / "incident" / "cluster"
