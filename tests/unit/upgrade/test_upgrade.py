"""Order, trial launches, rollback and messages of an upgrade. Each file contains one case."""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.upgrade import say
from muster.upgrade.model import Order, UpgradeNode, UpgradeRequest, VersionChange, problems
from muster.upgrade.order import put_in_order, trials
from muster.upgrade.previous import environments, going_back
from muster.upgrade.seen import read


def node(name: str, given: dict[str, Any]) -> UpgradeNode:
    changes = tuple(
        VersionChange(**change)
        for change in given.get("changes", [{"what": "PyTorch", "before": "2.0.0", "after": "2.1.0"}])
    )
    busy = tuple(given.get("busy", ()))
    return UpgradeNode(name, changes, busy, given.get("silent", ""), given.get("quarantined", False))


def nodes_of(case: dict[str, Any]) -> list[UpgradeNode]:
    return [node(name, given or {}) for name, given in case["nodes"].items()]


@cases(__file__, "order")
def test_upgrade_order_of_nodes_matches_the_case(case: dict[str, Any]) -> None:
    nodes, request = nodes_of(case), UpgradeRequest(**case.get("request", {"torch": "2.1.0"}))
    order = put_in_order(nodes, request)
    assert [list(batch) for batch in order.batches] == case.get("batches", [])
    assert list(order.refusals) == case.get("refusals", [])
    assert list(order.proved) == case.get("proved", [])
    if not order.refusals:
        assert say.planned(nodes, order, request, launches=True) == case["shown"].rstrip()


@cases(__file__, "trials")
def test_trial_launches_of_a_batch_match_the_case(case: dict[str, Any]) -> None:
    nodes = [UpgradeNode(name, quarantined=name in case.get("quarantined", [])) for name in case["nodes"]]
    found = trials(case["batch"], case.get("proved", []), nodes, first=case.get("first", False))
    assert found == case["launches"]


@cases(__file__, "going_back")
def test_rollback_release_matches_the_case(case: dict[str, Any]) -> None:
    nodes = {name: environments(*given) for name, given in case["nodes"].items()}
    release, why = going_back(nodes, case["listed"], case.get("asked", ""))
    assert release == case.get("release", "")
    assert why == case.get("why", "")


@cases(__file__, "busy")
def test_busy_processes_are_read_from_the_answer_of_a_node(case: dict[str, Any]) -> None:
    seen = read(case["answer"])
    assert list(seen.busy) == case.get("busy", [])
    assert seen.silent == case.get("silent", "")


@cases(__file__, "problems")
def test_invalid_upgrade_requests_are_reported(case: dict[str, Any]) -> None:
    found = problems(UpgradeRequest(**case["request"]))
    assert list(found) == case["problems"]


@cases(__file__, "ended")
def test_final_message_matches_the_case(case: dict[str, Any]) -> None:
    request = UpgradeRequest(**case["request"])
    if "red" in case:
        said = say.ended_red(request, case["red"], case.get("untouched", []))
    elif "left" in case:
        said = say.left_for_later(request, case["left"], case["done"])
    else:
        said = say.complete(request, case["done"], case.get("silent", {}))
    assert said == case["said"].rstrip()


def test_upgrade_without_changes_has_no_canary() -> None:
    assert Order().canary == ""
