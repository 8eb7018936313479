"""Every file in cases/rdma describes one node: inspection result, request, and expected packages and kernel modules.

look: differences from a machine with one InfiniBand adapter and no packages. The package names are those of the role.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from cases import cases, document_of
from muster.gpu_stack.rdma import RdmaNodeFacts, RdmaRequest, RdmaTable, decide, describe, request_problems
from muster.inspect.rdma import rdma_facts

NAMES = document_of(Path(__file__).parents[3] / "roles/rdma/vars/main.yml")
TABLE = RdmaTable(
    packages=tuple(NAMES["_rdma_packages"]),
    doca=tuple(NAMES["_rdma_doca_packages"]),
    modules=tuple(NAMES["_rdma_modules"]),
    of_infiniband=tuple(NAMES["_rdma_modules_of_infiniband"]),
    of_driver=NAMES["_rdma_modules_of_driver"],
)
LOOK: dict[str, Any] = {
    "slots": {"0000:1a:00.0": {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021", "driver": "mlx5_core"}},
    "devices": {
        "mlx5_0": {
            "slot": "0000:1a:00.0",
            "interfaces": ["ib0"],
            "firmware": "28.43.2026",
            "ports": {"1": {"state": "4: ACTIVE", "link_layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)"}},
        }
    },
    "loaded": {"ib_core": "", "mlx5_core": "", "mlx5_ib": ""},
    "modinfo": "".join(f"name:           {name}\n" for name in ("mlx5_ib", "ib_uverbs", "ib_umad", "rdma_ucm")),
    "packages": "",
    "ofed_info": "",
    "kernel": "6.8.0-90-generic",
}


@cases(__file__, "rdma")
def test_rdma_packages_and_modules_match_the_case(case: dict[str, Any]) -> None:
    look = {**copy.deepcopy(LOOK), **case.get("look", {})}
    facts = rdma_facts(look)
    seen = {"has_gpus": True, "distribution": "ubuntu", **case.get("node", {})}
    part = decide(TABLE, RdmaRequest(**case.get("request", {})), RdmaNodeFacts("node1", facts, **seen))
    expected = case["expect"]
    assert part.source == expected.get("source", "")
    assert list(part.packages) == expected.get("packages", [])
    assert list(part.modules) == expected.get("modules", [])
    assert list(part.load) == expected.get("load", [])
    assert [str(refusal) for refusal in part.refusals] == expected.get("refusals", [])
    assert part.is_due == bool(part.source or part.refusals)
    assert describe(part, facts) == expected["line"]


def test_rdma_role_does_not_run_without_an_inspection() -> None:
    assert not decide(TABLE, RdmaRequest(), RdmaNodeFacts("node1", None, has_gpus=True)).is_due


@pytest.mark.parametrize(
    ("request_of", "said"),
    [
        (("auto", "", ""), []),
        (("doca", "https://mirror.example.org/doca/ubuntu24.04/x86_64/", "keys/doca.asc"), []),
        (("doca", "", "k"), ["rdma_userspace is doca, but rdma_doca_url is empty"]),
        (("doca", "https://mirror.example.org/", ""), ["rdma_userspace is doca, but rdma_doca_key is empty"]),
        (("auto", "mirror.example.org/doca", ""), ["rdma_doca_url is 'mirror.example.org/doca', which is not a URL"]),
    ],
)
def test_invalid_rdma_requests_are_reported(request_of: tuple[str, str, str], said: list[str]) -> None:
    assert [what for what, _ in request_problems(*request_of)] == said
