"""Every file in cases/ holds what ss printed, the sockets in it, and which ports are open to all or to none."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cases import cases
from muster.network.listeners import parse_ss


@cases(__file__, "parse_ss")
def test_the_sockets_are_those_of_the_case(case: dict[str, Any]) -> None:
    found = parse_ss(case["ss"])
    assert [asdict(listener) for listener in found] == case["listeners"]
    assert [listener.port for listener in found if listener.everywhere] == case["everywhere"]
    assert [listener.port for listener in found if listener.local_only] == case["local_only"]
