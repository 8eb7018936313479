"""Every value that is read of a GPU is evaluated by a check, or fields.yml says what it is used for."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases import document_of
from gpu_looks import look_of
from muster.gpu_info.facts import facts
from muster.health import gpu
from muster.verdict.check import collect

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS = document_of(Path(__file__).parent / "fields.yml")
FACTS = facts(look_of({"recorded": "580-h100-healthy", "bus": 8}))
REQUEST = {"node": "node1", "gpus": 8, "nproc": 8, "gpu_model": ""}
WHOLE = {"gpu": FACTS["gpus"][3], "bus": FACTS["bus"][3]}
EVALUATED = [(kind, path) for kind, fields in FIELDS.items() for path, use in fields.items() if isinstance(use, list)]


def leaves(value: Any, above: str = "") -> Iterator[str]:
    if not isinstance(value, dict):
        yield above
        return
    for name, inner in value.items():
        yield from leaves(inner, f"{above}/{name}" if above else name)


def put(whole: dict[str, Any], path: str, value: Any) -> None:
    *folders, last = path.split("/")
    for name in folders:
        whole = whole[name]
    whole[last] = value


def found(kind: str, values: dict[str, Any]) -> set[str]:
    """Return the checks that report something if one of the eight GPUs has these values."""
    seen = copy.deepcopy(FACTS)
    for path, value in values.items():
        put(seen["gpus" if kind == "gpu" else "bus"][3], path, value)
    said = collect(gpu.judge({"gpu": seen}, REQUEST))
    return {finding.id for finding in said.findings}


@pytest.mark.parametrize("kind", FIELDS)
def test_every_field_that_is_read_has_a_use(kind: str) -> None:
    assert sorted(FIELDS[kind]) == sorted(leaves(WHOLE[kind]))


@pytest.mark.parametrize(("kind", "path"), EVALUATED, ids=[" ".join(one) for one in EVALUATED])
def test_fault_in_a_field_of_one_gpu_is_found(kind: str, path: str) -> None:
    value, check, *others = FIELDS[kind][path]
    assert check in found(kind, {path: value, **(others[0] if others else {})})
    assert check not in found(kind, {}), "the recorded machine is healthy"
