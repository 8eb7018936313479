"""Each file in cases/ contains output of ss, the listening sockets in it, and the ports that are bound only to
loopback."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cases import cases
from muster.network.listeners import parse_ss


@cases(__file__, "parse_ss")
def test_sockets_match_the_case(case: dict[str, Any]) -> None:
    found = parse_ss(case["ss"])
    assert [asdict(listener) for listener in found] == case["listeners"]
    assert [listener.port for listener in found if listener.local_only] == case["local_only"]
