"""Drift detection: differences, their origin and their repair."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import pytest

from cases import cases
from muster.drift import installed, judge, plans, repair, results, table
from muster.drift.model import DriftDifference, History, Origin, Subject
from muster.drift.origin import origin

if TYPE_CHECKING:
    from muster.verdict.finding import FindingFix

BY_ID = {check.id: check for check in judge.CHECKS}
ORDER = ("baseline", "network", "gpu_stack", "pytorch")
NOTHING_SAID: dict[str, Any] = {"changed": True, "failed": False, "unreachable": False}


def difference(given: dict[str, Any]) -> DriftDifference:
    subjects = tuple(
        Subject(*each.split(" ", 1)) if " " in each else Subject(each, "") for each in given.get("subjects", ())
    )
    kept = {name: value for name, value in given.items() if name not in ("id", "subjects")}
    return DriftDifference(**{"node": "node1", "what": "it", **kept}, check=BY_ID[given["id"]], subjects=subjects)


@cases(__file__, "differences")
def test_module_results_become_differences(case: dict[str, Any]) -> None:
    """Differences are derived from results in the format that modules return."""
    said = [
        results.taken(one.get("node", "node1"), one["role"], one.get("task", "Look"), one["result"])
        for one in case["said"]
    ]
    found = [
        {
            "id": one.check.id,
            "what": one.what,
            "subjects": [f"{kind} {name}" for kind, name in one.subjects],
            "tag": one.tag,
        }
        | ({"observed": one.observed} if one.observed else {})
        | ({"expected": one.expected} if one.expected else {})
        for one in plans.differences(said)
    ]
    assert found == case["differences"]
    assert plans.unreachable(said) == case.get("unreachable", {})
    assert plans.stopped_at(said) == case.get("stopped", {})


def test_hostile_diff_is_compared_in_linear_time_and_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """difflib compares 30 kB of similar lines for minutes."""
    monkeypatch.setattr(difflib, "ndiff", lambda *_: pytest.fail("compared with difflib"))
    diff = {"before": "same\n" + "gone\n" * 100, "after": "same\nnew " + "x" * 100_000}
    found = results.taken("node1", "firewall", "Look", {"changed": True, "diff": [{**diff, "before_header": "a"}, 7]})
    assert found["sides"] == {"a": [["gone"] * results.MOST_SIDE, ["new " + "x" * 496]]}
    many = [{**diff, "before_header": f"file{number}"} for number in range(100)]
    items = [{"changed": True, "diff": many, "msg": "x" * 1000}] * 100
    found = results.taken("node1", "firewall", "Look", {"changed": True, "results": items})
    assert (len(found["sides"]), len(found["message"])) == (results.MOST, 501 * results.MOST - 1)
    assert results.taken("node1", "firewall", "Look", {"changed": True, "results": 7, "diff": 7})["sides"] == {}


@cases(__file__, "installed")
def test_changes_since_the_installation_record_are_reported(case: dict[str, Any]) -> None:
    base = case.get("both", {})
    now, record = ({**base, **case[name]} for name in ("now", "record"))
    links = {"": "/e/current", **{name: f"/n/{name}/current" for name in case.get("asked", ())}}
    own = [*installed.differences("node1", now, record, links)]
    found = [
        f"{one.check.id}: {one.what}"
        for one in installed.joined(own, [difference(one) for one in case.get("planned", ())])
    ]
    assert found == case["differences"]
    paths = [subject.name for one in own for subject in one.subjects if subject.kind == "file"]
    assert paths == case.get("paths", [])


@cases(__file__, "origin")
def test_origin_of_a_difference_is_found_in_package_logs(case: dict[str, Any]) -> None:
    found = origin(difference(case["difference"]), History(**case["history"]))
    assert judge.said(found) == case["says"]
    assert found.kind == case.get("kind", "unknown")


@cases(__file__, "repair")
def test_repair_runs_the_owning_steps_on_idle_nodes(case: dict[str, Any]) -> None:
    failed = [difference(one) for one in case["failed"]]
    plan = repair.plan(failed, case.get("busy", {}), ORDER, ["node1", "node2", "node3"])
    assert [f"{','.join(one.tags)} on {','.join(one.nodes)}" for one in plan.repairs] == case["repairs"]
    assert plan.left == case.get("left", [])
    assert repair.condemned(failed, ["node1", "node2"]) == case.get("condemned", {})


def test_version_that_no_step_repairs_gets_a_manual_command() -> None:
    given = {"id": "drift.version", "subjects": ["package chrony"], "observed": "4.4", "expected": "4.3-2+deb12u3"}
    command = "'apt-get install --yes --allow-downgrades chrony=4.3-2+deb12u3'"
    assert repair.by_hand(difference(given)) == f"ansible node1 --become -m ansible.builtin.command -a {command}"
    new = "ansible node1 --become -m ansible.builtin.command -a 'apt-get remove --yes chrony'"
    assert repair.by_hand(difference({**given, "expected": "none"})) == new
    assert repair.by_hand(difference({**given, "expected": "4.3; reboot"})) == ""
    assert repair.by_hand(difference({**given, "subjects": ["package linux-image-6.8"]})) == ""


def finding(identity: str, found: Origin, tag: str = "") -> tuple[str, FindingFix]:
    one = judge.finding(judge.Drifted(difference({"id": identity, "tag": tag}), found))
    return one.status, one.fix


def test_changes_by_muster_are_not_drift() -> None:
    assert finding("drift.version", Origin(1.0, "root@vm", "Muster: site.yml", "the journal", "muster"))[0] == "pass"


def test_unattended_upgrades_are_reported_as_warnings() -> None:
    assert finding("drift.version", Origin(1.0, "unattended upgrades", "", "", "unattended"))[0] == "warn"
    assert finding("drift.version", Origin())[0] == "fail"
    assert finding("drift.reboot", Origin())[0] == "warn"


def test_fix_runs_the_owning_step_only_on_the_affected_node() -> None:
    status, fix = finding("drift.file", Origin(), "baseline")
    assert status == "fail"
    assert fix["command"] == "ansible-playbook playbooks/drift.yml -e repair=true --limit node1"


def test_unreachable_node_is_unknown_and_does_not_pass_any_check() -> None:
    said = [*judge.findings([], {"node1": judge.Looked(down="no route to host")})]
    found = [(one.id, one.status, one.summary) for one in said if not isinstance(one, dict)]
    assert found == [("drift.unreachable", "unknown", "no route to host")]


def test_checks_against_the_record_are_skipped_if_there_is_no_record() -> None:
    said = [*judge.findings([], {"node1": judge.Looked(no_record="no installation has been recorded yet")})]
    skipped = [one["id"] for one in said if isinstance(one, dict)]
    assert skipped == [check.id for check in judge.OF_THE_RECORD]
    assert {one.status for one in said if not isinstance(one, dict)} == {"pass"}


def test_drift_table_shows_values_and_their_origin() -> None:
    one = judge.Drifted(
        difference({"id": "drift.file", "what": "/etc/x has other content", "observed": "a", "expected": "b"}),
        Origin(0.5, "alice", "vi /etc/x", "a file's time, sudo's log", "person"),
    )
    lines = table.table([one], ["fail"], [], {})
    assert lines == [
        "FAIL node1  drift.file  /etc/x has other content",
        "                        seen: a; expected: b",
        "                        since 1970-01-01 00:00:00 UTC, by alice: vi /etc/x (a file's time, sudo's log)",
    ]
    assert table.summary(["node1"], [one], ["fail"], []) == "1 difference on node1: /etc/x has other content on node1"
    assert table.summary(["node1", "node2"], [], [], []) == "no drift on 2 nodes"
