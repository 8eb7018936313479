"""RDMA tests between nodes, from tool output to findings.

A case in cases/judge contains `nodes` and the number of `rails` per node. By default, all tests succeed. `trials` maps
"node1 -> node2", with optional " mlx5_N" suffixes, to deviating results, for both directions. Either side can be "*". A
result is the name of an output in recorded/outputs.yml for a step, or a rate in Gbit/s and a latency in microseconds.
"""

from __future__ import annotations

import copy
import fnmatch
from pathlib import Path
from typing import Any

import pytest

from cases import cases, document_of
from muster.health.facts import facts
from muster.rails import judge, outputs, plan
from muster.verdict.finding import Finding, as_lines

HERE = Path(__file__).parent
PRINTED = document_of(HERE / "recorded/outputs.yml")
HEALTH = HERE.parent / "health/recorded"
GOOD = {"pingpong": "pingpong", "bandwidth": "bandwidth", "latency": "latency"}
STEPS = dict(zip(GOOD, plan.STEPS, strict=True))
RATE = 100.0


def answer(name: str) -> dict[str, Any]:
    """Return the output of a step with this name in outputs.yml, or the reason why there is no output."""
    if name in GOOD:
        return {"text": PRINTED[name], "aside": "", "why": "", "missing": False}
    if name in PRINTED:
        return {"text": "", "aside": PRINTED[name], "why": "ibv_rc_pingpong ended with 1", "missing": False}
    return {"text": "", "aside": "", "why": name, "missing": name.endswith("is not there")}


def concerns(pattern: str, one: str, other: str) -> bool:
    def fits(word: str, end: str) -> bool:
        return fnmatch.fnmatch(end, word) or end.startswith(f"{word} ")

    first, _, second = pattern.partition(" -> ")
    return (fits(first, one) and fits(second, other)) or (fits(first, other) and fits(second, one))


def answers(case: dict[str, Any], one: str, other: str) -> list[dict[str, Any]]:
    printed: dict[str, Any] = dict(GOOD)
    for pattern, changes in case.get("trials", {}).items():
        if concerns(pattern, one, other):
            printed |= changes
    said = [answer(printed[step]) for step in GOOD]
    said[1]["text"] = said[1]["text"].replace("92.62 ", f"{printed.get('gbps', 92.62)} ")
    said[2]["text"] = said[2]["text"].replace("7.04 ", f"{printed.get('usec', 7.04)} ")
    bad = next((number for number, each in enumerate(said) if each["why"]), len(said))
    return said[: bad + 1]


def trials(case: dict[str, Any]) -> list[outputs.RailTrial]:
    adapters = {
        name: [plan.Hca(f"mlx5_{n}", "1", RATE, case.get("gid")) for n in range(case["rails"])]
        for name in case["nodes"]
    }
    return [
        outputs.trial(
            (meeting.caller, meeting.called),
            (mine, theirs),
            answers(case, f"{meeting.caller} {mine.device}", f"{meeting.called} {theirs.device}"),
        )
        for each in plan.meetings(adapters)
        for meeting in each
        for mine, theirs in meeting.pairs
    ]


@cases(__file__, "judge")
def test_rdma_findings_match_the_case(case: dict[str, Any]) -> None:
    result = judge.result(trials(case), {})
    found = [Finding(**each) for each in result["findings"]]
    lines = [f"{finding.status} {finding.id} {as_lines([finding])[0]}." for finding in found]
    assert lines == case["findings"]
    skipped = {entry["id"]: entry["why"] for entry in result["verdict"]["coverage"]["skipped"]}
    assert skipped == case.get("skipped", {})


def test_each_round_uses_an_adapter_once_and_all_pairs_are_covered() -> None:
    adapters = {f"node{n}": [plan.Hca("mlx5_0", "1", RATE), plan.Hca("mlx5_1", "1", RATE)] for n in range(5)}
    met = set()
    for each in plan.meetings(adapters):
        nodes = [name for meeting in each for name in (meeting.caller, meeting.called)]
        assert len(nodes) == len(set(nodes))
        met |= {frozenset((meeting.caller, meeting.called)) for meeting in each}
    assert len(met) == 10


def test_only_a_sample_of_pairs_is_tested_in_large_clusters() -> None:
    assert len(plan.meetings({f"node{n}": [] for n in range(40)})) == plan.MOST_ROUNDS


def test_adapters_are_paired_by_name_or_by_position() -> None:
    named = [plan.Hca(name, "1", RATE) for name in ("mlx5_0", "mlx5_1", "mlx5_2")]
    other = [plan.Hca(name, "1", RATE) for name in ("mlx5_0", "mlx5_2")]
    strange = [plan.Hca(name, "1", RATE) for name in ("ibp1s0", "ibp2s0")]
    assert [(one.device, two.device) for one, two in plan.pairs(named, other)] == [
        ("mlx5_0", "mlx5_0"),
        ("mlx5_2", "mlx5_2"),
    ]
    assert [(one.device, two.device) for one, two in plan.pairs(named, strange)] == [
        ("mlx5_0", "ibp1s0"),
        ("mlx5_1", "ibp2s0"),
    ]


