"""Shared folders are mounted on access, checked from all nodes, and reported if their server does not respond.

The test kernel has no NFS client. The server is a node's sshd, mounted with sshfs: a real network file system with a
server that can be stopped. NFS features (options, locks, user squashing) are not covered.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from exported import EXPORT, PATH, exported, skip_if_unsupported
from machines import NODES
from paths import ARTIFACTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from machines import Machine, Play, Result

PLAYBOOK = "playbooks/network.yml"
TASK = "Mount the shared folders"


@pytest.fixture(scope="module")
def nodes(networked: None, node: Callable[[str], Machine]) -> list[Machine]:
    found = [node(name) for name in NODES]
    skip_if_unsupported(found[0])
    return found


@pytest.fixture(scope="module")
def served(play: Play, nodes: list[Machine]) -> Iterator[dict[str, Any]]:
    """Export a folder of the third node. Root on the other nodes can mount it with the rights of the training user."""
    with exported(nodes[2], nodes) as mount:
        yield {"shared_data_mounts": [mount]}
        result = play(PLAYBOOK)
        assert result.rc == 0, result.stdout


def mounted(machine: Machine) -> list[str]:
    """Return the types of the mounts at the path, topmost last."""
    text = machine.inside("cat", "/proc/self/mountinfo").stdout
    return [line.split(" - ")[1].split()[0] for line in text.splitlines() if f" {PATH} " in line.split(" - ")[0]]


def refusal(result: Result, name: str) -> str:
    return str(result.results(TASK)[name].get("msg", ""))


def findings(result: Result) -> set[tuple[str, str]]:
    """Return the ids and nodes of the findings about shared data."""
    assert result.stats["processed"]
    kept = json.loads((ARTIFACTS / "latest/verdict.json").read_text())
    told = [one for one in kept["findings"] if one["status"] in ("fail", "warn", "unknown")]
    return {(one["id"], one["node"]) for one in told if one["id"].startswith("data.")}


def test_check_mode_reports_missing_mounts(play: Play, nodes: list[Machine], served: dict[str, Any]) -> None:
    result = play(PLAYBOOK, extravars=served, check=True)
    assert result.rc == 0, result.stdout
    assert f"{PATH} is missing" in result.results(TASK)[NODES[0]]["differences"]
    assert nodes[0].inside("test", "-e", PATH, check=False).returncode


def test_non_empty_folder_is_not_mounted_over(play: Play, nodes: list[Machine], served: dict[str, Any]) -> None:
    nodes[0].inside("sh", "-ec", f"mkdir {PATH}; echo mine > {PATH}/mine")
    try:
        result = play(PLAYBOOK, extravars=served, limit=NODES[0])
        assert f"{PATH} contains files, which a mount would hide" in refusal(result, NODES[0])
        assert nodes[0].inside("cat", f"{PATH}/mine").stdout == "mine\n"
        assert mounted(nodes[0]) == []
    finally:
        nodes[0].inside("rm", "-r", PATH)


def test_mount_point_in_a_folder_of_others_is_refused(play: Play, nodes: list[Machine], served: dict[str, Any]) -> None:
    (mount,) = served["shared_data_mounts"]
    nodes[0].inside("install", "-d", "-o", "muster", "/srv/theirs")
    try:
        given = {"shared_data_mounts": [{**mount, "path": "/srv/theirs/data"}]}
        result = play(PLAYBOOK, extravars=given, limit=NODES[0])
        assert "/srv/theirs/data is not safe to use: /srv/theirs belongs to muster" in refusal(result, NODES[0])
        assert nodes[0].inside("ls", "-A", "/srv/theirs").stdout == ""
    finally:
        nodes[0].inside("rmdir", "/srv/theirs")


def test_folder_is_mounted_on_all_nodes_and_second_run_changes_nothing(
    play: Play, nodes: list[Machine], served: dict[str, Any]
) -> None:
    nodes[0].inside("apt-get", "remove", "--yes", "sshfs", check=False)
    nodes[0].inside("sh", "-c", "rm -rf /var/lib/apt/lists/*")  # as in a fresh image
    first = play(PLAYBOOK, extravars=served)
    assert first.rc == 0, first.stdout
    for machine in nodes:
        assert machine.inside("cat", f"{PATH}/readme").stdout == "hello\n"
        assert mounted(machine)[-1] == "fuse.sshfs"
    full = play(PLAYBOOK, extravars={**served, "full": True})
    assert (full.rc, full.changed) == (0, []), full.stdout
    quick = play(PLAYBOOK, extravars=served)
    assert (quick.rc, quick.changed) == (0, []), quick.stdout
    (look,) = quick.results("Find the roles that have to run").values()
    assert look["needed"]["shared_data"] == []


def test_changed_or_stopped_unit_is_repaired(play: Play, nodes: list[Machine], served: dict[str, Any]) -> None:
    nodes[0].inside("sh", "-ec", "echo '# more' >> /etc/systemd/system/data.automount")
    nodes[1].inside("systemctl", "disable", "--now", "data.automount")
    result = play(PLAYBOOK, extravars=served)
    assert result.rc == 0, result.stdout
    said = result.results(TASK)
    assert said[NODES[0]]["differences"] == ["/etc/systemd/system/data.automount has other content"]
    assert said[NODES[1]]["differences"] == ["data.automount is not enabled"]
    assert not said.get(NODES[2], {}).get("changed", False)
    for machine in nodes:
        assert machine.inside("cat", f"{PATH}/readme").stdout == "hello\n"


def test_files_of_one_node_are_visible_on_all_nodes(play: Play, nodes: list[Machine], served: dict[str, Any]) -> None:
    result = play("playbooks/data.yml", extravars={**served, "data_megabytes": 4})
    assert result.rc == 0, result.stdout
    assert findings(result) == set()
    (folder,) = json.loads((ARTIFACTS / "latest/shared_data.json").read_text())["folders"]
    assert [row["node"] for row in folder["nodes"]] == list(NODES)
    assert all(row[name] is not None for row in folder["nodes"] for name in ("write", "read", "seen"))
    assert "<h2>Shared data</h2>" in (ARTIFACTS / "latest/report.html").read_text()
    assert nodes[2].inside("ls", "-A", EXPORT).stdout.split() == ["readme"], "the check's own files must be gone"


def test_wrong_mount_and_wrong_owner_are_reported(play: Play, nodes: list[Machine], served: dict[str, Any]) -> None:
    """Mount another file system over the folder on the second node, and change owners on the first."""
    own = "/srv/own"
    nodes[1].inside("sh", "-ec", f"install -d -o muster -g muster {own}; mount --bind {own} {PATH}")
    (mount,) = served["shared_data_mounts"]
    over = ["sshfs", "-o", f"{mount['options'].replace('allow_other', 'allow_other,uid=4711')}", mount["source"], PATH]
    nodes[0].inside(*over)
    try:
        result = play("playbooks/data.yml", extravars={**served, "data_megabytes": 1})
        found = findings(result)
        assert ("data.trial.unseen", NODES[1]) in found
        assert ("data.trial.owner", NODES[0]) in found
        assert not {one for one in found if one[0] == "data.trial.owner"} - {("data.trial.owner", NODES[0])}
        health = play("playbooks/health.yml", extravars=served)
        assert findings(health) == {("data.missing", NODES[1])}
        nodes[1].inside("chown", "root:", own)
        closed = play("playbooks/data.yml", extravars={**served, "data_megabytes": 1})
        assert ("data.trial.unwritable", NODES[1]) in findings(closed)
    finally:
        nodes[0].inside("umount", PATH)
        nodes[1].inside("umount", PATH)
        nodes[1].inside("rm", "-r", own)


def test_lost_server_does_not_block_the_checks(play: Play, nodes: list[Machine], served: dict[str, Any]) -> None:
    for machine in nodes[:2]:
        # Stops the client process of the mount, so that the kernel waits for it.
        machine.inside("systemctl", "kill", "--signal=STOP", "data.mount")
        late = machine.inside("timeout", "-s", "KILL", "3", "stat", "-f", f"{PATH}/.", check=False)
        assert late.returncode == 137, "the fault must be on"
    try:
        result = play("playbooks/health.yml", extravars=served)
        assert findings(result) == {("data.silent", name) for name in NODES[:2]}
    finally:
        for machine in nodes[:2]:
            machine.inside("systemctl", "kill", "--signal=CONT", "data.mount")
    assert nodes[0].inside("cat", f"{PATH}/readme").stdout == "hello\n"


def test_broken_connection_is_reported(play: Play, nodes: list[Machine], served: dict[str, Any]) -> None:
    nodes[0].inside("systemctl", "kill", "--signal=KILL", "data.mount")
    said = nodes[0].inside("ls", PATH, check=False)
    assert said.returncode, "the fault must be on"
    try:
        result = play("playbooks/health.yml", extravars=served)
        assert findings(result) <= {("data.broken", NODES[0])}
        assert findings(result)
    finally:
        nodes[0].inside("umount", "-l", PATH, check=False)
    repaired = play(PLAYBOOK, extravars={**served, "full": True})
    assert repaired.rc == 0, repaired.stdout
    assert nodes[0].inside("cat", f"{PATH}/readme").stdout == "hello\n"


def test_scratch_folder_is_created(play: Play, nodes: list[Machine], served: dict[str, Any]) -> None:
    scratch = {"shared_data_scratch": "/srv/scratch", "shared_data_scratch_gb": 1}
    result = play(PLAYBOOK, extravars={**served, **scratch}, limit=NODES[0])
    assert result.rc == 0, result.stdout
    assert nodes[0].inside("stat", "--format=%a", "/srv/scratch").stdout.strip() == "1777"
    small = play(PLAYBOOK, extravars={**served, **scratch, "shared_data_scratch_gb": 10**6}, limit=NODES[0])
    assert "and 1000000 GB are requested" in refusal(small, NODES[0])
    nodes[0].inside("rmdir", "/srv/scratch")


def test_mount_no_longer_requested_is_removed(play: Play, nodes: list[Machine], served: dict[str, Any]) -> None:
    # Like a launch in the folder: systemd would stop it with the folder's unit.
    nodes[0].inside("systemd-run", "--unit=muster-test-holder", f"--working-directory={PATH}", "sleep", "600")
    try:
        busy = play(PLAYBOOK)
        assert nodes[0].inside("systemctl", "is-active", "muster-test-holder", check=False).stdout.strip() == "active"
        assert f"{PATH} is in use and stays mounted" in refusal(busy, NODES[0])
        assert f"sudo fuser -vm {PATH}" in refusal(busy, NODES[0])
        assert nodes[0].inside("cat", f"{PATH}/readme").stdout == "hello\n"
        assert mounted(nodes[1]) == []
    finally:
        nodes[0].inside("systemctl", "stop", "muster-test-holder")
    result = play(PLAYBOOK)
    assert result.rc == 0, result.stdout
    for machine in nodes:
        assert mounted(machine) == []
        left = machine.inside("sh", "-c", "ls /etc/systemd/system | grep -c '^data[.]'", check=False).stdout.strip()
        assert left == "0"
    assert nodes[2].inside("cat", f"{EXPORT}/readme").stdout == "hello\n"
    again = play(PLAYBOOK)
    assert (again.rc, again.changed) == (0, []), again.stdout


def test_invalid_mounts_are_refused_before_contacting_nodes(play: Play) -> None:
    wrong = [{"source": "files:/a", "path": "/etc"}, {"source": "files:/b", "path": "/data", "options": "soft"}]
    result = play(PLAYBOOK, extravars={"shared_data_mounts": wrong})
    assert result.rc
    said = " ".join(result.stdout.split())
    assert "/etc is a system folder" in said
    assert "/data has the option soft" in said
    assert not result.results("Claim the nodes")
