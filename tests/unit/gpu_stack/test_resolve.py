"""Every file in cases/ contains a request, the facts of the nodes, and the resolved stack or the reasons for rejection.

By default, a node runs Ubuntu 24.04 without Secure Boot. Only the parts of the result given in the case are compared.
The version table is the real one.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from cases import cases
from muster.gpu_stack.model import StackNodeFacts, StackRequest
from muster.gpu_stack.report import drivers
from muster.gpu_stack.resolve import resolve

if TYPE_CHECKING:
    from muster.gpu_stack.model import NodeStack, ResolvedStack
    from muster.gpu_stack.table import VersionsTable

TODAY = "2026-11-21"
NODE = {"system": "ubuntu-24.04", "secure_boot": False}
PARTS = ("pins", "driver", "fabric", "headers", "cuda", "nccl", "containers", "dcgm")


@cases(__file__, "resolve")
def test_resolved_gpu_stack_matches_the_case(case: dict[str, Any], table: VersionsTable) -> None:
    request = StackRequest(**{"torch": "2.13.0", **_tuples(case.get("request", {}))})
    nodes = [StackNodeFacts(node=name, **_tuples({**NODE, **known})) for name, known in case["nodes"].items()]
    stack = resolve(table, request, nodes, date.fromisoformat(case.get("today", TODAY)))
    told = _in_words(stack)
    expected = case["expect"]
    assert {key: told.get(key) for key in expected if key != "nodes"} == {
        k: v for k, v in expected.items() if k != "nodes"
    }
    for name, node in expected.get("nodes", {}).items():
        known = _node_in_words(stack.nodes[name])
        assert {key: known[key] for key in node} == node
        # Parts that are not given must be empty.
        assert not [part for part in PARTS if part not in node and known[part]], name


def _tuples(given: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}


def _in_words(stack: ResolvedStack) -> dict[str, Any]:
    return {
        "torch": f"{stack.torch}+{stack.variant}",
        "index": stack.index,
        "nccl": stack.nccl,
        "branch": stack.branch,
        "driver": stack.driver,
        "why": [f"{choice.what} {choice.value}: {choice.why}" for choice in stack.choices],
        "warnings": list(stack.warnings),
        "refusals": list(map(str, stack.refusals)),
        "drivers": drivers(stack).splitlines(),
    }


def _node_in_words(node: NodeStack) -> dict[str, Any]:
    parts = {part: list(map(str, getattr(node, part))) for part in PARTS}
    why = [f"{choice.what} {choice.value}: {choice.why}" for choice in node.choices]
    return {**parts, "why": why, "becomes": node.becomes, "modules": f"{node.modules}, {node.build}"}
