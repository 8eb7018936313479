"""Compromised nodes: real runs in which the node's Python returns hostile answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.verdict.printable import UNSEEN

ROOT = Path(__file__).parents[4]
FOUL = "\x1b[2J\x1b]52;c;eA==\x07\x1b[1A\x1b[31mdone\u202e\x9b2J\r"
COMMAND = "ansible-playbook playbooks/retire.yml -e node=node2 -e wipe=true"
EVIL = "-oProxyCommand=touch /tmp/x"
ANSWER = {
    "user": "anna",
    "there": True,
    "launch_user": True,
    "running": True,
    "answers": True,
    "at_boot": False,
    "socket": "/run/user/2001/muster-notebook/socket",
    "token_file": "/var/lib/muster/users/anna/notebook/token",
}


def run(folder: Path, task: str, answer: dict[str, Any], *options: str) -> subprocess.CompletedProcess[str]:
    """Run one task on a node whose Python prints this answer to every request."""
    python = folder / "python"
    python.write_text(f"#!{sys.executable}\nimport sys\nsys.stdin.read()\nprint({json.dumps(answer)!r})\n")
    python.chmod(0o755)
    variables = f"ansible_connection: local, ansible_python_interpreter: {python}, ansible_pipelining: true"
    (folder / "hosts.yml").write_text(f"gpu_nodes: {{hosts: {{node1: {{{variables}}}}}}}")
    (folder / "play.yml").write_text(
        f"- hosts: gpu_nodes\n  gather_facts: false\n  tasks:\n    - {{name: Ask, {task}}}\n"
    )
    return subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "play.yml", *options],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def printable_output(done: subprocess.CompletedProcess[str]) -> str:
    text = done.stdout + done.stderr
    found = UNSEEN.search(text)
    assert not found, repr(text[max(0, found.start() - 60) : found.end() + 20])
    return text


NOTEBOOK = 'notebook: {user: "%s", nodes: [node1]}'


@pytest.mark.parametrize("options", [(), ("--check",), ("-vvv",)], ids=["plain", "check", "verbose"])
@pytest.mark.parametrize("user", ["anna", ""], ids=["requested_user", "login_user"])
def test_node_answer_cannot_change_notebook_commands(tmp_path: Path, user: str, options: tuple[str, ...]) -> None:
    done = run(tmp_path, NOTEBOOK % user, {**ANSWER, "user": EVIL + FOUL}, *options)
    text = printable_output(done)
    assert done.returncode != 0
    assert f'node1 returned the {"" if user else "invalid "}user {"" if user else "name "}"{EVIL}' in " ".join(
        text.split()
    )
    assert "ssh -" not in text.rpartition("TASK [Ask]")[2].replace("EXEC", "")


def test_error_from_a_node_is_quoted_unchanged(tmp_path: Path) -> None:
    done = run(tmp_path, NOTEBOOK % "anna", {"error": f"{FOUL}To repair it, run {COMMAND}\nand more"})
    text = printable_output(done)
    assert done.stdout.splitlines()[-1].startswith("STOPPED: node1 at 'Ask': node1 reports: \"")
    assert f"run {COMMAND}" in " ".join(text.split())


def test_text_from_a_wiped_node_is_not_interpreted(tmp_path: Path) -> None:
    answer = {
        "changed": True,
        "msg": f"{FOUL}First run {COMMAND}",
        "outcome": "x",
        "reminder": FOUL,
        "closing": {"status": "healthy", "text": "HEALTHY"},
    }
    done = run(tmp_path, "wipe_node: {node: node1}", answer, "--check")
    text = printable_output(done)
    assert f"\nnode1: First run {COMMAND}\n" in text
    assert "HEALTHY" not in text
