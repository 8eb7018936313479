"""Stopping a launch on its nodes: last reports, leftover processes, and the rest of the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from answering_nodes import AnsweringNodes
from launch_shapes import a_plan
from muster.launch.outcome import Left
from muster.launch.unit import UnitEnd
from muster.verdict.printable import ForeignText
from muster.verdict.redaction import Redaction
from muster_controller.artifacts.keeping import Keeping
from muster_controller.launch.logs import LogBook
from muster_controller.launch.node_reports import NodeReports
from muster_controller.launch.stopping import Stopping

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from muster.launch.messages import ProcessFacts

PLAN = a_plan()


def part(begin: int, text: str, *, more: bool = False) -> dict[str, Any]:
    return {"logs": {"agent": {"begin": begin, "gap": 0, "offset": begin + len(text), "text": text, "more": more}}}


def last(**differing: Any) -> dict[str, Any]:
    return {
        "unit": {"ActiveState": "inactive"},
        "unit_before": {"ActiveState": "active"},
        "result": {"reason": "stopped", "code": -15, "ended_at": 1.0},
        "ranks": [],
        "errors": {},
        "disk": {"path": "/run", "free": 1, "total": 2, "inodes_free": 3, "read_only": False},
        "notes": [],
        "clock": 3.0,
        "error": ForeignText(""),
        "leftovers": [],
        "clean": True,
        **part(0, "end\n"),
        **differing,
    }


def stopped(
    folder: Path, answers: dict[tuple[str, str], list[Any]], *, dump: bool = False
) -> tuple[dict[str, Left], NodeReports, AnsweringNodes]:
    nodes = AnsweringNodes(answers)
    said: list[str] = []
    logs = LogBook(folder, PLAN, lambda *_line: None, Redaction([]), Keeping(said.append))
    reports = NodeReports(PLAN, logs, said.append)
    return Stopping(PLAN, nodes, reports, said.append, 5).stop(dump=dump), reports, nodes


def test_last_report_of_a_node_is_stored(tmp_path: Path) -> None:
    left, reports, nodes = stopped(tmp_path, {(name, "stop"): [last()] for name in ("node1", "node2")})
    assert left == {}
    report = reports.by_node["node1"]
    assert report.unit == UnitEnd.read({"ActiveState": "active"})
    assert (report.ended, report.agent_log) == ({"reason": "stopped", "code": -15, "ended_at": 1.0}, "end\n")
    assert report.clock_offset == 2.0
    assert [verb for _, verb, _ in nodes.asked] == ["stop", "stop"]


def test_leftover_processes_and_unreachable_nodes_are_reported(tmp_path: Path) -> None:
    who: ProcessFacts = {"pid": 7, "command": "sleep", "user": "muster", "unit": "x.service"}
    answers: dict[tuple[str, str], list[Any]] = {
        ("node1", "stop"): [last(clean=False, leftovers=[who])],
        ("node2", "stop"): ["no route to host"],
    }
    left, reports, _ = stopped(tmp_path, answers)
    assert left == {"node1": Left("", [who])}
    assert [report.node for report in reports.all() if report.lost] == ["node2"]
    assert reports.by_node["node2"].lost_why == "no route to host"


def test_rest_of_a_log_is_fetched(tmp_path: Path) -> None:
    answers: dict[tuple[str, str], list[Any]] = {
        ("node1", "stop"): [last(**part(0, "one\n", more=True))],
        ("node1", "logs"): [part(4, "two\n", more=True), part(8, "three\n")],
        ("node2", "stop"): [last()],
    }
    _, reports, nodes = stopped(tmp_path, answers)
    assert reports.by_node["node1"].agent_log == "one\ntwo\nthree\n"
    assert [payload["offsets"] for _, verb, payload in nodes.asked if verb == "logs"] == [{"agent": 4}, {"agent": 8}]


def test_ranks_are_frozen_before_stacks_are_dumped(tmp_path: Path) -> None:
    answers: dict[tuple[str, str], list[Any]] = {(name, "stop"): [last()] for name in ("node1", "node2")}
    answers |= {(name, "freeze"): [{"frozen": 1}] for name in ("node1", "node2")}
    _, _, nodes = stopped(tmp_path, answers, dump=True)
    assert [verb for _, verb, _ in nodes.asked] == ["freeze", "freeze", "stop", "stop"]
    assert all(payload["dump"] for _, verb, payload in nodes.asked if verb == "stop")


def test_stop_timeout_option_extends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """launch_stop_timeout: 60, for a script that writes a checkpoint on SIGTERM."""
    nodes = AnsweringNodes({(name, "stop"): [last()] for name in ("node1", "node2")})
    waited: list[float] = []
    gather = nodes.gather

    def waiting(verb: str, names: Any, timeout: float, *more: Any) -> Any:
        waited.append(timeout)
        return gather(verb, names, timeout, *more)

    monkeypatch.setattr(nodes, "gather", waiting)
    said: list[str] = []
    logs = LogBook(tmp_path, PLAN, lambda *_line: None, Redaction([]), Keeping(said.append))
    stopping = Stopping(PLAN, nodes, NodeReports(PLAN, logs, said.append), said.append, 5, lambda: True, 60)
    stopping.stop(dump=False)
    assert said[0] == "SIGTERM was sent to the ranks, which have 60 s until SIGKILL (launch_stop_timeout)"
    assert [payload["seconds"] for _, _, payload in nodes.asked] == [60, 60]
    stopping.heed()
    assert waited == [75.0]
    assert "for at most 95 s" in said[-1]
    stopping.told -= 11
    stopping.heed()
    assert said[-1].endswith(" s left")
