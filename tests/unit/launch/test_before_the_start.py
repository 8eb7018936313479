"""Before a launch starts: its plan, from the inventory alone, and each node's fitness, from a look at it.

cases/plan: nodes and request as far as they differ from the plainest -> parts of the plan, or every problem.
cases/preflight: entry of the plan, facts and request as far as they differ from those of a fit node -> the findings;
command: what the first of them tells to type.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.launch import plan as planning
from muster.launch import preflight
from muster.launch.plan import LaunchRequest, NodeSpec, PlanError

REQUEST = {"cluster": "rack", "launch_id": "20260101-120000-abcd", "user": "muster", "script": "/srv/job/train.py"}
ENTRY = {"node": "node1", "nproc": 2, "address": "10.0.0.1", "interface": None}
FACTS: dict[str, Any] = {
    "uid": 0,
    "python": [3, 10, 12],
    "systemd": True,
    "cpus": 8,
    "gpus": 0,
    "user": {"uid": 990, "gid": 990, "home": "/home/muster"},
    "executable": {"path": "/opt/x/torchrun", "exists": True, "usable": True},
    "script": {"path": "/srv/job/train.py", "exists": True, "usable": True},
    "chdir": None,
    "disk": {"path": "/var/lib", "free": 10**10, "read_only": False, "inodes_free": 1000},
    "interfaces": ["eth0", "lo"],
    "interface_of_address": "eth0",
    "port": {"port": 29500, "free": True, "holders": []},
    "launches": [],
}
LOOKED_FOR = {"user": "muster", "port": 29500, "backend": "gloo", "min_free_bytes": 64_000_000, "script_is_sent": False}


def planned(nodes: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    inventory = [
        NodeSpec(name, f"10.0.0.{number}", "/opt/muster/pytorch/current/bin/torchrun", **given)
        for number, (name, given) in enumerate(nodes.items(), 1)
    ]
    return planning.build_plan(LaunchRequest(**{**REQUEST, **request}), inventory)


@cases(__file__, "plan")
def test_plan(case: dict[str, Any]) -> None:
    expected = case["expect"]
    if "problems" in expected:
        with pytest.raises(PlanError) as refusal:
            planned(case["nodes"], case.get("request", {}))
        assert refusal.value.problems == expected["problems"]
        return
    plan = planned(case["nodes"], case.get("request", {}))
    entries = {entry["node"]: entry for entry in plan["nodes"]}
    first = plan["nodes"][0]
    parts = {
        **plan,
        **entries,
        "ranks": {name: entry["ranks"] for name, entry in entries.items()},
        "script": first["argv"][12],
        "from_node": first["from_node"],
    }
    assert {name: parts[name] for name in expected} == expected


def test_complete_fills_in_what_only_the_node_knows() -> None:
    entry = planning.complete(planned({"node1": {"nproc": 3}}, {"env": {"HOME": "/data"}})["nodes"][0], FACTS)
    assert entry["from_node"] == {}
    assert entry["interface"] == "eth0"
    wanted = {"HOME": "/data", "OMP_NUM_THREADS": "2", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}
    assert {name: entry["env"][name] for name in wanted} == wanted


def test_every_rank_has_a_thread() -> None:
    entry = planning.complete(planned({"node1": {"nproc": 16}}, {})["nodes"][0], FACTS)
    assert entry["env"]["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("HF_TOKEN", "hf_abc", "********"),
        ("WANDB_API_KEY", "abc", "********"),
        ("AWS_SECRET_ACCESS_KEY", "abc", "********"),
        ("PGPASSWORD", "abc", "********"),
        ("REDIS_PASS", "abc", "********"),
        ("ssh_key", "abc", "********"),
        ("TOKENIZERS_PARALLELISM", "false", "false"),
        ("KEYBOARD", "de", "de"),
        ("https_proxy", "http://ada:geheim@proxy:3128", "http://ada:********@proxy:3128"),
        ("MLFLOW_TRACKING_URI", "http://mlflow:5000/x@y", "http://mlflow:5000/x@y"),
    ],
)
def test_secrets_of_the_environment_are_covered(name: str, value: str, shown: str) -> None:
    plan = planned({"node1": {}}, {"env": {name: value}})
    assert planning.masked(plan)["nodes"][0]["env"][name] == shown
    assert plan["nodes"][0]["env"][name] == value


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--api-key=abc", "--lr", "0.1"], ["--api-key=********", "--lr", "0.1"]),
        (["--hf-token", "abc", "abc"], ["--hf-token", "********", "abc"]),
        (["--max-tokens", "512", "--tokens=512"], ["--max-tokens", "512", "--tokens=512"]),
        (["--use-auth", "--epochs", "3"], ["--use-auth", "--epochs", "3"]),
        (["--db=postgres://ada:geheim@db/x"], ["--db=postgres://ada:********@db/x"]),
        (["--tokenizer", "bert"], ["--tokenizer", "bert"]),
    ],
)
def test_secrets_among_the_arguments_are_covered(args: list[str], shown: list[str]) -> None:
    plan = planned({"node1": {}}, {"args": args})
    assert planning.masked(plan)["nodes"][0]["argv"][13:] == shown
    assert plan["nodes"][0]["argv"][13:] == args


@cases(__file__, "preflight")
def test_preflight(case: dict[str, Any]) -> None:
    findings = preflight.judge(
        {**ENTRY, **case.get("entry", {})},
        {**FACTS, **case.get("facts", {})},
        {**LOOKED_FOR, **case.get("request", {})},
    )
    assert [f"{one.id} {one.status}: {one.summary}" for one in findings] == case["expect"]
    assert all(one.node == "node1" and (one.fix.get("text") or one.status == "pass") for one in findings)
    if "command" in case:
        assert findings[0].fix["command"] == case["command"]
