"""Two administrators at the same time: one run changes the nodes, and the other run is refused."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from killable import Run
from muster_controller.nodes.claims import RUNS
from muster_controller.nodes.keeper import GONE
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine

NAMES = ("node1", "node2")
# With a gate, a run waits between two steps until the gate file exists.
STEPS = """
- name: Change something
  hosts: node1:node2
  gather_facts: false
  become: true
  tasks:
    - name: Claim the nodes
      claim_nodes:
      run_once: true

    - name: Wait at the gate
      ansible.builtin.wait_for: {path: "{{ gate }}", timeout: 600}
      delegate_to: localhost
      become: false
      run_once: true
      when: gate is defined

    - name: Claim the nodes for the next step
      claim_nodes:
      run_once: true
"""


@pytest.fixture
def steps(tmp_path: Path) -> str:
    path = tmp_path / "steps.yml"
    path.write_text(STEPS)
    return str(path)


@pytest.fixture
def nodes(networked: list[Machine]) -> list[Machine]:
    return [machine for machine in networked if machine.name in NAMES]


def claim_of(machine: Machine) -> dict[str, Any]:
    shown = machine.inside("cat", "/run/muster/claim/claim.json", check=False).stdout
    claim: dict[str, Any] = json.loads(shown) if shown else {"freed": True}
    return claim


def wait_for(nodes: list[Machine], *, freed: bool) -> None:
    until(lambda: [claim_of(node)["freed"] for node in nodes] == [freed] * 2, PATIENCE, f"freed: {freed}")


@contextmanager
def between_two_steps(folder: Path, steps: str, nodes: list[Machine]) -> Iterator[Run]:
    """Run a playbook that claims both nodes. The playbook waits between two steps until the end of the block."""
    gate = folder / "gate"
    run = Run(folder, steps, "-vvv", "-e", f"gate={gate}")
    try:
        wait_for(nodes, freed=False)
        yield run
    finally:
        gate.touch()
        run.end()


def output(run: Run) -> str:
    return " ".join(run.shown.split())


def test_second_run_is_refused_until_the_first_has_ended(tmp_path: Path, steps: str, nodes: list[Machine]) -> None:
    with between_two_steps(tmp_path, steps, nodes) as first:
        second = Run(tmp_path, "playbooks/baseline.yml", "--limit", "node2").end()
        assert second.rc == 2, second.shown
        assert f"node2: claimed by {claim_of(nodes[1])['who']} since" in output(second)
        assert "(steps.yml). Nothing was changed." in output(second)
        assert "-e cluster_take_over=true" in output(second)
        assert second.changed == 0
        look = Run(tmp_path, steps, "--check").end()
        assert look.rc == 0, look.shown
        assert "[WARNING]: node1, node2: " in output(look), look.shown
    assert first.rc == 0, first.shown
    wait_for(nodes, freed=True)
    assert nodes[0].inside("journalctl", "-t", "muster", "-o", "cat").stdout.splitlines()[-1].endswith("steps.yml: ok")


def test_killed_run_releases_the_nodes_after_its_last_task(tmp_path: Path, steps: str, nodes: list[Machine]) -> None:
    with between_two_steps(tmp_path, steps, nodes) as run:
        run.process.kill()
        run.process.wait()
        assert not claim_of(nodes[0])["freed"]
    wait_for(nodes, freed=True)
    assert nodes[1].inside("journalctl", "-t", "muster", "-o", "cat").stdout.splitlines()[-1].endswith(GONE)


@pytest.mark.slow
@pytest.mark.parametrize("here", [True, False])
def test_nodes_are_freed_when_the_controller_dies(tmp_path: Path, steps: str, nodes: list[Machine], here: bool) -> None:
    """The loss of a controller is detected immediately on the same machine, and after a minute on another machine."""
    run = Run(tmp_path, steps, "-e", f"gate={tmp_path}/gate")
    wait_for(nodes, freed=False)
    run.kill()
    if here:
        assert Run(tmp_path, steps).end().rc == 0
        return
    (Path.home() / ".ansible/tmp" / RUNS / claim_of(nodes[0])["token"]).unlink()
    assert Run(tmp_path, steps).end().rc == 2
    until(lambda: Run(tmp_path, steps).end().rc == 0, PATIENCE, "its lease has ended")
    journal = nodes[0].inside("journalctl", "-t", "muster", "-o", "cat").stdout
    assert any("takes the claim" in line and line.endswith(" is gone") for line in journal.splitlines())
