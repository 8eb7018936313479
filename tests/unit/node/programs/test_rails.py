"""Both ends of the RDMA test on one machine, with stubs of the tools."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.rails import judge, outputs, plan
from muster_node.programs import rails
from muster_node.tools import run
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

STANDIN = Path(__file__).parents[3] / "standins/programs/rdma_tool.py"
RATE = 400.0
PORTS = [41000, 41099, 41099]
ADAPTERS = [plan.Hca(f"mlx5_{number}", "1", RATE) for number in range(2)]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that installs stubs of tools with the given failures."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    path = f"{bin_folder}:{run.PATH}"
    clean = {**run.CLEAN, "PATH": path, "STANDIN_RDMA": str(tmp_path / "settings.json")}
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(rails, "CLEAN", clean)
    monkeypatch.setattr(rails, "run", lambda *argv, **more: run.run(*argv, **{**more, "env": clean}))
    # The user that runs the tests is not a training user.
    monkeypatch.setattr(rails, "identity", lambda _: None)

    def install(*names: str, **settings: Any) -> None:
        for name in names:
            shutil.copy(STANDIN, bin_folder / name)
            (bin_folder / name).chmod(0o755)
        (tmp_path / "settings.json").write_text(json.dumps(settings))

    return install


def measured(adapters: list[plan.Hca]) -> list[outputs.RailTrial]:
    """Measure each adapter against itself, in the same way in which the action plugin measures the adapters of two
    nodes."""
    request = {"user": "nobody", "ports": PORTS, "rails": [plan.commands(each) for each in adapters], "seconds": 20}
    served = rails.serve(request)["rails"]
    calls = [
        [
            [*words, "-p", str(end["port"]), "127.0.0.1"]
            for words, end in zip(plan.commands(each), ends, strict=True)
            if not end["why"]
        ]
        for each, ends in zip(adapters, served, strict=True)
    ]
    called = rails.call({"user": "nobody", "rails": calls, "seconds": 10})["rails"]
    return [
        outputs.trial(("node1", "node2"), (each, each), said, ends[0]["why"])
        for each, said, ends in zip(adapters, called, served, strict=True)
    ]


def test_every_rail_is_measured(tools: Callable[..., None]) -> None:
    tools(*plan.STEPS)
    assert [(one.step, one.gbps, one.usec) for one in measured(ADAPTERS)] == [("", 388.1, 2.05)] * 2


def test_failure_affects_only_its_rail(tools: Callable[..., None]) -> None:
    tools(*plan.STEPS, mlx5_1={"ib_write_bw": "Failed status 12: wr_id 0 syndrom 0x81"})
    good, bad = measured(ADAPTERS)
    assert (good.step, good.gbps) == ("", 388.1)
    assert (bad.step, bad.why, bad.usec) == (
        "ib_write_bw",
        "the counterpart sent no acknowledgement (Failed status 12: wr_id 0 syndrom 0x81)",
        None,
    )


def test_adapter_missing_on_the_listening_node_is_reported(tools: Callable[..., None]) -> None:
    tools(*plan.STEPS, mlx5_1={"absent": True})
    _, bad = measured(ADAPTERS)
    assert bad.why == "libibverbs does not list the adapter (IB device mlx5_1 not found)"


def test_missing_tool_is_reported_before_listening(tools: Callable[..., None]) -> None:
    tools("ibv_rc_pingpong")
    served = rails.serve({"user": "x", "ports": PORTS, "rails": [plan.commands(ADAPTERS[0])], "seconds": 5})["rails"]
    assert [(end["why"], end["missing"]) for end in served[0]] == [
        ("", False),
        ("ib_write_bw is not installed", True),
        ("ib_write_lat is not installed", True),
    ]


def test_unused_listeners_are_stopped(tools: Callable[..., None]) -> None:
    tools(*plan.STEPS)
    request = {"user": "x", "ports": PORTS, "rails": [plan.commands(ADAPTERS[0])], "seconds": 60}
    [ends] = rails.serve(request)["rails"]
    assert {each["port"] for each in ends} <= rails.listening()
    rails.end({"ends": [{**ends[0], "started": 1}, *ends[1:]]})
    until(lambda: rails.listening() & {each["port"] for each in ends} == {ends[0]["port"]}, 5, "the others are gone")
    rails.end({"ends": ends})
    until(lambda: not rails.listening() & {each["port"] for each in ends}, 5, "all are gone")


def test_simulated_rails_pass_the_test(tools: Callable[..., None]) -> None:
    tools(*plan.STEPS)
    result = judge.result(measured(ADAPTERS), {})
    assert result["verdict"]["status"] == "healthy"
