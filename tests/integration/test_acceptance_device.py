"""Devices, stragglers and the soak of the acceptance test, with real faults on real nodes."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from acceptance_runs import stub_module
from drill import all_pids, environ, read_proc
from machines import find_machine
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

    from acceptance_runs import Run
    from machines import Machine

STANDIN = ROOT / "tests/standins/flipped_bit.py"
# CPU quota of both ranks of a node together: less than they get even on a busy machine.
QUOTA, PERIOD = 10_000, 100_000
LOGS = "var/lib/muster/launches/*/logs/torchrun/*/attempt_0/*/stdout.log"


@contextmanager
def flipped(machine: Machine, fault: str) -> Iterator[None]:
    """Corrupt matrix products of one rank on this node. Products of identity matrices prove the fault."""
    with stub_module(machine, STANDIN, {"txt": fault}) as folder:
        rank, first, _ = fault.split()
        program = f"import torch; one = torch.eye(8); all = [torch.mm(one, one) for _ in range({first})]"
        program += "; print([int((product != one).sum()) for product in all][-2:])"
        words = ("env", f"RANK={rank}", f"{folder.split('/lib/', maxsplit=1)[0]}/bin/python", "-c", program)
        assert machine.inside(*words).stdout.strip() in ("[1]", "[0, 1]")
        yield


class Quota:
    """A cgroup with a CPU quota for the ranks of a launch.

    Ranks move into it after the stage world, because starting under the quota would take minutes. A sandbox node cannot
    set quotas itself, so this class does the work of `systemctl set-property CPUQuota=` from outside.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        inspect = ["podman", "inspect", "--format", "{{.State.Pid}}", machine.container]
        pid = int(subprocess.run(inspect, check=True, capture_output=True, text=True).stdout)
        controllers, path = next(
            line.split(":", 2)[1:]
            for line in read_proc(pid, "cgroup").splitlines()
            if "cpu" in line.split(":")[1].split(",")
        )
        self.folder = Path(f"/sys/fs/cgroup/{controllers}{path}/muster-test-slow")
        self.namespace = Path(f"/proc/{pid}/ns/net").stat().st_ino
        self.root = Path(f"/proc/{pid}/root")
        self.over = threading.Event()
        self.moved: set[int] = set()

    def __enter__(self) -> Self:
        self.folder.mkdir()
        (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD))
        (self.folder / "cpu.cfs_quota_us").write_text(str(QUOTA))
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self) -> None:
        while not self.over.wait(0.1):
            for pid in all_pids() if self.begun() else ():
                if pid not in self.moved and "RANK" in environ(pid):
                    with suppress(OSError):
                        if Path(f"/proc/{pid}/ns/net").stat().st_ino == self.namespace:
                            (self.folder / "cgroup.procs").write_text(str(pid))
                            self.moved.add(pid)

    def begun(self) -> bool:
        return any('"stage": "world"' in log.read_text() for log in self.root.glob(LOGS))

    def stopped(self) -> int:
        words = (self.folder / "cpu.stat").read_text().split()
        return int(words[words.index("nr_throttled") + 1])

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        until = time.monotonic() + 10
        while (self.folder / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.1)
        self.folder.rmdir()


def test_healthy_cluster_has_no_findings(smoke: Callable[..., Run]) -> None:
    _, measured, _ = run = smoke("world,device,stragglers,scaling")
    assert run.found == []
    assert [row["model"] for row in measured["device"]["ranks"]] == ["cpu"] * 4
    assert [row["slow"] for row in measured["stragglers"]["ranks"]] == [False] * 4
    scaling = [rank["stages"]["scaling"] for rank in measured["ranks"]]
    assert {(stage["status"], stage["why"].partition(",")[0]) for stage in scaling} == {
        ("skipped", f"4 ranks have {os.cpu_count()} cores of one machine")
    }


def test_flipped_bit_in_a_product_is_reported_with_its_rank(smoke: Callable[..., Run]) -> None:
    """Corrupt every product, so that repetitions agree and only row and column sums reveal the error."""
    with flipped(find_machine("node2"), "3 1 1000000"):
        _, measured, _ = run = smoke("device")
    what = "a matrix product (float32) differs from the exact integer result in 1 element, first in row 3, column 5"
    assert run.found == [f"smoke.gemm fail node2: rank 3 (node2, local rank 1): {what}"]
    assert [rank["stages"]["device"]["status"] for rank in measured["ranks"]] == ["ok", "ok", "ok", "wrong"]


def test_cpu_quota_is_reported_for_slow_ranks(smoke: Callable[..., Run]) -> None:
    with Quota(find_machine("node2")) as quota:
        _, measured, _ = run = smoke("world,stragglers")
        assert len(quota.moved) >= 4, "both processes of both ranks must be under the quota"
        assert quota.stopped() > 10
    named = [line for line in run.found if line.startswith("smoke.straggler fail node2: rank ")]
    assert len(named) >= 2
    assert {line.split()[4] for line in run.found} == {"2", "3"}
    assert all("a CPU quota of 0.1 CPUs throttled the rank for " in line for line in named)
    assert [row["slow"] for row in measured["stragglers"]["ranks"]] == [False, False, True, True]


def test_healthy_soak_runs_for_the_requested_time(smoke: Callable[..., Run]) -> None:
    _, measured, _ = run = smoke("soak", ddp_smoke_mode="soak", ddp_smoke_soak_seconds=12)
    assert run.found == []
    assert measured["soak"]["ended"] == "time"
    assert measured["soak"]["rounds"] >= 2
    assert {point["rank"] for point in measured["soak"]["series"]} == {0, 1, 2, 3}
    assert max(point["seconds"] for point in measured["soak"]["series"]) >= 12


def test_single_flipped_bit_ends_the_soak(smoke: Callable[..., Run]) -> None:
    """The soak multiplies two matrices of each kind per round, so the 18th product is the first of round 5."""
    with flipped(find_machine("node1"), "1 18 18"):
        _, measured, _ = run = smoke("soak", ddp_smoke_mode="soak", ddp_smoke_soak_seconds=60)
    what = "a matrix product is wrong in 1 element, first in row 3, column 5 (round 5)"
    assert run.found == [f"smoke.soak fail node1: rank 1 (node1, local rank 1): {what}"]
    assert (measured["soak"]["ended"], measured["soak"]["rounds"]) == ("fault", 5)
