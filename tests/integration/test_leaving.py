"""No node trusts a retired node: logins from the retired node are rejected."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from conftest import UP_TO_NETWORK
from killable import Run
from machines import find_machine
from paths import ENVIRONMENT, INVENTORY, ROOT, SANDBOX
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play

LISTED, PINNED = INVENTORY / "hosts_more.yml", SANDBOX / "known_hosts"
NODE = "node3"
RETIRE = {"node": NODE, "trust_known_hosts": str(PINNED)}


def logs_in(machine: Machine, peer: str) -> bool:
    """Return whether the training user can log in on a peer, by its address because its name might be removed."""
    options = ("-oBatchMode=yes", "-oConnectTimeout=10")
    argv = ("runuser", "-u", "muster", "--", "ssh", *options, find_machine(peer).address, "true")
    done = machine.inside(*argv, check=False)
    assert done.returncode == 0 or "Permission denied" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.fixture
def leaver(networked: list[Machine], play: Play) -> Iterator[Machine]:
    listed, pinned = LISTED.read_text(), PINNED.read_text()
    yield next(machine for machine in networked if machine.name == NODE)
    LISTED.write_text(listed)
    PINNED.write_text(pinned)
    back = play("site.yml", tags=UP_TO_NETWORK)
    assert back.rc == 0, back.stdout


def test_retirement_with_a_limit_that_would_keep_trust_is_refused(leaver: Machine, play: Play) -> None:
    listed = LISTED.read_text()
    done = play("playbooks/retire.yml", extravars=RETIRE, limit=NODE)
    assert (done.rc, LISTED.read_text()) == (2, listed), done.stdout
    assert f"--limit {NODE} leaves out node1, node2." in done.stdout
    assert logs_in(leaver, "node1")
    # --tags can also skip the play that refuses.
    done = play("playbooks/retire.yml", extravars=RETIRE, limit=NODE, cmdline="--skip-tags always")
    assert (done.rc, LISTED.read_text()) == (2, listed), done.stdout
    assert "Run it without --limit and tags: skipped nodes" in done.stdout
    done = play("playbooks/retire.yml", extravars=RETIRE)
    assert (done.rc, LISTED.read_text() == listed) == (0, False), done.stdout
    assert [logs_in(leaver, peer) for peer in ("node1", "node2")] == [False, False]


def test_unreachable_node_is_reported_until_its_trust_is_removed(leaver: Machine, tmp_path: Path) -> None:
    words = [word for name, value in RETIRE.items() for word in ("-e", f"{name}={value}")]
    second = find_machine("node2")
    second.podman("stop", "--time=0")
    try:
        stopped = Run(tmp_path, "-i", str(LISTED), "playbooks/retire.yml", *words).end()
    finally:
        second.podman("start")
    until(second.ssh_answers, PATIENCE, "node2 is back")
    assert stopped.rc != 0, stopped.shown
    assert NODE not in LISTED.read_text()
    [last] = [line for line in stopped.shown.splitlines() if line.startswith("STOPPED: ")]
    said = f". node2 might still trust {NODE}. When all nodes respond, run: "
    assert said in last
    command = last.partition(said)[2].partition(" (")[0]
    assert [logs_in(leaver, peer) for peer in ("node1", "node2")] == [False, True]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not logs_in(leaver, "node2")
