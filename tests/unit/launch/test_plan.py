"""The plan of a launch, derived from the inventory alone.

cases/plan: differences from minimal nodes and a minimal request -> parts of the plan, or all problems.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cases import cases
from launch_shapes import a_node, a_request
from muster.launch import caches
from muster.launch import plan as planning
from muster.launch.plan import PlanError
from muster.launch.text import describe
from muster.verdict.redaction import Redaction

if TYPE_CHECKING:
    from muster.launch.planned import LaunchPlan

NOBODY: Any = {"held": {}, "computing": {}, "uuids": [], "why": ""}
LOOKED_AT: Any = {
    "user": {"home": "/home/muster"},
    "interface_of_address": "eth0",
    "cpus": 8,
    "gpus": 0,
    "occupied": NOBODY,
    "environment": "/opt/muster/pytorch/2.13.0-1",
}


def planned(nodes: dict[str, Any], request: dict[str, Any]) -> LaunchPlan:
    inventory = [a_node(number, name, **given) for number, (name, given) in enumerate(nodes.items(), 1)]
    return planning.build_plan(a_request(**request), inventory)


@cases(__file__, "plan")
def test_launch_plan_matches_the_case(case: dict[str, Any]) -> None:
    expected = case["expect"]
    if "problems" in expected:
        with pytest.raises(PlanError) as refusal:
            planned(case["nodes"], case.get("request", {}))
        assert refusal.value.problems == expected["problems"]
        return
    plan = planned(case["nodes"], case.get("request", {}))
    first, kept = plan.head, plan.as_json()
    parts = {
        **kept,
        **{entry["node"]: entry for entry in kept["nodes"]},
        "ranks": plan.ranks,
        "script": first.argv[12],
        "from_node": first.from_node,
        "proxies": [{key: entry.env[key] for key in entry.env if key.endswith("_proxy")} for entry in plan.nodes],
    }
    assert {name: parts[name] for name in expected} == expected


def test_complete_fills_in_the_facts_of_the_node() -> None:
    entry = planning.complete(planned({"node1": {"nproc": 3}}, {"env": {"HOME": "/data"}}).head, LOOKED_AT, "gloo")
    assert entry.from_node == {}
    assert entry.interface == "eth0"
    wanted = {"HOME": "/data", "OMP_NUM_THREADS": "2", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}
    assert {name: entry.env[name] for name in wanted} == wanted


def test_kernel_caches_are_stored_per_release_of_the_environment() -> None:
    node = {"node1": {"nproc": 3}}
    entry = planning.complete(planned(node, {"env": {"TRITON_CACHE_DIR": "/scratch"}}).head, LOOKED_AT, "gloo")
    inductor, extensions = (entry.env[name] for name in ("TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR"))
    folder = "/var/lib/muster/launches/.muster-cache/muster/opt-muster-pytorch-2.13.0-1-"
    assert inductor.startswith(folder)
    assert inductor.endswith("/inductor")
    assert extensions == inductor.removesuffix("inductor") + "extensions"
    assert entry.env["TRITON_CACHE_DIR"] == "/scratch"
    assert caches.to_look_at(entry)["TRITON_CACHE_DIR"] == "/scratch"
    other: Any = {**LOOKED_AT, "environment": "/opt/muster/pytorch/2.14.0-1"}
    again = planning.complete(planned(node, {}).head, other, "gloo")
    assert again.env["TORCHINDUCTOR_CACHE_DIR"] not in {inductor, ""}
    assert caches.to_look_at(planned(node, {}).head) == {
        "cluster_run_root": "/var/lib/muster/launches/.muster-cache/muster"
    }


@pytest.mark.parametrize("path", ["/", "/../..", "/a b/\n;$x", "/" + "x" * 300])
def test_cache_folder_name_is_safe(path: str) -> None:
    found = caches.folders("/cache", path)["TRITON_CACHE_DIR"].split("/")
    assert found[:2] == ["", "cache"]
    assert len(found) == 4
    assert re.fullmatch(r"[A-Za-z0-9_.-]{9,89}", found[2])
    assert found[2] not in {".", ".."}


def test_every_rank_has_at_least_one_thread() -> None:
    entry = planning.complete(planned({"node1": {"nproc": 16}}, {}).head, LOOKED_AT, "gloo")
    assert entry.env["OMP_NUM_THREADS"] == "1"


def test_values_of_user_variables_are_not_stored() -> None:
    given = {"FLAVOUR": "vanilla-2", "HF_TOKEN": "hf-1", "HOME": "/data"}
    plan = planned({"node1": {}}, {"env": given, "env_from": {"HF_TOKEN": "launch_env_file"}})
    kept = planning.masked(plan, Redaction([]))
    assert kept.given == {"FLAVOUR": "launch_env", "HF_TOKEN": "launch_env_file", "HOME": "launch_env"}
    assert not given.keys() & kept.head.env.keys()
    assert kept.head.env["MUSTER_NODE"] == "node1"
    assert plan.head.env.items() >= given.items()
    shown = describe(kept)
    assert "  FLAVOUR=<from launch_env> \\\n" in shown
    assert "  HF_TOKEN=<from launch_env_file> \\\n" in shown
    assert not [value for value in given.values() if value in json.dumps(kept.as_json()) + shown]


def test_environment_in_a_plan_of_an_earlier_release_is_dropped() -> None:
    plan = replace(planned({"node1": {}}, {}), given=None)
    assert planning.masked(plan, Redaction([])).head.env == {}


def test_secrets_in_arguments_are_masked() -> None:
    args = ["--api-key=abc", "--lr", "0.1"]
    plan = planned({"node1": {}}, {"script_args": args})
    assert planning.masked(plan, Redaction([])).head.argv[13:] == ["--api-key=********", "--lr", "0.1"]
    assert plan.head.argv[13:] == args


def test_project_precedes_the_pythonpath_of_the_user() -> None:
    project = {"source": "/p", "digest": "abc", "files": 1, "bytes": 1}
    copy = "/var/lib/muster/launches/20260101-120000-abcd/project"
    for given, path in (({}, copy), ({"PYTHONPATH": "/srv/lib"}, f"{copy}:/srv/lib")):
        plan = planned({"node1": {}}, {"script": "train.py", "project": project, "env": given})
        (entry,) = plan.nodes
        assert (entry.env["MUSTER_PROJECT"], entry.env["PYTHONPATH"]) == (copy, path)
        assert planning.in_project(entry)
    assert "PYTHONPATH" not in planned({"node1": {}}, {}).head.env
    assert not planning.in_project(planned({"node1": {}}, {}).head)
    assert not planning.in_project(planned({"node1": {}}, {"script": "", "module": "a.b"}).head)
