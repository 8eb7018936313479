"""The claim on a node, which only one run can hold at a time, with real files, locks and processes of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import syslog
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.programs import claim
from muster_node.tools.files import UnsafePathError
from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

LEASE = 60
HOLDER = {"who": "ann@desk", "doing": "site.yml"}
PROGRAM = "import sys; from muster_node.programs import claim; claim.FOLDER = sys.argv.pop(); claim.main()"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the node's simulated clock, and store the claim in a temporary folder."""
    clock = Clock()
    monkeypatch.setattr(claim, "FOLDER", str(tmp_path / "muster/claim"))
    monkeypatch.setattr(claim, "clock", clock)
    return clock


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(syslog, "syslog", lambda _priority, text: lines.append(text))
    return lines


def ask(verb: Any, token: str, **more: Any) -> dict[str, Any]:
    request = {"token": token, **HOLDER, "lease": LEASE, "take_over": False, "result": "ok", **more}
    answer: dict[str, Any] = claim.alone(verb, request)
    return answer


take, renew, free = (partial(ask, verb) for verb in (claim.take, claim.renew, claim.free))


def test_second_run_receives_the_current_holder(clock: Clock, tmp_path: Path) -> None:
    assert take("ann")["held"]
    holder = take("bob", who="bob@laptop")["holder"]
    assert {**HOLDER, "since": holder["since"], "token": "ann"} == holder
    assert claim.alone(claim.look, {}) == {"holder": holder}
    assert take("ann")["held"]
    assert take("bob")["holder"] == holder, "the time of the claim is unchanged"
    folder = tmp_path / "muster/claim"
    assert (folder.stat().st_mode & 0o777, (folder / "claim.json").stat().st_mode & 0o777) == (0o700, 0o600)


def test_released_claim_is_free_immediately(clock: Clock, journal: list[str]) -> None:
    take("ann")
    free("bob")
    assert not take("bob")["held"]
    free("ann", result="failed")
    free("ann")
    assert claim.alone(claim.look, {}) == {"holder": None}
    assert take("bob", who="bob@laptop", doing="baseline.yml")["held"]
    assert journal == [
        "ann@desk takes the claim for site.yml",
        "ann@desk frees the claim: site.yml: failed",
        "bob@laptop takes the claim for baseline.yml",
    ]


def test_claim_lasts_while_it_is_renewed(clock: Clock, journal: list[str]) -> None:
    take("ann")
    for _ in range(3):
        clock.now += LEASE - 1
        assert renew("ann")["held"]
        assert not take("bob")["held"]
    clock.now += LEASE
    assert take("bob", who="bob@laptop")["held"]
    assert journal[-1] == "bob@laptop takes the claim for site.yml; ann@desk is gone"


def test_late_renewal_reports_the_run_that_held_the_claim_meanwhile(clock: Clock) -> None:
    take("ann")
    clock.now += LEASE
    assert renew("ann")["held"], "no other run took the claim"
    clock.now += LEASE
    take("bob", who="bob@laptop")
    free("bob")
    assert renew("ann")["holder"]["who"] == "bob@laptop"
    assert take("ann")["held"]


def test_renewal_after_the_end_of_a_run_is_ignored(clock: Clock) -> None:
    take("ann")
    free("ann")
    assert not renew("ann")["held"]
    assert claim.alone(claim.look, {}) == {"holder": None}
    assert take("ann")["held"], "a step that failed on another node is retried"


def test_parent_of_the_claim_folder_stays_readable(tmp_path: Path) -> None:
    """After a boot, the claim creates the parent folder of launches, often with root's strict umask."""
    before = os.umask(0o077)
    try:
        folder = str(tmp_path / "muster/claim")
        argv = [sys.executable, "-S", "-c", PROGRAM, "look", folder]
        subprocess.run(argv, cwd=ROOT / "plugins/module_utils", input=b"{}", check=True, capture_output=True)
    finally:
        os.umask(before)
    assert (tmp_path / "muster").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "muster/claim").stat().st_mode & 0o777 == 0o700


def test_renewal_restores_a_lost_claim_file(clock: Clock, tmp_path: Path) -> None:
    take("ann")
    (tmp_path / "muster/claim/claim.json").unlink()
    assert renew("ann")["held"]
    assert not take("bob")["held"]


def test_claim_can_be_taken_over_on_request(clock: Clock, journal: list[str]) -> None:
    take("ann")
    assert take("bob", who="bob@laptop", take_over=True)["held"]
    assert journal[-1] == "bob@laptop takes the claim for site.yml, which ann@desk had"
    assert not renew("ann")["held"]


def test_one_of_many_concurrent_runs_gets_the_claim(tmp_path: Path) -> None:
    folder = str(tmp_path / "muster/claim")
    runs = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", PROGRAM, "take", folder],
            cwd=ROOT / "plugins/module_utils",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(8)
    ]
    for number, run in enumerate(runs):
        assert run.stdin
        request = {"token": str(number), **HOLDER, "lease": LEASE, "take_over": False}
        run.stdin.write(json.dumps(request).encode())
    answers = [json.loads(run.communicate()[0]) for run in runs]
    assert [answer["held"] for answer in answers].count(True) == 1


def test_link_as_claim_folder_is_rejected(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "muster").mkdir()
    (tmp_path / "muster/claim").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePathError):
        take("ann")
    assert not list((tmp_path / "elsewhere").iterdir())
