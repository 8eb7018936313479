"""site.yml makes bare machines healthy, changes nothing in a second run, and repairs damage after a killed run."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import yaml

from killable import Run
from machines import NODES, find_machine
from muster.road.changes import PlannedChanges, collect, planned_changes
from paths import ARTIFACTS, INVENTORY, ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from pathlib import Path

    from machines import Machine, Play, Result

pytestmark = pytest.mark.pipeline

MUSTER = "test -e /opt/muster -o -e /var/lib/muster || id muster"
BREAKS = yaml.safe_load((ROOT / "molecule/default/break.yml").read_text())[0]["vars"]["breaks"]
REPAIR = ("site.yml", "--tags=baseline,network")
# Files and processes that exist only during a run: guards, temporary files, modules.
LEFT = (
    "ls -A /var/lib/muster/guard 2>/dev/null; find /etc /home /root /usr/local /var/lib/muster -name '.*.new' -o"
    " -name '.ansible_tmp*' -o -name '.new-*'; ps -eo args | grep -E '[A]nsiballZ|[g]uard.py' || true"
)


@pytest.fixture(scope="module")
def bare(sandbox: None, play: Play) -> list[Machine]:
    """Yield nodes without Muster. Nodes with Muster are replaced."""
    machines = [find_machine(name) for name in NODES]
    used = [machine for machine in machines if has_muster(machine)]
    for machine in used:
        machine.podman("rm", "--force", "--time=0")
    if used:
        assert play("playbooks/sandbox_up.yml").rc == 0
    return [find_machine(name) for name in NODES]


@pytest.fixture(scope="module")
def checked(bare: list[Machine], play: Play) -> Result:
    """Return the run in check mode on bare machines."""
    assert not any(has_muster(machine) for machine in bare)
    return play("site.yml", check=True)


@pytest.fixture(scope="module")
def first(bare: list[Machine], checked: object, play: Play) -> Result:
    """Return the run on bare machines."""
    del checked
    assert not any(has_muster(machine) for machine in bare)
    return play("site.yml")


def has_muster(machine: Machine) -> bool:
    return machine.inside("sh", "-c", MUSTER, check=False).returncode == 0


def launched(*, may_be_slower: bool = False) -> set[str]:
    """Check that the newest run has no findings. Return its nodes.

    may_be_slower: allow a lower rate than in the previous run, because nodes share processors with other tests.
    """
    latest = (ARTIFACTS / "latest").resolve()
    verdict = json.loads((latest / "verdict.json").read_text())
    found = {one["id"] for one in verdict["findings"] if one["status"] not in {"pass", "skipped"}}
    assert found <= ({"smoke.regression"} if may_be_slower else set()), verdict["summary"]
    assert verdict["status"] == ("degraded" if found else "healthy")
    return {path.name for path in (latest / "logs").iterdir()}


def planned(result: Result) -> PlannedChanges:
    """Return the planned changes, from the results of the run's tasks."""
    found = planned_changes()
    for event in result.events:
        data = event["event_data"]
        if event["event"] == "runner_on_ok" and data.get("role"):
            collect(found, data["host"], data["role"], data["task"], data["res"], {})
    return found


def done(result: Result, node: str) -> dict[str, set[str]]:
    """Return the names that the tasks of a run changed, by kind. "systemd" is the manager itself."""
    names: dict[str, set[str]] = {kind: set() for kind in ("file", "unit", "account", "package", "environment")}
    for event in result.events:
        data = event["event_data"]
        if event["event"] not in ("runner_on_ok", "runner_item_on_ok") or data["host"] != node:
            continue
        res, action = data["res"], data["task_action"].rpartition(".")[2]
        names["environment"] |= {res["environment"]} if "environment" in res else set()
        if not res.get("changed") or "results" in res:
            continue
        if action == "copy":
            names["file"].add(res["dest"])
        elif action == "systemd_service":
            names["unit"].add(res.get("name") or "systemd")
        elif action == "user":
            names["account"].add(res["name"])
        elif action == "apt":
            names["package"] |= {*re.findall(r"^Setting up ([^ :]+)", "\n".join(res["stdout_lines"]), re.MULTILINE)}
        else:
            diffs = res["diff"] if isinstance(res.get("diff"), list) else [res.get("diff") or {}]
            paths = {str(one.get("after_header")) for one in diffs if one.get("before") != one.get("after")}
            # The lock is a file on the controller.
            names["file"] |= {path for path in paths if path.startswith(("/", "~")) and not path.endswith(".lock.txt")}
            names["file"] |= {*res.get("changes", {}).get("file", ())}
    return names


def test_planned_changes_are_the_changes_of_the_next_run(checked: Result, first: Result) -> None:
    found = planned(checked)
    for node in NODES:
        own: dict[str, set[str]] = {}
        for one in found["rows"]:
            if one["node"] == node:
                own.setdefault("file" if one["kind"] == "sshd" else one["kind"], set()).add(one["name"])
        changed = done(first, node)
        installed = changed.pop("package")
        assert {kind: own[kind] for kind in changed} == changed
        assert own["package"] <= installed
        if not any("dependencies" in text for text in found["unknown"].get(node, [])):
            assert own["package"] == installed
        assert own["firewall"]
        assert own["sysctl"]


def test_bare_nodes_become_healthy(first: Result) -> None:
    assert first.rc == 0, first.stdout
    assert launched() == set(NODES)


def test_second_run_changes_nothing(first: Result, play: Play) -> None:
    again = play("site.yml")
    assert again.rc == 0, again.stdout
    assert again.changed == []
    assert launched(may_be_slower=True) == set(NODES)


def test_check_mode_finds_nothing_to_change(first: Result, play: Play) -> None:
    checked = play("site.yml", check=True)
    assert checked.rc == 0, checked.stdout
    assert checked.changed == []
    assert planned(checked)["rows"] == []


def test_damage_is_repaired_after_a_killed_repair(first: Result, play: Play, tmp_path: Path) -> None:
    """Each damage is proved first. The first repair is killed during the step network, at an arbitrary moment, and the
    next run must complete it. test_network.py then checks the nodes from outside.
    """
    for name, breaks in BREAKS.items():
        for each in breaks:
            find_machine(name).inside("sh", "-ec", each["does"])
            assert find_machine(name).inside("sh", "-ec", each["proof"], check=False).returncode == 0, each["what"]
    killed = Run(tmp_path, *REPAIR, inventory=INVENTORY)
    until(lambda: "PLAY [Network" in killed.shown or killed.over_within(0), PATIENCE, "the step network starts")
    assert killed.process.poll() is None, killed.shown
    killed.kill()
    repaired = play("site.yml", tags="baseline,network")
    assert repaired.rc == 0, repaired.stdout
    for name, breaks in BREAKS.items():
        machine = find_machine(name)
        for each in breaks:
            assert machine.inside("sh", "-ec", each["proof"], check=False).returncode != 0, each["what"]
        assert machine.inside("sh", "-c", LEFT).stdout == "", name
        assert machine.inside("dpkg", "--audit").stdout == "", name
    assert play("site.yml", tags="baseline,network").changed == []
