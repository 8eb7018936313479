"""What cannot be seen has not been looked for: without its evidence a check neither passes nor counts as ran.

Every case in which something is found is judged again and again, each time with another part of the looks gone.
If nothing is found any more, then the check went by that part, and must say that it was not looked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cases import load_cases
from looked_at import HERE, looked
from muster.health import node
from muster.health.facts import facts
from muster.health.subjects import subjects

if TYPE_CHECKING:
    from collections.abc import Iterator

EMPTY: dict[type, Any] = {str: "", list: [], dict: {}}
# Looks that come from other makers' programs have blind tests of their own.
OF_OTHERS = ("gpu", "kernel_log", "pci", "rdma")
# What is really so where it is empty: the way that a place begins, and why.
NOTHING_THERE = {
    "code": "health_code names none, and the reason is Muster's own word",
    "collective": "the result of Muster's own program, which gives a reason where it has none",
    "ethernet/name": "without it there are no links",
    "gpu/loaded": "the version is read in two places",
    "host/environment": "an empty file; one that cannot be read is in host/unread",
    "host/nccl_conf": "an empty file; one that cannot be read is in host/unread",
    "host/preload": "an empty file; one that cannot be read is in host/unread",
    "host/login_files/": "an empty file",
    "jobs/processes": "no ranks; that others' cannot be seen is in jobs/saw_all",
    "kernel_log/lines": "nothing was logged; that it cannot be read is in kernel_log/why",
    "mounts/folders": "nothing of another machine is mounted; that this cannot be listed is in mounts/why",
    "published/rules": "the kernel has no such tables; that they cannot be listed is in published/why",
    "unit/inside/left_behind": "nothing was left; None where it cannot be listed",
}


def places(looks: dict[str, Any], above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in looks.items():
        yield (*above, key)
        if isinstance(value, dict) and len(above) < 3:
            yield from places(value, (*above, key))


def judged(looks: dict[str, Any], request: dict[str, Any]) -> tuple[set[str], set[str]]:
    """What was found, and what counts as looked for."""
    verdict = node.judge(facts(looks, request), request)["verdict"]
    found = {finding["id"] for finding in verdict["findings"] if finding["status"] != "pass"}
    return found, set(verdict["coverage"]["ran"])


def blinded(looks: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each part emptied in turn, with its place."""
    for place in list(places(looks)):
        name, inner = "/".join(map(str, place)), looks
        for key in place[:-1]:
            inner = inner[key]
        whole = inner[place[-1]]
        if name.startswith(("rdma/devices/", "pci/devices/", "later/rdma/")):
            continue  # of no concern to the checks here
        if whole and type(whole) in EMPTY and not name.startswith(tuple(NOTHING_THERE)):
            inner[place[-1]] = EMPTY[type(whole)]
            yield name, looks
            inner[place[-1]] = whole


OWN = {check.id for name, subject in subjects().items() if name not in OF_OTHERS for check in subject.CHECKS}
CASES = {name: case for name, case in load_cases(HERE / "cases/judge").items() if case["findings"]}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_seen_is_not_looked_for(name: str) -> None:
    looks, request = looked(CASES[name])
    found, _ = judged(looks, request)
    if not found & OWN:
        return
    for place, less in blinded(looks):
        try:
            still, ran = judged(less, request)
        except (KeyError, ValueError, IndexError, TypeError):
            continue  # a shape that no look has
        blind = (found & OWN & ran) - still
        assert not blind, f"without {place}, {blind} count as looked for"


@pytest.mark.parametrize(
    ("changes", "skipped"),
    [
        ({"unread": ["/etc/environment"]}, {"env.debugging", "env.launcher", "env.login"}),
        ({"unread": ["/etc/nccl.conf"]}, {"env.debugging"}),
        ({"unread": ["/etc/ld.so.preload"]}, {"env.preload"}),
        ({"login": "", "login_why": "loginctl did not answer within 6 s"}, {"os.remove_ipc"}),
        ({"login_files": {}}, {"os.remove_ipc"}),
        ({"conntrack": ["", ""]}, {"os.conntrack.full"}),
    ],
)
def test_files_that_cannot_be_read(changes: dict[str, Any], skipped: set[str]) -> None:
    assert newly_skipped({"host": changes}) == skipped


@pytest.mark.parametrize(
    ("changes", "skipped"),
    [
        ({"ethernet": {"links": {}, "why": "ip is not there"}}, {"eth.link.down", "eth.link.duplex", "eth.errors"}),
        ({"listeners": {"ss": "", "why": "ss ended with 1"}}, {"job.port.held"}),
        ({"listeners": {"ss": ""}}, {"job.port.held"}),
        ({"jobs": {"saw_all": False}}, {"job.stale", "job.other", "job.stopped"}),
    ],
)
def test_programs_that_gave_no_answer(changes: dict[str, Any], skipped: set[str]) -> None:
    assert newly_skipped(changes) == skipped


def test_shared_memory_that_may_not_be_listed() -> None:
    looks, request = looked({})
    looks["unit"]["inside"]["left_behind"] = None
    assert "os.shm.left_behind" not in judged(looks, request)[1]


def newly_skipped(changes: dict[str, dict[str, Any]]) -> set[str]:
    looks, request = looked({})
    before = judged(looks, request)[1]
    for name, change in changes.items():
        looks[name].update(change)
    found, ran = judged(looks, request)
    assert not found
    return before - ran
