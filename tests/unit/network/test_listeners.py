"""Every file in cases/ holds what ss printed, the sockets in it, and which ports the node alone reaches."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from muster.network.listeners import parse_ss

CASES = sorted((Path(__file__).parent / "cases/parse_ss").glob("*.yml"))


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_the_sockets_are_those_of_the_case(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    found = parse_ss(case["ss"])
    assert [asdict(listener) for listener in found] == case["listeners"]
    assert [listener.port for listener in found if listener.local_only] == case["local_only"]
