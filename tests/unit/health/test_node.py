"""Every file in cases describes a node by its differences from a healthy one, and lists findings as "status id:
sentence".

base: server (a made-up machine with eight GPUs and RDMA) or none (a recorded container without GPUs). request: changes
to the options of nccl_health. ports: the RDMA ports, each with its differences from a healthy InfiniBand port
(looked_at.py). looks: changes to the collected data, by path. gpus: facts of GPUs. skipped, traits: some of the
expected skipped checks and traits. Separate tests cover nvidia-smi output.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases, load_cases
from looked_at import HERE, looked
from muster.gpu_info.markup import Element
from muster.gpu_info.query import gpu
from muster.health import gpu_peers, node
from muster.health.facts import facts
from muster.health.rdma import chosen
from muster.health.software import has_code
from muster.health.subjects import subjects
from muster.health.traits import traits
from muster.verdict.check import collect
from muster.verdict.finding import as_lines

# A GPU for which nvidia-smi prints nothing.
UNKNOWN = gpu(Element("gpu")) | {"index": 0, "nvlinks": [], "nvlinks_why": ""}


@cases(__file__, "judge")
def test_health_findings_match_the_case(case: dict[str, Any]) -> None:
    looks, request = looked(case)
    seen = facts(looks, request)
    seen["gpu"]["gpus"] = [
        UNKNOWN | given | {"memory": UNKNOWN["memory"] | given.get("memory", {})} for given in case.get("gpus", [])
    ]
    judged = collect(one for name in subjects() if name != "gpu" for one in node.judge_subject(name, seen, request))
    lines = [f"{finding.status} {finding.id} {as_lines([finding])[0]}." for finding in judged.findings]
    assert lines == case["findings"]
    skipped = {entry["id"]: entry["why"] for entry in judged.skipped}
    for name, why in case.get("skipped", {}).items():
        assert why in skipped[name]
    own = traits(seen, request)
    assert {name: own[name] for name in case.get("traits", {})} == case.get("traits", {})


def test_every_check_has_a_case() -> None:
    found = {line.split()[1] for case in load_cases(HERE / "cases/judge").values() for line in case["findings"]}
    wanted = {check.id for name, subject in subjects().items() if name != "gpu" for check in subject.CHECKS}
    assert found == wanted, "each check of a node has a case with a finding"


@cases(__file__, "judge")
def test_every_check_is_run_or_skipped_with_a_reason(case: dict[str, Any]) -> None:
    looks, request = looked(case)
    answer = node.judge(facts(looks, request), request)
    coverage = answer["verdict"]["coverage"]
    names = {check.id for subject in subjects().values() for check in subject.CHECKS}
    skipped = {entry["id"] for entry in coverage["skipped"]}
    assert all(entry["why"] for entry in coverage["skipped"])
    for name in names - set(coverage["ran"]):
        assert any(name == each or name.startswith(f"{each}.") for each in skipped), name
    found = {finding["id"]: finding["status"] for finding in answer["findings"]}
    for name in set(coverage["ran"]) - set(found):
        assert not any(name == each or name.startswith(f"{each}.") for each in skipped), name
    assert ("node.health" in found) == (not {"fail", "warn", "unknown"} & set(found.values()))


def test_healthy_node_passes_each_check_once() -> None:
    looks, request = looked({})
    answer = node.judge(facts(looks, request), request)
    assert [finding["status"] for finding in answer["findings"]] == ["pass"]
    assert answer["verdict"]["status"] == "healthy"


@pytest.mark.parametrize(
    ("inactive", "value"), [((), "2"), ((1,), None), ((0, 1, 2, 3), "0")], ids=["none", "1", "all"]
)
def test_nodes_are_compared_by_nvlinks_unless_the_gpus_of_a_node_differ(
    inactive: tuple[int, ...], value: str | None
) -> None:
    """Inactive links of one GPU have a finding on the node itself."""
    gpus = [
        UNKNOWN
        | {"lost": False, "index": place, "nvlinks": [{"state": "inactive" if place in inactive else "active"}] * 2}
        for place in range(4)
    ]
    assert gpu_peers.traits(gpus)["gpu_nvlinks"] == value


def test_empty_data_raises_no_exception() -> None:
    """All texts are empty, as they are without permissions."""

    def emptied(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: emptied(each) for key, each in value.items()}
        return "" if isinstance(value, str) else value

    looks, request = looked({"base": "server"})
    looks = {
        name: emptied(value) if name in ("host", "services", "listeners", "pci", "rdma", "ethernet") else value
        for name, value in looks.items()
    }
    looks["unit"] = {"way": "none", "why": "no response", "inside": None}
    seen = facts(looks, request)
    assert node.judge(seen, request)["verdict"]["coverage"]["skipped"]
    assert traits(seen, request)["torch"] is None


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ("9.0", ["sm_90"], True),
        ("8.9", ["sm_80", "sm_86"], True),
        ("8.0", ["sm_86"], False),
        ("9.0", ["sm_89"], False),
        ("9.0", ["sm_90a"], True),
        ("9.1", ["sm_90a"], False),
        ("10.3", ["sm_100"], True),
        ("10.3", ["sm_100f"], True),
        ("12.0", ["sm_100f"], False),
        ("12.0", ["sm_90", "compute_90"], True),
        ("7.5", ["compute_80"], False),
        ("9.0", [], False),
        ("9.0", ["nonsense"], False),
    ],
)
def test_build_requires_machine_code_or_older_ptx_for_the_gpu(capability: str, built: list[str], runs: bool) -> None:
    assert has_code(capability, built) is runs


@pytest.mark.parametrize(
    ("hca", "device", "port", "used"),
    [
        ("", "mlx5_0", "1", True),
        ("mlx5_1", "mlx5_10", "1", True),
        ("=mlx5_1", "mlx5_10", "1", False),
        ("=mlx5_1", "mlx5_1", "2", True),
        ("=mlx5_1:1", "mlx5_1", "2", False),
        ("mlx5_1:1,mlx5_2", "mlx5_2", "2", True),
        ("^mlx5_bond", "mlx5_bond_0", "1", False),
        ("^mlx5_bond", "mlx5_0", "1", True),
        ("^=mlx5_1", "mlx5_10", "1", True),
        ("^=mlx5_1", "mlx5_1", "1", False),
    ],
)
def test_nccl_ib_hca_selects_the_adapters(hca: str, device: str, port: str, used: bool) -> None:
    assert chosen(hca, device, port) is used
