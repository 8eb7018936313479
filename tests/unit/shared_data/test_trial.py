"""Evaluation of a shared folder's trial."""

from __future__ import annotations

from typing import Any

import pytest

from muster.report.measured import shared_data_tables
from muster.shared_data.trial import FolderTrial, judge, rates, summary, table
from muster.verdict.check import collect

NAMES = {"node1": ".muster-x-0", "node2": ".muster-x-1", "node3": ".muster-x-2"}


def trial() -> FolderTrial:
    """Return a successful trial with three nodes."""
    wrote = {name: {"uid": 1500, "took": 2.0, "error": "", "kind": ""} for name in NAMES}
    saw = {
        name: {
            "seen": {
                file: {"after": 0.02, "uid": 1500, "right": True} for other, file in NAMES.items() if other != name
            },
            "error": "",
            "kind": "",
        }
        for name in NAMES
    }
    read = {name: {"bytes": 268435456, "took": 1.0, "error": "", "kind": ""} for name in NAMES}
    return FolderTrial("/data", NAMES, 256, wrote, saw, read)


def findings(one: FolderTrial) -> list[str]:
    found = collect(judge(one))
    return [f"{each.status} {each.id} {each.node}: {each.summary}" for each in found.findings if each.status != "pass"]


def changed(part: str, node: str, **values: Any) -> FolderTrial:
    one = trial()
    getattr(one, part)[node].update(values)
    return one


def seen(node: str, writer: str, **values: Any) -> FolderTrial:
    one = trial()
    answer: Any = one.saw[node]
    answer["seen"][NAMES[writer]].update(values)
    return one


def test_successful_trial_produces_no_findings() -> None:
    assert findings(trial()) == []
    assert [one.node for one in collect(judge(trial())).findings] == list(NAMES), "each node sees the others' files"
    said = "/data: each of 3 nodes sees the other nodes' files within 1 s, with the right owner"
    assert summary([trial()], "healthy") == said
    assert rates(trial())[0] == {"node": "node1", "write": 134.2, "read": 268.4, "seen": 0.02}
    assert table(trial())[2].split() == ["node1", "134.2", "268.4", "0.02"]


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            changed("wrote", "node2", error="No space left on device", kind="ENOSPC"),
            (
                "fail data.trial.unwritable node2: the training user cannot write to /data: No space left on device,"
                " while node1, node3 can"
            ),
        ),
        (
            changed("wrote", "node2", error="Permission denied", kind="EACCES"),
            (
                "fail data.trial.unwritable node2: the training user cannot write to /data: Permission denied,"
                " while node1, node3 can"
            ),
        ),
        (
            seen("node3", "node1", right=False),
            (
                "fail data.trial.unseen node3: files that node1 wrote to /data are not visible within 5 s:"
                " the folders differ"
            ),
        ),
        (
            seen("node3", "node1", after=2.5),
            "warn data.trial.unseen node3: the file that node1 wrote to /data is visible only after 2.5 s",
        ),
        (
            seen("node3", "node1", uid=65534),
            (
                "fail data.trial.owner node3: a file that the training user wrote to /data on node1 has uid"
                " 65534 here, but the training user has uid 1500"
            ),
        ),
        (
            changed("saw", "node3", error="Stale file handle", kind="ESTALE"),
            "fail data.trial.unseen node3: /data cannot be read: Stale file handle",
        ),
        (
            changed("saw", "node3", error=17),
            "fail data.trial.unseen node3: /data cannot be read: invalid answer",
        ),
    ],
)
def test_trial_failures_are_reported(one: FolderTrial, said: str) -> None:
    assert findings(one) == [said]


@pytest.mark.parametrize(
    ("by_name", "said"),
    [
        (True, []),
        (
            False,
            [
                f"fail data.trial.owner node3: a file that the training user wrote to /data on {writer} has uid"
                " 1500 here, but the training user has uid 1501"
                for writer in ("node1", "node2")
            ],
        ),
    ],
)
def test_different_uids_are_allowed_when_the_server_maps_names(by_name: bool, said: list[str]) -> None:
    one = changed("wrote", "node3", uid=1501)
    for node, answer in one.saw.items():
        given: Any = answer
        for file, each in given["seen"].items():
            if by_name:
                each["uid"] = one.wrote[node]["uid"]
            elif file == NAMES["node3"]:
                each["uid"] = 1500  # what node1 and node2 make of it is not what is asked here
    assert findings(one) == said


def test_read_only_folder_is_skipped() -> None:
    one = trial()
    for answer in one.wrote.values():
        given: Any = answer
        given.update(error="Read-only file system", kind="EROFS")
    found = collect(judge(one))
    assert not [each for each in found.findings if each.status != "pass"]
    assert {each["why"] for each in found.skipped} == {
        "/data is not writable for the training user (Read-only file system)"
    }


def test_silent_node_has_unknown_status() -> None:
    one = trial()
    one.silent = {"node9": "it was not reached"}
    assert findings(one) == ["unknown data.trial.unwritable node9: /data was not tested: it was not reached"]


def test_report_shows_every_folder() -> None:
    assert shared_data_tables({}) is None
    (one,) = shared_data_tables({"folders": [{"path": "/data", "megabytes": 256, "nodes": rates(trial())}]}) or []
    assert one["together"] == {"write": "403", "read": "805"}
    assert one["rows"][0] == {"node": "node1", "write": "134.2", "read": "268.4", "seen": "0.02"}
