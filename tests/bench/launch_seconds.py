r"""Measure the seconds until a launch starts and until its verdict, compared with an SSH loop that runs the same
torchrun commands. Both run alternately on 2 and 8 nodes. Also measure the link probe before a start.

PYTHONPATH=tests:tests/integration:plugins/module_utils:plugins/plugin_utils \
  .venv-dev/bin/python tests/bench/launch_seconds.py [--without-pytorch] [TIMES] [NODES...]

Needs a running sandbox with at least this number of nodes and PyTorch. Without PyTorch, both run a torchrun stub that
imports nothing, because eight imports of PyTorch at once take all the time of two processors. Each node has one rank,
which does not need PyTorch and prints its start and end time. All nodes share this machine's clock and processors.
Results are medians.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader, init_plugin_loader

import standin_torchrun
from launch_overhead import launch_task, typed
from machines import find_machine, list_nodes, run_playbook
from muster.launch.planned import LaunchPlan, PlannedNode
from muster_controller.launch.link_probe import probe_links
from muster_controller.nodes.connection import NodeConnection
from muster_controller.nodes.messages import Messages
from muster_controller.nodes.program import NodeProgram

if TYPE_CHECKING:
    from machines import Machine

SCRIPT = "/var/tmp/launch-seconds.py"
PAYLOAD = "import time\nprint(time.time(), flush=True)\ntime.sleep(3)\nprint(time.time(), flush=True)\n"
PARTS = ("to the first line", "ranks", "to the verdict", "to the prompt")
PROBES = 7


def main(times: int, numbers: list[int], options: dict[str, Any]) -> None:
    init_plugin_loader()
    list_nodes(max(numbers))
    print("nodes", "way", *PARTS, sep="\t")
    for number in numbers:
        machines = [find_machine(f"node{place}") for place in range(1, number + 1)]
        seconds = probes(machines)
        print(
            number,
            f"probe of all links: {median(seconds):.2f} s ({min(seconds):.2f}-{max(seconds):.2f})",
            sep="\t",
            flush=True,
        )
        with tempfile.TemporaryDirectory() as name:
            found = compare(Path(name), machines, times, options)
        for way, runs in found.items():
            texts = (f"{median(values):.1f} ({min(values):.1f}-{max(values):.1f})" for values in columns(runs))
            print(number, way, *texts, sep="\t", flush=True)


def columns(runs: list[dict[str, float]]) -> list[list[float]]:
    return [[run[part] for run in runs] for part in PARTS]


def compare(
    folder: Path, machines: list[Machine], times: int, options: dict[str, Any]
) -> dict[str, list[dict[str, float]]]:
    for machine in machines:
        machine.inside("python3", "-c", f"open({SCRIPT!r}, 'w').write({PAYLOAD!r})")
        if options:
            standin_torchrun.put(machine)
    plan, _ = by_muster(folder, machines, options)  # connections and caches are warm for both
    by_hand(plan, machines)
    found: dict[str, list[dict[str, float]]] = {"Muster": [], "by hand": []}
    for _ in range(times):
        found["Muster"].append(by_muster(folder, machines, options)[1])
        found["by hand"].append(by_hand(plan, machines))
    for machine in machines:
        machine.inside("rm", SCRIPT)
    return found


def by_muster(
    folder: Path, machines: list[Machine], options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, float]]:
    """Launch with Muster. Return the plan, and the duration of each part in seconds."""
    request = {
        **options,
        "cluster_launch_nodes": [machine.name for machine in machines],
        "cluster_nproc_per_node": 1,
        "cluster_artifacts_dir": str(folder / "artifacts"),
        "launch_script": SCRIPT,
    }
    began = time.time()
    result = run_playbook(folder, "playbooks/launch.yml", extravars=request)
    ended = time.time()
    if result.rc != 0:
        raise SystemExit(result.stdout)
    answer = launch_task(result)[1]
    verdict = Path(answer["artifacts"], "verdict.json").stat().st_mtime
    return answer["plan"], parts(began, machines, answer["plan"]["nodes"][0]["run_dir"], verdict, ended)


def by_hand(plan: dict[str, Any], machines: list[Machine]) -> dict[str, float]:
    """Run the plan's command on each node over SSH. The time at which all commands have ended counts as the verdict."""
    logs = f"/var/tmp/launch-seconds-{time.monotonic_ns()}"
    began = time.time()
    shells = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for argv in typed(plan, logs)]
    said = [shell.communicate()[0].decode() for shell in shells]
    ended = time.time()
    if any(shell.returncode for shell in shells):
        raise SystemExit("".join(said))
    found = parts(began, machines, logs, ended, ended)
    for machine in machines:
        machine.inside("rm", "-rf", logs)
    return found


def parts(began: float, machines: list[Machine], folder: str, verdict: float, ended: float) -> dict[str, float]:
    """Return the duration of each part in seconds. folder: folder on the nodes with the times that the ranks
    printed."""
    looks = [machine.inside("find", folder, "-name", "stdout.log", "-exec", "cat", "{}", "+") for machine in machines]
    said = [list(map(float, look.stdout.split())) for look in looks]
    first, last = min(one[0] for one in said), max(one[-1] for one in said)
    return dict(zip(PARTS, (first - began, last - first, verdict - last, ended - last), strict=True))


# ---------------------------------------------------------------- the probe before a start


def probes(machines: list[Machine]) -> list[float]:
    """Return the duration in seconds of each probe of all links. Connections are already open."""
    entries = [
        PlannedNode(machine.name, rank, [rank], 1, machine.address, "eth0") for rank, machine in enumerate(machines)
    ]
    plan = LaunchPlan("", "", "", "gloo", entries[0].address, 29500, len(entries), entries)
    messages = Messages({machine.name: connect(machine) for machine in machines}, NodeProgram("probe_listener"))
    messages.open()
    found = []
    for _ in range(PROBES):
        began = time.monotonic()
        findings = probe_links(plan, messages, lambda: False)
        found.append(time.monotonic() - began)
        if findings:
            raise SystemExit(str(findings))
    messages.close()
    return found[1:]


def connect(machine: Machine) -> NodeConnection:
    connection = connection_loader.get("ssh", PlayContext(), new_stdin=None)
    direct = {
        "host": machine.address,
        "remote_user": "admin",
        "private_key_file": str(machine.folder / "id_ed25519"),
        "ssh_args": f"-o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile={machine.folder}/known_hosts",
        "pipelining": True,
    }
    connection.set_options(direct=direct)
    return NodeConnection(machine.name, connection, "/usr/bin/python3")


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    options = {"cluster_torchrun": standin_torchrun.TORCHRUN} if "--without-pytorch" in sys.argv else {}
    main(given[0] if given else 5, given[1:] or [2, 8], options)
