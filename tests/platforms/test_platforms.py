"""Set up two bare machines of each release as described in README until they are HEALTHY, with PyTorch's CUDA build."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import outside_look
from bare import NoBootError
from muster_controller.sandbox.bases import UnavailableError
from record import RECORDS, Record
from snapshot import differences
from walk import Walk

if TYPE_CHECKING:
    from bare import Bare
    from machines import Machine
    from walk import Step


def good(step: Step) -> Step:
    assert step.rc == 0, f"{step.name} ended with {step.rc}:\n{step.output[-3000:]}"
    return step


def unchanged(step: Step) -> None:
    assert step.changed == 0, f"{step.name} changed something:\n{step.output[-3000:]}"


def same(machine: Machine, before: dict[str, str]) -> None:
    found = differences(before, outside_look.take(machine))
    assert not found, f"--check changed {machine.name}:\n" + "\n".join(found[:60])


def test_bare_machines_become_healthy(row: str, bare: Bare) -> None:
    record = Record(row)
    logs = RECORDS / row
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.glob("*.log"):
        old.unlink()
    walk = Walk(bare, logs)
    try:
        make(bare, record)
        run_all_steps(walk, record)
        record.passed = True
    except (UnavailableError, NoBootError) as error:
        record.why = str(error)
        pytest.skip(record.why)
    except BaseException as error:
        lines = str(error).splitlines()
        record.why = (
            f"{walk.steps[-1].name if walk.steps else 'its machines'}: {lines[0] if lines else type(error).__name__}"
        )
        raise
    finally:
        record.seconds |= {step.name: round(step.seconds, 1) for step in walk.steps}
        record.changed = {step.name: step.changed for step in walk.steps}
        record.write()


def make(bare: Bare, record: Record) -> None:
    begun = time.monotonic()
    bare.build()
    record.seconds["bootstrap"] = round(time.monotonic() - begun, 1)
    begun = time.monotonic()
    bare.up()
    record.seconds["boot"] = round(time.monotonic() - begun, 1)


def run_all_steps(walk: Walk, record: Record) -> None:
    machines = walk.bare.machines
    before = [outside_look.take(machine) for machine in machines]
    walk.write_inventory()
    good(walk.play("trust", "playbooks/trust.yml", "-e", "trust_confirmed=true"))
    walk.copy_key()
    with_key = [outside_look.take(machine) for machine in machines]
    for old, new in zip(before, with_key, strict=True):
        assert differences(old, new), "the snapshot does not show the installed key"
    good(walk.play("inspect", "playbooks/inspect.yml"))
    good(walk.play("check on bare", "site.yml", "--check", "--diff"))
    for machine, old in zip(machines, with_key, strict=True):
        same(machine, old)
    first = good(walk.play("site", "site.yml"))
    assert first.last_line.startswith("HEALTHY: 2 ranks on 2 nodes trained together (gloo)"), first.output[-3000:]
    record.verdict = first.last_line
    record.versions = walk.bare.versions()
    again = good(walk.play("again", "site.yml"))
    unchanged(again)
    finished = [outside_look.take(machine) for machine in machines]
    unchanged(good(walk.play("check on finished", "site.yml", "--check")))
    for machine, old in zip(machines, finished, strict=True):
        same(machine, old)
