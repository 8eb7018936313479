"""The parts of the acceptance test's payload that need no torch, for tests without it."""

from __future__ import annotations

import importlib.util
from typing import Any

from paths import ROOT

PAYLOAD = ROOT / "roles/ddp_smoke/files/acceptance/payload"


def part(name: str) -> Any:
    """A module of the payload by itself: nothing that it imports from beside it at run time is there."""
    spec = importlib.util.spec_from_file_location(f"acceptance_{name}", PAYLOAD / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
