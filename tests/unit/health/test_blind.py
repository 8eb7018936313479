"""A check whose data is missing must be skipped: it must neither pass nor count as run.

Every case with findings is evaluated repeatedly, each time without another part of the data. If a finding disappears,
its check depends on that part and must be skipped.
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
# Looks with output of other vendors' programs have separate tests of missing data.
OF_OTHERS = ("gpu", "kernel_log", "pci", "rdma")
# Data that may be empty on a good node: the prefix of its path, and why.
NOTHING_THERE = {
    "code": "health_code is empty, and the reason comes from Muster",
    "collective": "the result of Muster's program, which gives a reason if it has no result",
    "ethernet/name": "without a name there are no links",
    "gpu/loaded": "the version is read in two places",
    "host/environment": "an empty file; unreadable files are in host/unread",
    "host/nccl_conf": "an empty file; unreadable files are in host/unread",
    "host/preload": "an empty file; unreadable files are in host/unread",
    "host/login_files/": "an empty file",
    "jobs/processes": "no ranks; jobs/saw_all tells whether all processes are visible",
    "kernel_log/lines": "nothing was logged; a failure is in kernel_log/why",
    "mounts/folders": "no network mounts; a failure is in mounts/why",
    "published/rules": "the kernel has no such tables; a failure is in published/why",
    "unit/inside/left_behind": "no files are left; None if they cannot be listed",
}


def places(looks: dict[str, Any], above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in looks.items():
        yield (*above, key)
        if isinstance(value, dict) and len(above) < 3:
            yield from places(value, (*above, key))


def judged(looks: dict[str, Any], request: dict[str, Any]) -> tuple[set[str], set[str]]:
    verdict = node.judge(facts(looks, request), request)["verdict"]
    found = {finding["id"] for finding in verdict["findings"] if finding["status"] != "pass"}
    return found, set(verdict["coverage"]["ran"])


def blinded(looks: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (data, path): the data with one part emptied, and the path of that part."""
    for place in list(places(looks)):
        name, inner = "/".join(map(str, place)), looks
        for key in place[:-1]:
            inner = inner[key]
        whole = inner[place[-1]]
        if name.startswith(("rdma/devices/", "pci/devices/", "later/rdma/")):
            continue  # not used by the checks tested here
        if whole and type(whole) in EMPTY and not name.startswith(tuple(NOTHING_THERE)):
            inner[place[-1]] = EMPTY[type(whole)]
            yield name, looks
            inner[place[-1]] = whole


OWN = {check.id for name, subject in subjects().items() if name not in OF_OTHERS for check in subject.CHECKS}
CASES = {name: case for name, case in load_cases(HERE / "cases/judge").items() if case["findings"]}


@pytest.mark.parametrize("name", CASES)
def test_checks_without_data_are_skipped(name: str) -> None:
    looks, request = looked(CASES[name])
    found, _ = judged(looks, request)
    if not found & OWN:
        return
    for place, less in blinded(looks):
        try:
            still, ran = judged(less, request)
        except (KeyError, ValueError, IndexError, TypeError):
            continue  # a shape that no look returns
        blind = (found & OWN & ran) - still
        assert not blind, f"without {place}, {blind} count as checked"


@pytest.mark.parametrize(
    ("changes", "skipped"),
    [
        ({"unread": ["/etc/environment"]}, {"env.debugging", "env.launcher", "env.login", "env.interface"}),
        ({"unread": ["/etc/nccl.conf"]}, {"env.debugging", "env.interface"}),
        ({"unread": ["/etc/ld.so.preload"]}, {"env.preload"}),
        ({"login": "", "login_why": "loginctl did not answer within 6 s"}, {"os.remove_ipc"}),
        ({"login_files": {}}, {"os.remove_ipc"}),
        ({"conntrack": ["", ""]}, {"os.conntrack.full"}),
        ({"interfaces": []}, {"env.interface"}),
    ],
)
def test_unreadable_files_skip_their_checks(changes: dict[str, Any], skipped: set[str]) -> None:
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
def test_failed_programs_skip_their_checks(changes: dict[str, Any], skipped: set[str]) -> None:
    assert newly_skipped(changes) == skipped


def test_unlistable_shared_memory_is_skipped() -> None:
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
