"""Compare the cost of a Muster launch with plain torchrun over SSH. Both use the same payload and the same nodes, and
alternate.

PYTHONPATH=tests:tests/integration .venv-dev/bin/python tests/bench/launch_overhead.py [TIMES] [STEPS]

Needs a running sandbox with PyTorch. Both run the acceptance test's training with two ranks on each of two nodes.
Muster's time includes work that a manual launch omits: Muster validates the inventory, checks the nodes, fetches all
logs, cleans up, and writes the verdict and the report. For the manual launch, the script is already on the nodes.
Results are medians.
"""

from __future__ import annotations

import datetime as dt
import shlex
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from machines import NODES, find_machine, list_nodes, run_playbook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine, Result

STAGES = ("world", "train")
PARTS = ("before the launch", "preflight", "start", "ranks", "noticing", "end", "verdict and page", "whole")
HAND = "/var/tmp/launch-overhead"


def main(times: int, steps: int) -> None:
    list_nodes(2)
    machines = [find_machine(name) for name in NODES[:2]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan, _ = by_muster(folder, machines, steps)  # connections and caches are warm for both
        for machine in machines:
            machine.inside("rm", "-rf", HAND)
            machine.inside("cp", "-r", f"{plan['nodes'][0]['run_dir']}/script", HAND)
            machine.inside("chmod", "-R", "go=rX", HAND)
        found: dict[str, list[dict[str, float]]] = {"Muster": [], "by hand": []}
        try:
            for _ in range(times):
                found["Muster"].append(by_muster(folder, machines, steps)[1])
                found["by hand"].append(by_hand(plan, machines))
                print(*(f"{way} {runs[-1]['whole']:.1f} s" for way, runs in found.items()), sep="\t", flush=True)
        finally:
            for machine in machines:
                machine.inside("rm", "-rf", HAND, check=False)  # keep errors of the measurement, not of the cleanup
    print("", *PARTS, sep="\t")
    for way, runs in found.items():
        print(way, *(f"{median(run[part] for run in runs):.1f}" if part in runs[0] else "" for part in PARTS), sep="\t")
    ratios = [own["whole"] / hand["whole"] for own, hand in zip(found["Muster"], found["by hand"], strict=True)]
    print(f"ratio {median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f}, {times} times each)")


def by_muster(folder: Path, machines: list[Machine], steps: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Launch with Muster. Return the plan, and the duration of each part in seconds."""
    options = {
        "cluster_launch_nodes": [machine.name for machine in machines],
        "cluster_nproc_per_node": 2,
        "cluster_artifacts_dir": str(folder / "artifacts"),
        "ddp_smoke_stages": list(STAGES),
        "ddp_smoke_steps": steps,
    }
    began = time.time()
    result = run_playbook(folder, "playbooks/ddp_smoke.yml", extravars=options)
    ended = time.time()
    if result.rc != 0:
        raise SystemExit(result.stdout)
    at, answer = launch_task(result)
    plan, timing = answer["plan"], answer["timing"]
    first, last = written(machines, plan["nodes"][0]["run_dir"])
    marks = (began, at, timing["began"], first, last, timing["noticed"], timing["cleaned"], ended)
    parts = [later - earlier for earlier, later in pairwise(marks)]
    return plan, dict(zip(PARTS, [*parts, ended - began], strict=True))


def launch_task(result: Result) -> tuple[float, dict[str, Any]]:
    """Return the start time and the result of the launch task."""
    ours = [event for event in result.events if event["event_data"].get("task_action") == "torchrun_launch"]
    began = next(event for event in ours if event["event"] == "playbook_on_task_start")
    created = dt.datetime.fromisoformat(began["created"])
    at = (created if created.tzinfo else created.replace(tzinfo=dt.timezone.utc)).timestamp()
    return at, next(event["event_data"]["res"] for event in ours if event["event"] == "runner_on_ok")


def written(machines: list[Machine], folder: str) -> tuple[float, float]:
    """Return the time when the first rank created its files, and the time of the last write. All nodes share this
    machine's clock."""
    return min(times(machines, folder, "-type", "d", "-path", "*/attempt_0/*")), max(
        times(machines, folder, "-name", "stdout.log")
    )


def times(machines: list[Machine], folder: str, *which: str) -> list[float]:
    """Return modification times. A folder's time changes when a file is created in the folder, a file's time when the
    file is written."""
    looks = [machine.inside("find", folder, *which, "-printf", "%T@\\n") for machine in machines]
    return [float(line) for look in looks for line in look.stdout.splitlines()]


def by_hand(plan: dict[str, Any], machines: list[Machine]) -> dict[str, float]:
    """Run the plan's command on each node over SSH. Return the duration of each part in seconds."""
    logs = f"/var/tmp/launch-overhead-logs-{time.monotonic_ns()}"
    began = time.time()
    shells = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for argv in typed(plan, logs)]
    said = [shell.communicate()[0].decode() for shell in shells]
    ended = time.time()
    if any(shell.returncode for shell in shells):
        raise SystemExit("".join(said))
    first, last = written(machines, logs)
    for machine in machines:
        machine.inside("rm", "-rf", logs)
    return {"start": first - began, "ranks": last - first, "end": ended - last, "whole": ended - began}


def typed(plan: dict[str, Any], logs: str) -> Iterator[list[str]]:
    for entry in plan["nodes"]:
        words = [f"--log-dir={logs}" if word.startswith("--log-dir=") else word for word in entry["argv"]]
        words = [f"{HAND}/{word.rpartition('/')[2]}" if word.endswith(".pyz") else word for word in words]
        variables = [f"{name}={value}" for name, value in entry["env"].items() if not name.startswith("MUSTER_LAUNCH")]
        command = shlex.join(["sudo", "-u", plan["user"], "env", "-C", "/var/tmp", *variables, *words])
        machine = find_machine(entry["node"])
        options = ["-oBatchMode=yes", "-oIdentitiesOnly=yes", f"-oUserKnownHostsFile={machine.folder}/known_hosts"]
        yield ["ssh", "-i", f"{machine.folder}/id_ed25519", *options, f"admin@{machine.address}", command]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, int(sys.argv[2]) if len(sys.argv) > 2 else 40)
