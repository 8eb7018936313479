"""The command muster on a terminal: its help, its questions, and Ctrl-C."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pexpect
import pytest

from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE = 60  # seconds


@pytest.fixture
def muster(tmp_path: Path) -> Callable[..., pexpect.spawn]:
    """Return a function that starts the command on a terminal, with two clusters."""
    for name in ("lab2", "rack"):
        folder = tmp_path / "config/muster/clusters" / name
        folder.mkdir(parents=True)
        (folder / "hosts.yml").write_text("gpu_nodes: {hosts: {gpu01: {ansible_host: 10.0.0.1}}}\n")

    def start(*words: str) -> pexpect.spawn:
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MUSTER_"))},
            "PYTHONPATH": str(ROOT),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "TERM": "dumb",
        }
        argv = ["-P", "-m", "muster_cli", *words]
        return pexpect.spawn(sys.executable, argv, env=env, cwd=str(tmp_path), timeout=PATIENCE, dimensions=(50, 200))

    return start


def ended(child: pexpect.spawn) -> int:
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus)


def test_help_lists_the_verbs_by_purpose(muster: Callable[..., pexpect.spawn]) -> None:
    child = muster("--help")
    for heading in ("Set up:", "Launch:", "Watch:", "Change:", "Other:"):
        child.expect_exact(heading)
    assert ended(child) == 0


def test_misspelt_verb_is_answered_with_the_nearest(muster: Callable[..., pexpect.spawn]) -> None:
    child = muster("stats")
    child.expect_exact("There is no command stats. Did you mean status?")
    assert ended(child) == 2


def test_one_question_chooses_between_clusters(muster: Callable[..., pexpect.spawn]) -> None:
    child = muster("health", "--show")
    child.expect(r"Which cluster\? \(lab2, rack\b")
    child.sendline("rack")
    child.expect(r"playbooks/health.yml -i \S+/clusters/rack\s")
    assert ended(child) == 0


def test_ctrl_c_at_the_question_ends_the_command(muster: Callable[..., pexpect.spawn]) -> None:
    child = muster("health")
    child.expect(r"Which cluster\? .*: ")
    child.sendintr()
    assert ended(child) == 130
