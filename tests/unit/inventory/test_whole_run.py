"""Playbooks that must run completely reject --limit and tags before contacting any node."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cases import cases
from muster.inventory import job

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
NODES = """\
gpu_nodes:
  vars: {cluster_artifacts_dir: artifacts, ansible_ssh_executable: "{{ inventory_dir }}/../ssh"}
  hosts: {node1: {ansible_host: 10.0.0.1}, node2: {ansible_host: 10.0.0.2}}
bastions:
  hosts: {gate: {ansible_connection: local}}
"""
WHY = "The nodes that stay would go on trusting the one that leaves"


@cases(__file__, "part_of_the_run")
def test_partial_run_is_rejected_with_the_reason(case: dict[str, Any]) -> None:
    whole = job.WholeRun(case.get("nodes", ""), case.get("tasks", ""))
    given = case.get("limit", ""), case.get("left_out", []), case.get("tags", [])
    assert job.part_of_the_run(*given, whole, "retire --all") == case["refused"]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook with a stub of ssh that creates a marker file when it is called."""
    (folder / "rack").mkdir(exist_ok=True)
    (folder / "rack/hosts.yml").write_text(NODES)
    ssh = folder / "ssh"
    ssh.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(folder / 'contacted'))}\nexit 255\n")
    ssh.chmod(0o755)
    return subprocess.run(
        [BIN / "ansible-playbook", *words],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "COLUMNS": "400"},
    )


def retire(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(folder, str(ROOT / "playbooks/retire.yml"), "-i", "rack", "-e", "node=node2", *words)


def test_nodes_are_contacted_if_there_is_no_limit_or_tag(tmp_path: Path) -> None:
    assert retire(tmp_path).returncode != 0
    assert (tmp_path / "contacted").exists()


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (["--limit", "node2"], "--limit node2 leaves out node1"),
        (["-e", "wipe=true", "--limit", "node1"], "--limit node1 leaves out node2"),
        (["--limit", "gate"], "--limit gate leaves out node1, node2"),
        (["--tags", "network"], "--tags network leaves out tasks"),
        (["--skip-tags", "network"], "--skip-tags network leaves out tasks"),
    ],
)
def test_limits_and_tags_are_rejected_before_any_node_is_contacted(tmp_path: Path, given: list[str], what: str) -> None:
    done = retire(tmp_path, *given)
    assert done.returncode == 2, done.stdout + done.stderr
    wiping = " -e wipe=true" if "wipe=true" in given else ""
    command = f"ansible-playbook {ROOT}/playbooks/retire.yml -i rack -e node=node2{wiping}"
    assert f"No node was contacted: {what}. {WHY}. Run the whole playbook: " in done.stdout
    assert f"{command}\n" in done.stdout
    assert not (tmp_path / "contacted").exists()


def test_onboarding_rejects_a_limit(tmp_path: Path) -> None:
    words = ("-i", "rack", "-e", "node=node3", "-e", "address=10.0.0.3", "--limit", "node1")
    done = run(tmp_path, str(ROOT / "playbooks/onboard.yml"), *words)
    assert done.returncode == 2
    why = "--limit node1 leaves out node2. Names, keys and rules are those of all nodes."
    assert f"No node was contacted: {why}" in done.stdout
    assert not (tmp_path / "contacted").exists()


def test_inventory_variable_that_a_playbook_reads_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "rack/group_vars").mkdir(parents=True)
    (tmp_path / "rack/group_vars/all.yml").write_text("---\nour_driver: x\nwipe: true\n")
    done = retire(tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    sentence = "rack/group_vars/all.yml line 3: wipe is a variable of the inventory, and this playbook reads it"
    assert sentence in " ".join(done.stdout.split())
    assert "our_driver" not in done.stdout
    assert not (tmp_path / "contacted").exists()
    validated = run(tmp_path, str(ROOT / "playbooks/validate.yml"), "-i", "rack")
    assert validated.returncode == 0, validated.stdout
