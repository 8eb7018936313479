"""site.yml makes bare machines healthy, changes nothing in a second run, and repairs damage after a killed run."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import yaml

from killable import Run
from machines import NODES, find_machine
from muster.road.changes import PlannedChanges, collect, planned_changes, table
from paths import ARTIFACTS, INVENTORY, ROOT
from snapshot import take
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from pathlib import Path

    from machines import Machine, Play, Result

pytestmark = pytest.mark.pipeline

MUSTER = "test -e /opt/muster -o -e /var/lib/muster || id muster"
BREAKS = yaml.safe_load((ROOT / "molecule/default/break.yml").read_text())[0]["vars"]["breaks"]
REPAIR = ("site.yml", "--tags=baseline,network")
KINDS = ("package", "file", "sshd", "unit", "account", "sysctl")
# The folders of a snapshot. Files elsewhere are only checked for existence.
KEPT = ("/etc/", "/home/", "/usr/local/", "/var/lib/muster/")
# Files that a package, useradd or ufw writes, and Muster's records (docs/check_mode.md).
EXPLAINED = re.compile(
    r"/etc/(?:passwd|group|shadow|gshadow|subuid|subgid)-?$|/etc/(?:ufw|default|chrony|systemd/system|rc.\.d|init\.d)/"
    r"|/var/lib/muster/(?:installed\.json|launches|work|cache|guard|ssh/muster/(?!id_ed25519$))|/home/muster/\.(?!ssh/)"
)
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
def checked(bare: list[Machine], play: Play) -> tuple[Result, dict[str, dict[str, str]]]:
    """Return the run in check mode on bare machines, and the state of the machines after it."""
    assert not any(has_muster(machine) for machine in bare)
    result = play("site.yml", check=True)
    return result, {machine.name: take(machine) for machine in bare}


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


def restarted(result: Result, node: str) -> set[str]:
    """Return the units that tasks of the run changed. "systemd" is the manager itself."""
    done = set()
    for event in result.events:
        data = event["event_data"]
        ran = event["event"] in ("runner_on_ok", "runner_item_on_ok") and data["host"] == node
        if ran and data["task_action"] == "ansible.builtin.systemd_service" and data["res"]["changed"]:
            done.add(data["res"].get("name") or "systemd")
    return done


def test_planned_changes_are_the_changes_of_the_next_run(
    checked: tuple[Result, dict[str, dict[str, str]]], first: Result
) -> None:
    """Every planned package, file, unit, account and kernel setting changes, and nothing else that is not explained."""
    found, before = planned(checked[0]), checked[1]
    assert table(found)[0] in checked[0].stdout
    assert table(found)[-1].split(":")[0] in checked[0].stdout
    for node in NODES:
        after = take(find_machine(node))
        rows = {
            kind: {one["name"] for one in found["rows"] if (one["node"], one["kind"]) == (node, kind)} for kind in KINDS
        }
        changed = {path for path in {*before[node], *after} if before[node].get(path) != after.get(path)}
        files = {path.replace("~muster", "/home/muster") for path in rows["file"] | rows["sshd"]}
        gone = {path for path in files if find_machine(node).inside("test", "-e", path, check=False).returncode}
        assert gone == set(), "planned files exist now"
        assert {path for path in files if path.startswith(KEPT)} - changed == set()
        others = {path for path in changed - files if path.startswith("/") and not EXPLAINED.match(path)}
        assert {path for path in others if not is_folder(after, path)} == set()
        new = {line.split()[0] for line in {*after["packages"].splitlines()} - {*before[node]["packages"].splitlines()}}
        assert rows["package"] <= new
        if node not in found["unknown"] or not any("dependencies" in text for text in found["unknown"][node]):
            assert rows["package"] == new
        assert rows["unit"] <= restarted(first, node)
        assert {line.split(":")[0] for line in after["/etc/passwd"].splitlines()} >= rows["account"]
        for key in rows["sysctl"] & {line.split(" = ")[0] for line in after["network settings"].splitlines()}:
            values = [
                text["network settings"].partition(f"{key} = ")[2].partition("\n")[0] for text in (before[node], after)
            ]
            assert values[0] != values[1], key


def is_folder(state: dict[str, str], path: str) -> bool:
    return any(one.startswith(f"{path}/") for one in state)


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
    assert "would change nothing on 3 nodes" in checked.stdout
    assert "Changes that this run" not in checked.stdout


def test_verify_mode_writes_nothing_to_nodes(first: Result, play: Play) -> None:
    """On finished nodes the run succeeds; on a damaged node it fails. In both cases no file of a node changes."""
    claims = "ls -lR --full-time /run/muster; journalctl -t muster --no-pager | wc -l"
    for damage, rc in (("true", 0), ("sed -i '/ node1$/d' /etc/hosts", 2)):
        find_machine("node2").inside("sh", "-ec", damage)
        before = {
            name: (take(find_machine(name)), find_machine(name).inside("sh", "-c", claims).stdout) for name in NODES
        }
        result = play("site.yml", extravars={"cluster_mode": "verify"})
        assert (result.rc, result.changed) == (rc, []), result.stdout
        assert ("The acceptance test is skipped" in result.stdout) == (rc == 0)
        after = {
            name: (take(find_machine(name)), find_machine(name).inside("sh", "-c", claims).stdout) for name in NODES
        }
        assert after == before
    assert play("site.yml", tags="network").rc == 0


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
