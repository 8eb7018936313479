"""What is said of a shared folder from what each node wrote, saw and read there."""

from __future__ import annotations

from typing import Any

import pytest

from muster.report.measured import shared_data_tables
from muster.shared_data.trial import FolderTrial, judge, rates, summary, table
from muster.verdict.check import collect

NAMES = {"node1": ".muster-x-0", "node2": ".muster-x-1", "node3": ".muster-x-2"}


def trial() -> FolderTrial:
    """Three nodes, with which all is well."""
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


def test_where_all_is_well_nothing_is_found() -> None:
    assert findings(trial()) == []
    assert [one.node for one in collect(judge(trial())).findings] == list(NAMES), "each is known to see the others'"
    assert (
        summary([trial()], "healthy") == "/data: 3 nodes see within 1 s what each of them wrote, with the right owner"
    )
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
                "fail data.trial.unseen node3: what node1 wrote to /data is not there within 5 s:"
                " it is not the same folder"
            ),
        ),
        (
            seen("node3", "node1", after=2.5),
            "warn data.trial.unseen node3: what node1 wrote to /data is there after 2.5 s only",
        ),
        (
            seen("node3", "node1", uid=65534),
            (
                "fail data.trial.owner node3: a file that the training user wrote to /data on node1 belongs to uid"
                " 65534 here, and the training user is uid 1500"
            ),
        ),
        (
            changed("saw", "node3", error="Stale file handle", kind="ESTALE"),
            "fail data.trial.unseen node3: /data cannot be read: Stale file handle",
        ),
        (
            changed("saw", "node3", error=17),
            "fail data.trial.unseen node3: /data cannot be read: its answer is of no use",
        ),
    ],
)
def test_what_is_wrong(one: FolderTrial, said: str) -> None:
    assert findings(one) == [said]


@pytest.mark.parametrize(
    ("by_name", "said"),
    [
        (True, []),
        (
            False,
            [
                f"fail data.trial.owner node3: a file that the training user wrote to /data on {writer} belongs to uid"
                " 1500 here, and the training user is uid 1501"
                for writer in ("node1", "node2")
            ],
        ),
    ],
)
def test_where_the_account_has_another_number_the_server_may_go_by_its_name(by_name: bool, said: list[str]) -> None:
    one = changed("wrote", "node3", uid=1501)
    for node, answer in one.saw.items():
        given: Any = answer
        for file, each in given["seen"].items():
            if by_name:
                each["uid"] = one.wrote[node]["uid"]
            elif file == NAMES["node3"]:
                each["uid"] = 1500  # what node1 and node2 make of it is not what is asked here
    assert findings(one) == said


def test_a_folder_that_is_to_be_read_alone_is_skipped() -> None:
    one = trial()
    for answer in one.wrote.values():
        given: Any = answer
        given.update(error="Read-only file system", kind="EROFS")
    found = collect(judge(one))
    assert not [each for each in found.findings if each.status != "pass"]
    assert {each["why"] for each in found.skipped} == {
        "/data is not the training user's to write (Read-only file system)"
    }


def test_a_node_that_did_not_answer_is_unknown() -> None:
    one = trial()
    one.silent = {"node9": "it was not reached"}
    assert findings(one) == ["unknown data.trial.unwritable node9: /data was not tried there: it was not reached"]


def test_the_page_shows_every_folder() -> None:
    assert shared_data_tables({}) is None
    (one,) = shared_data_tables({"folders": [{"path": "/data", "megabytes": 256, "nodes": rates(trial())}]}) or []
    assert one["together"] == {"write": "403", "read": "805"}
    assert one["rows"][0] == {"node": "node1", "write": "134.2", "read": "268.4", "seen": "0.02"}