def test_commands_use_the_gid_partition_and_traffic_class_of_nccl() -> None:
    adapter = plan.Hca("mlx5_3", "1", RATE, "3", ("--pkey_index=1", "--tclass=106"))
    assert [" ".join(words) for words in plan.commands(adapter)] == [
        "ibv_rc_pingpong -d mlx5_3 -i 1 -c -n 1000 -g 3",
        "ib_write_bw -d mlx5_3 -i 1 -x 3 -F --pkey_index=1 --tclass=106 -s 1048576 -n 2000 --report_gbits",
        "ib_write_lat -d mlx5_3 -i 1 -x 3 -F --pkey_index=1 --tclass=106 -s 8 -n 1000",
    ]
    assert [" ".join(words) for words in plan.commands(plan.Hca("mlx5_0", "2", RATE))][:1] == [
        "ibv_rc_pingpong -d mlx5_0 -i 2 -c -n 1000"
    ]


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("no_way", "the adapter has no route to its counterpart (Failed to modify QP to RTR)"),
        (
            "no_answer",
            "the counterpart sent no acknowledgement (Failed status transport retry counter exceeded (12) for wr_id 2)",
        ),
        ("changed", "the received data is wrong (invalid data in page 1)"),
        ("no_device", "libibverbs does not list the adapter (IB device mlx5_9 not found)"),
        ("gave_up", "the counterpart stopped the test (Couldn't read/write remote address)"),
        (
            "no_adapter",
            "libibverbs does not list the adapter (Failed to get IB devices list: Function not implemented)",
        ),
        ("no_adapter_for_perftest", "libibverbs does not list the adapter (Unable to find the Infiniband/RoCE device)"),
        ("no_memory", "the limit of locked memory is too low (Couldn't register MR)"),
        ("ibv_rc_pingpong did not answer within 10 s", "ibv_rc_pingpong did not answer within 10 s"),
    ],
)
def test_failures_of_rdma_tests_are_explained(name: str, meaning: str) -> None:
    adapter = plan.Hca("mlx5_0", "1", RATE)
    assert outputs.trial(("a", "b"), (adapter, adapter), [answer(name)]).why == meaning


def server(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the facts of a node with four InfiniBand adapters, from tests/unit/health/recorded/server.yml."""
    looks = document_of(HEALTH / "node.yml")
    base = document_of(HEALTH / "server.yml")
    for place, value in {**base["looks"], **changes}.items():
        *folders, last = place.split("/")
        inner = looks
        for folder in folders:
            inner = inner[folder]
        inner[last] = value
    for adapter in looks["rdma"]["devices"].values():
        adapter["ports"]["1"] |= {"pkeys": {"0": "0xffff"}, "sm_lid": "0x1"}
    for device in looks["pci"]["devices"].values():
        device["configuration"] = ""
    request = document_of(HEALTH / "request.yml") | base["request"]
    return facts(looks, request), request


def test_only_adapters_that_nccl_would_use_are_tested() -> None:
    seen, request = server(**{"host/nccl_conf": "NCCL_IB_HCA=^mlx5_1\nNCCL_IB_PKEY=2\n"})
    assert plan.why_not(seen, request) == ""
    assert [(each.name, each.rate, each.gid, each.extra) for each in plan.hcas(seen)] == [
        (f"mlx5_{number}:1", 400.0, None, ("--pkey_index=2",)) for number in (0, 2, 3)
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rdma/devices": {}}, "the node has no RDMA adapter"),
        ({"rdma/uverbs": []}, "ranks cannot open the RDMA adapters"),
        ({"verbs/library": ""}, "ranks cannot open the RDMA adapters"),
        ({"host/nccl_conf": "NCCL_IB_HCA=mthca\n"}, "no RDMA port that NCCL would use is active"),
        ({"host/nccl_conf": "NCCL_IB_DISABLE=1\n"}, "nccl.conf sets NCCL_IB_DISABLE"),
    ],
)
def test_node_without_rdma_is_skipped_with_a_reason(changes: dict[str, Any], why: str) -> None:
    assert why in plan.why_not(*server(**changes))


def test_roce_uses_the_gid_of_nccl() -> None:
    gids = {
        "1": {"gid": "fe80:0000:0000:0000:a288:c2ff:fe12:3456", "type": "RoCE v2", "netdev": "ens2np0"},
        "3": {"gid": "0000:0000:0000:0000:0000:ffff:0a00:0001", "type": "RoCE v2", "netdev": "ens2np0"},
    }
    seen, request = server()
    roce = copy.deepcopy(seen)
    for port in roce["rdma"]["ports"]:
        port |= {"layer": "Ethernet", "gids": gids}
    assert {each.gid for each in plan.hcas(roce)} == {"3"}
    roce["rdma"]["settings"]["NCCL_IB_GID_INDEX"] = "1"
    assert {each.gid for each in plan.hcas(roce)} == {"1"}
    for port in roce["rdma"]["ports"]:
        port["gids"] = {}
    del roce["rdma"]["settings"]["NCCL_IB_GID_INDEX"]
    assert "rdma.gid.missing" in plan.why_not(roce, request)
