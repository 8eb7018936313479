"""Edits of inventory files: which file is changed, how it is written, and which steps are left to the user."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from ansible.errors import AnsibleError

from muster.inventory_file import changes
from muster_controller.inventory import inventory_file
from muster_controller.inventory.inventory_file import add_nodes, remove_nodes, set_variables, unset_variables
from muster_controller.playbook.one_writer import one_writer

if TYPE_CHECKING:
    from pathlib import Path

    from muster_controller.inventory.inventory_file import InventoryEdits

HOSTS = """\
gpu_nodes:
  hosts:
    node1: {ansible_host: 10.0.0.1}
    node2: {ansible_host: 10.0.0.2}
"""
FAN = {"cluster_quarantined": {"reason": "a fan", "by": "anna"}}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lab"
    (folder / "group_vars").mkdir(parents=True)
    (folder / "group_vars/all.yml").write_text("cluster_name: lab\n")
    (folder / "hosts.yml").write_text(HOSTS)
    monkeypatch.chdir(tmp_path)
    return folder


def by_hand(outcome: InventoryEdits) -> str:
    assert not outcome.changed
    (text,) = outcome.by_hand
    return text


def test_edited_file_keeps_mode_and_link(lab: Path) -> None:
    real = lab.parent / "real.yml"
    (lab / "hosts.yml").rename(real)
    real.chmod(0o640)
    (lab / "hosts.yml").symlink_to(real)
    outcome = add_nodes([str(lab)], {"node3": {"ansible_host": "10.0.0.3"}})
    assert outcome.changed
    assert not outcome.by_hand
    assert (lab / "hosts.yml").is_symlink()
    assert real.read_text() == HOSTS + "    node3: {ansible_host: 10.0.0.3}\n"
    assert real.stat().st_mode & 0o7777 == 0o640
    assert sorted(path.name for path in lab.iterdir()) == ["group_vars", "hosts.yml"]


def test_check_mode_shows_the_diff_without_writing(lab: Path) -> None:
    outcome = set_variables([str(lab)], {"node1": FAN}, check=True)
    assert (lab / "hosts.yml").read_text() == HOSTS
    (diff,) = outcome.diffs
    assert diff["before"] == HOSTS
    assert diff["after_header"] == "lab/hosts.yml"
    assert "node1: {ansible_host: 10.0.0.1, cluster_quarantined: {reason: a fan, by: anna}}" in diff["after"]


def test_repeated_edit_changes_nothing(lab: Path) -> None:
    assert set_variables([str(lab)], {"node1": FAN}).changed
    assert not set_variables([str(lab)], {"node1": FAN}).changed
    assert unset_variables([str(lab)], {"node1": FAN}).changed
    assert (lab / "hosts.yml").read_text() == HOSTS
    assert not unset_variables([str(lab)], {"node1": FAN}).changed
    assert remove_nodes([str(lab)], ["node2"]).changed
    assert not remove_nodes([str(lab)], ["node2"]).changed


def test_removed_node_is_removed_from_all_files(lab: Path) -> None:
    (lab / "racks.yml").write_text("rack1:\n  hosts:\n    node1:\n    node2:\n")
    (lab / "host_vars").mkdir()
    (lab / "host_vars/node2.yml").write_text("cluster_gpus: 8\n")
    outcome = remove_nodes([str(lab)], ["node2"])
    assert [diff["before_header"] for diff in outcome.diffs] == ["lab/hosts.yml", "lab/racks.yml"]
    assert "node2" not in (lab / "hosts.yml").read_text() + (lab / "racks.yml").read_text()
    assert outcome.left == ["lab/host_vars/node2.yml"]


def test_existing_host_variable_is_edited_in_place(lab: Path) -> None:
    (lab / "host_vars/node2").mkdir(parents=True)
    own = lab / "host_vars/node2/main.yml"
    own.write_text("# ours\ncluster_quarantined: true\ncluster_gpus: 8\n")
    assert set_variables([str(lab)], {"node2": {"cluster_quarantined": False}}).changed
    assert own.read_text() == "# ours\ncluster_quarantined: false\ncluster_gpus: 8\n"
    assert unset_variables([str(lab)], {"node2": ["cluster_quarantined"]}).changed
    assert own.read_text() == "# ours\ncluster_gpus: 8\n"
    assert (lab / "hosts.yml").read_text() == HOSTS


@pytest.mark.parametrize("held", [True, False])
def test_concurrent_writers_are_serialized(lab: Path, monkeypatch: pytest.MonkeyPatch, held: bool) -> None:
    if held:
        monkeypatch.setattr(inventory_file, "one_writer", lambda folder: one_writer(folder, 0.1))
        with one_writer(lab), pytest.raises(TimeoutError, match="another run has locked the folder"):
            add_nodes([str(lab)], {"node3": {}})
        assert (lab / "hosts.yml").read_text() == HOSTS
        return
    names = [f"node{number}" for number in range(3, 11)]
    writers = [threading.Thread(target=add_nodes, args=([str(lab)], {name: {"x": 1}})) for name in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    text = (lab / "hosts.yml").read_text()
    assert sorted(text.splitlines()[4:]) == sorted(f"    {name}: {{x: 1}}" for name in names)


def test_concurrent_change_by_another_program_is_not_overwritten(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(text: str, *rest: object) -> str:
        (lab / "hosts.yml").write_text(HOSTS + "# mine\n")
        return text + "# ours\n"

    monkeypatch.setattr(changes, "assign", slow)
    with pytest.raises(AnsibleError, match="was changed by another process"):
        set_variables(["lab"], {"node1": FAN})
    assert (lab / "hosts.yml").read_text() == HOSTS + "# mine\n"


def test_instructions_for_an_ini_inventory_include_line_numbers(lab: Path) -> None:
    (lab / "hosts.yml").unlink()
    (lab / "hosts.ini").write_text("[gpu_nodes]\nnode1 ansible_host=10.0.0.1\nnode2 ansible_host=10.0.0.2\n")
    assert by_hand(
        add_nodes(["lab"], {"node3": {"ansible_host": "10.0.0.3", "cluster_torch_version": "2.10", "a": {}}})
    ) == (
        "Add node3 to lab/hosts.ini. Add these lines where they are missing:\n\n[gpu_nodes]\n"
        "node3 ansible_host=10.0.0.3 cluster_torch_version=\"'2.10'\" a='{}'\n"
    )
    assert by_hand(set_variables(["lab"], {"node1": FAN})) == (
        "Add to lab/host_vars/node1.yml, for node1:\n\ncluster_quarantined:\n  reason: a fan\n  by: anna\n"
    )
    assert by_hand(remove_nodes(["lab"], ["node2"])) == "Remove node2 from lab/hosts.ini line 3."
    assert not remove_nodes(["lab"], ["node9"]).by_hand


def test_instructions_for_a_host_range_include_line_numbers(lab: Path) -> None:
    text = 'gpu_nodes:\n  hosts:\n    node[1:3]:   # all alike\n      cluster_gpus: 8\n      a: "b"\n'
    (lab / "hosts.yml").write_text(text)
    assert by_hand(remove_nodes(["lab"], ["node2"])) == (
        "lab/hosts.yml has the entry node[1:3], which is a range of several nodes (node1, node2, node3).\n"
        "In lab/hosts.yml line 3, replace node[1:3] with:\n\n"
        '    node1:   # all alike\n      cluster_gpus: 8\n      a: "b"\n'
        '    node3:   # all alike\n      cluster_gpus: 8\n      a: "b"\n'
    )
    assert by_hand(set_variables(["lab"], {"node2": FAN})) == (
        "Add to lab/host_vars/node2.yml, for node2:\n\ncluster_quarantined:\n  reason: a fan\n  by: anna\n"
    )
    (lab / "host_vars").mkdir()
    (lab / "host_vars/node2.yml").write_text("cluster_quarantined:\n  reason: a fan\n  by: anna\n")
    assert not set_variables(["lab"], {"node2": FAN}).by_hand
    assert unset_variables(["lab"], {"node2": FAN}).changed
    assert (lab / "host_vars/node2.yml").read_text() == ""


def test_inventory_plugin_or_script_is_unchanged(lab: Path) -> None:
    (lab / "hosts.yml").write_text("plugin: ansible.builtin.constructed\nstrict: false\n")
    assert "Add node3 to lab/hosts.yml" in by_hand(add_nodes(["lab"], {"node3": {}}))
    script = lab / "hosts.yml"
    script.write_text('#!/bin/sh\necho \'{"gpu_nodes": {"hosts": ["node1"]}}\'\n')
    script.chmod(0o755)
    assert by_hand(remove_nodes(["lab"], ["node1"])) == "Remove node1 from lab/hosts.yml line 2."


def test_waiting_for_another_writer_times_out(tmp_path: Path) -> None:
    began = time.monotonic()
    with one_writer(tmp_path), pytest.raises(TimeoutError), one_writer(tmp_path, 0.2):
        pass
    assert time.monotonic() - began < 10
    with one_writer(tmp_path):
        assert not list(tmp_path.iterdir())
