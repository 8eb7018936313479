"""One run at a time has the claim of a node: the node's program, with files, locks and processes of this machine."""

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
    """The node's clock; its claim is in a folder of this test."""
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


def test_who_comes_second_is_told_of_the_first(clock: Clock, tmp_path: Path) -> None:
    assert take("ann")["held"]
    holder = take("bob", who="bob@laptop")["holder"]
    assert {**HOLDER, "since": holder["since"], "token": "ann"} == holder
    assert claim.alone(claim.look, {}) == {"holder": holder}
    assert take("ann")["held"]
    assert take("bob")["holder"] == holder, "it has not begun anew"
    folder = tmp_path / "muster/claim"
    assert (folder.stat().st_mode & 0o777, (folder / "claim.json").stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_claim_that_is_freed_is_free_at_once(clock: Clock, journal: list[str]) -> None:
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


def test_a_claim_lasts_as_long_as_it_is_renewed(clock: Clock, journal: list[str]) -> None:
    take("ann")
    for _ in range(3):
        clock.now += LEASE - 1
        assert renew("ann")["held"]
        assert not take("bob")["held"]
    clock.now += LEASE
    assert take("bob", who="bob@laptop")["held"]
    assert journal[-1] == "bob@laptop takes the claim for site.yml; ann@desk is gone"


def test_who_was_away_is_told_of_others_even_if_they_have_gone_again(clock: Clock) -> None:
    take("ann")
    clock.now += LEASE
    assert renew("ann")["held"], "nobody else was here"
    clock.now += LEASE
    take("bob", who="bob@laptop")
    free("bob")
    assert renew("ann")["holder"]["who"] == "bob@laptop"
    assert take("ann")["held"]


def test_a_renewal_that_comes_behind_the_end_of_its_run_claims_nothing(clock: Clock) -> None:
    take("ann")
    free("ann")
    assert not renew("ann")["held"]
    assert claim.alone(claim.look, {}) == {"holder": None}
    assert take("ann")["held"], "as a step that was refused elsewhere does when it is tried again"


def test_what_launches_have_below_the_same_folder_is_open_to_their_user(tmp_path: Path) -> None:
    """The claim is the first that makes the folder after a boot, often as a root with a strict umask."""
    before = os.umask(0o077)
    try:
        folder = str(tmp_path / "muster/claim")
        argv = [sys.executable, "-S", "-c", PROGRAM, "look", folder]
        subprocess.run(argv, cwd=ROOT / "plugins/module_utils", input=b"{}", check=True, capture_output=True)
    finally:
        os.umask(before)
    assert (tmp_path / "muster").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "muster/claim").stat().st_mode & 0o777 == 0o700


def test_a_claim_goes_on_after_a_reboot(clock: Clock, tmp_path: Path) -> None:
    take("ann")
    (tmp_path / "muster/claim/claim.json").unlink()
    assert renew("ann")["held"]
    assert not take("bob")["held"]


def test_a_claim_is_taken_over_when_somebody_says_so(clock: Clock, journal: list[str]) -> None:
    take("ann")
    assert take("bob", who="bob@laptop", take_over=True)["held"]
    assert journal[-1] == "bob@laptop takes the claim for site.yml, which ann@desk had"
    assert not renew("ann")["held"]


def test_of_many_that_come_at_once_one_has_it(tmp_path: Path) -> None:
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


def test_a_link_in_the_place_of_its_folder_is_refused(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "muster").mkdir()
    (tmp_path / "muster/claim").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePathError):
        take("ann")
    assert not list((tmp_path / "elsewhere").iterdir())
