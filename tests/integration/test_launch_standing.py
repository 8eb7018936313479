"""The notice about a stalled launch lists the waiting ranks, and is not shown for a long computation."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from drill import Drill, processes
from paths import ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine

pytestmark = [pytest.mark.moment, pytest.mark.slow]

NOTICE = 12  # seconds: one sample every three seconds
GATE = "/run/muster-test-stands"
SAID = "The launch seems to have been stalled"


@pytest.fixture
def nodes(node: Callable[[str], Machine], with_pytorch: None) -> tuple[Machine, Machine]:
    return node("node1"), node("node2")


@pytest.fixture
def begin(tmp_path: Path, nodes: tuple[Machine, Machine]) -> Iterator[Callable[[str], Drill]]:
    payload = ROOT / "tests/integration/payloads/standing.py"
    drill = Drill(tmp_path, {"launch_script_src": str(payload), "launch_notice_timeout": NOTICE})

    def one(how: str) -> Drill:
        for machine in nodes:
            machine.inside("rm", "--force", GATE)
        drill.begin(f"--gate={GATE}", f"--how={how}")
        until(lambda: drill.run.is_dir() and len(ranks(drill)) == 4, PATIENCE, "all ranks run")
        return drill

    yield one
    for machine in nodes:
        machine.inside("rm", "--force", GATE, drill.gate)
        if drill.run.is_dir() and drill.runs():
            drill.systemctl(machine, "stop", drill.unit(), check=False)


def ranks(drill: Drill) -> dict[int, dict[str, str]]:
    return {pid: env for pid, env in processes(drill.launch_id).items() if "LOCAL_RANK" in env}


def shown(drill: Drill) -> str:
    """Return the text on the user's terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", drill.runner.stdout.read())


def lines(drill: Drill, text: str) -> int:
    return sum(path.read_text().count(text) for path in drill.run.glob("logs/*/*/stdout.log"))


@pytest.mark.parametrize("how", ["sleep", "print"])
def test_stall_notice_names_the_late_rank_and_reports_its_recovery(
    begin: Callable[[str], Drill], nodes: tuple[Machine, Machine], how: str
) -> None:
    drill = begin(how)
    nodes[1].inside("touch", GATE)
    until(lambda: SAID in shown(drill), PATIENCE, "the notice appears")
    said = next(line for line in shown(drill).splitlines() if SAID in line)
    assert re.search(r"rank 3 \(node2\) has started \d+ collectives and is at File .*standing.py.* in wait_here", said)
    assert re.search(r"while rank 0 \(node1\), rank 1 \(node1\), rank 2 \(node2\) wait in all_reduce #\d+", said)
    nodes[1].inside("rm", GATE)
    until(lambda: "The launch is making progress again" in shown(drill), PATIENCE, "the end of the stall is reported")
    for machine in nodes:
        drill.open_gate(machine)
    assert drill.end()["status"] in ("healthy", "degraded")
    assert shown(drill).count(SAID) == 1
    for machine in nodes:
        assert machine.inside("test", "-e", drill.state_on(machine), check=False).returncode != 0


def test_long_silent_computation_is_not_a_stall(begin: Callable[[str], Drill], nodes: tuple[Machine, Machine]) -> None:
    drill = begin("compute")
    for machine in nodes:
        machine.inside("touch", GATE)
    until(lambda: lines(drill, "computes") == 4, PATIENCE, "all ranks compute")
    began = time.monotonic()
    # The documented limit is a time: wait five times as long as until the notice of a hanging rank.
    until(lambda: time.monotonic() - began > 5 * NOTICE, PATIENCE)
    for machine in nodes:
        machine.inside("rm", GATE)
        drill.open_gate(machine)
    assert drill.end()["status"] in ("healthy", "degraded")
    assert SAID not in shown(drill)
