"""Launch data for tests: a request, a plan, settings, and a node's report before the start.

Product code creates the values or provides the defaults, so that data shapes need to be changed in only one place. A
test names only the values that matter: `a_plan({"node1": 2, "node2": 2}, backend="nccl")`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from muster.launch.options import LaunchCluster, LaunchOptions
from muster.launch.plan import LaunchRequest, NodeSpec, build_plan
from muster_controller.launch.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from muster.launch.planned import LaunchPlan

LAUNCH_ID = "20260101-120000-abcd"
RUN_ROOT = "/var/lib/muster/launches"
WORK_ROOT = "/var/lib/muster/work"
USERS_ROOT = "/var/lib/muster/users"
RUN_DIR = f"{RUN_ROOT}/{LAUNCH_ID}"
CLUSTER: dict[str, Any] = {
    "name": "rack",
    "user": "muster",
    "master_port": 29500,
    "run_root": RUN_ROOT,
    "work_root": WORK_ROOT,
    "users_root": USERS_ROOT,
    "run_keep": 10,
}
UNIT = f"muster-launch-{LAUNCH_ID}.service"
TORCHRUN = "/opt/muster/pytorch/current/bin/torchrun"


def a_node(number: int, name: str = "", **changes: Any) -> NodeSpec:
    """Return an inventory node. Default: name nodeNUMBER, address 10.0.0.NUMBER, one rank, no GPU."""
    given = {"name": name or f"node{number}", "address": f"10.0.0.{number}", "torchrun": TORCHRUN, **changes}
    return NodeSpec(**given)


def a_request(**changes: Any) -> LaunchRequest:
    """Return an administrator's request to launch a script that exists on every node."""
    options = LaunchOptions(**{"script": "/srv/job/train.py", **taken(changes, LaunchOptions, LaunchRequest)})
    cluster = LaunchCluster(**{**CLUSTER, **taken(changes, LaunchCluster)})
    return LaunchRequest(**{"options": options, "cluster": cluster, "launch_id": LAUNCH_ID, **changes})


def taken(changes: dict[str, Any], shape: Any, before: Any = None) -> dict[str, Any]:
    """Remove from `changes`, and return, the values of fields that the data class `shape` has and `before` does not
    have."""
    others = before.__dataclass_fields__ if before else {}
    return {name: changes.pop(name) for name in shape.__dataclass_fields__ if name in changes and name not in others}


def a_user_request(user: str, **changes: Any) -> LaunchRequest:
    """Return a launch user's request, without root."""
    home = f"{USERS_ROOT}/{user}"
    folders = {"run_root": f"{home}/launches", "work_root": f"{home}/work"}
    return a_request(**{"user": user, "manager": "user", **folders, **changes})


def a_plan(
    nproc: Mapping[str, int] | int = 2,
    request: LaunchRequest | None = None,
    *,
    entry: Mapping[str, Any] | None = None,
    **changes: Any,
) -> LaunchPlan:
    """Return the plan of a request. nproc: ranks by node, or the number of nodes with one rank each.

    entry: changed values of each node's entry. changes: changed values of the plan.
    """
    counts = {f"node{number}": 1 for number in range(1, nproc + 1)} if isinstance(nproc, int) else nproc
    nodes = [a_node(number, name, nproc=count) for number, (name, count) in enumerate(counts.items(), 1)]
    plan = build_plan(request or a_request(), nodes)
    return replace(plan, nodes=[replace(one, **(entry or {})) for one in plan.nodes], **changes)


def a_settings(**changes: Any) -> Settings:
    """Return settings without delays, log limits and notifications."""
    quiet = {"stop_timeout": 5, "log_max_mb": 0, "probe": False, "observe": False, "notice_timeout": 0.0}
    options = LaunchOptions(**{**quiet, **taken(changes, LaunchOptions, Settings)})
    return Settings(**{"options": options, "cluster": LaunchCluster(**CLUSTER), **changes})


def facts_of_a_fit_node(**changes: Any) -> dict[str, Any]:
    """Return the report of a node that passes all preflight checks for a launch in /opt/x."""
    return {
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
        "foreign": [],
        "interfaces": ["eth0", "lo"],
        "interface_of_address": "eth0",
        "port": {"port": 29500, "free": True, "holders": []},
        "occupied": {"held": {}, "computing": {}, "uuids": [], "why": ""},
        "own": None,
        "environment": "/opt/x",
        "caches": {"cluster_run_root": {"path": "/var/lib/muster/launches/.muster-cache/muster", "type": "ext4"}},
        **changes,
    }


def a_start(folder: Path, launch_id: str = LAUNCH_ID, **changes: Any) -> dict[str, Any]:
    """Return the controller's request to a node to start an administrator launch that runs as nobody in a folder."""
    return {
        "launch_id": launch_id,
        "user": "nobody",
        "reader": {"uid": 1234, "gid": 2345},
        "run_dir": str(folder / "runs" / launch_id),
        "work_dir": str(folder / "work" / launch_id),
        "cache_root": str(folder / "cache/nobody"),
        "earlier": [],
        "lease": 10.0,
        "time_limit": 0,
        "keep": 10,
        "keep_bytes": 0,
        "log_max": 0,
        "seats": ["cpu"],
        "shared": False,
        "waits": False,
        "properties": {},
        "env": {},
        "script_name": "train.py",
        "script_body": "",
        **changes,
    }
