"""Removal of Muster from a node: every role must declare all files that it writes, so that they can be removed."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import StrictUndefined, Template

from cases import cases
from muster.members import wiping
from muster.network import mtu

ROOT = Path(__file__).parents[3]
ROLES = ROOT / "roles"
# Required by the driver, which stays.
OF_THE_DRIVER = re.compile(r"/etc/apt/preferences\.d/|/etc/modprobe\.d/")


def request_of(given: dict[str, Any]) -> wiping.WipeRequest:
    trees = tuple(wiping.Tree(**tree) for tree in given.get("trees", ()))
    return wiping.WipeRequest(trees, wiping.WipedAccount(**given["account"]) if "account" in given else None)


@cases(__file__, "wiping")
def test_wipe_plan_matches_the_case(case: dict[str, Any]) -> None:
    seen = wiping.WipeState(
        files={path: wiping.WipeFileState(**one) for path, one in case.get("files", {}).items()},
        trees={path: wiping.SeenTree(**one) for path, one in case.get("trees", {}).items()},
        account=wiping.WipeAccountState(**case["account"]) if "account" in case else None,
        units=case.get("units", {}),
        work=case.get("work", ()),
    )
    plan = wiping.make_plan(request_of(case.get("request", {})), seen)
    assert plan.shown == case.get("shown", [])
    assert plan.left == case.get("left", [])
    assert plan.problems == case.get("problems", [])
    assert bool(list(wiping.still_there(plan))) == bool(plan.shown)


def test_parent_folders_of_muster_are_sorted_deepest_first() -> None:
    found = wiping.paths_above(
        [
            "/opt/muster/pytorch/envs",
            "/etc/muster/firewall.nft",
            "/usr/local/lib/muster/bin/torchrun",
            "/data/site/launches",
            "/var/lib/node_exporter/textfile/muster_node.prom",
        ]
    )
    assert found == [
        "/usr/local/lib/muster/bin",
        "/usr/local/lib/muster",
        "/opt/muster/pytorch",
        "/etc/muster",
        "/opt/muster",
    ]


def forgotten() -> str:
    """Return the paths that the roles remove, read from their tasks and loop data."""
    asked = (*ROLES.glob("*/tasks/forget.yml"), ROLES / "wipe/tasks/main.yml")
    texts = [path.read_text() for path in asked]
    named = {name for text in texts for name in re.findall(r"\b_[a-z_]+", text)}
    for path in ROLES.glob("*/vars/main.yml"):
        data = yaml.safe_load(path.read_text())
        texts += [yaml.safe_dump(value) for name, value in data.items() if name in named]
    return "\n".join(texts)


def test_every_role_removes_what_its_data_installs() -> None:
    texts = "\n".join(path.read_text() for path in ROLES.glob("*/vars/main.yml"))
    paths = set(re.findall(r"(?<![\w*])/(?:etc|var/lib|run|opt|usr/local)/[\w./*-]*muster[\w./*-]*", texts))
    gone = forgotten()
    # package_sources reverts its own files; node_baseline only checks for traces of it.
    of_sources = set(yaml.safe_load((ROLES / "node_baseline/vars/main.yml").read_text())["_node_baseline_traces"])
    # A folder that is removed with its contents.
    left = {path for path in paths - of_sources if path not in gone and not OF_THE_DRIVER.match(path)}
    assert left == set()


def test_every_role_with_a_removal_is_called() -> None:
    asked = "\n".join(path.read_text() for path in (*ROLES.glob("*/tasks/forget.yml"), ROLES / "wipe/vars/main.yml"))
    for path in ROLES.glob("*/tasks/forget.yml"):
        assert re.search(rf"\b{path.parents[1].name}\b", asked), path


def test_removal_of_launches_names_no_folder_of_a_site() -> None:
    """cluster_run_root can be a folder that the site also uses, such as /data, or be next to one, as /data/launches."""
    roots = {"cluster_run_root": "/data", "cluster_users_root": "/users", "cluster_work_root": "/work"}
    launch_id = Template(yaml.safe_load((ROLES / "launch/vars/main.yml").read_text())["_launch_id"]).render()
    assert fnmatchcase("20261124-101010-abcd", launch_id)
    (task,) = yaml.safe_load((ROLES / "launch/tasks/forget.yml").read_text())
    for tree in task["wipe_node"]["folders"]:
        path, *only = (
            Template(text, undefined=StrictUndefined).render(**roots, cluster_user="muster", _launch_id=launch_id)
            for text in (tree["path"], *tree.get("only", ()))
        )
        assert path in roots.values() or path.startswith(("/run/muster/", "/var/lib/muster/"))
        if path == "/data":
            theirs = ("images", "cache", "store", "2024-01-archive", "20240501-1200-da", ".cache")
            assert [name for name in theirs for pattern in only if fnmatchcase(name, pattern)] == []


@pytest.mark.parametrize("path", [mtu.NETPLAN, mtu.IF_UP, "/etc/systemd/network/*.d/90-muster-mtu.conf"])
def test_removed_mtu_files_are_those_that_muster_writes(path: str) -> None:
    assert path in yaml.safe_load((ROLES / "mtu/vars/main.yml").read_text())["_mtu_files"]
    assert Path(path).name in (ROOT / "plugins/module_utils/muster/network/mtu.py").read_text()
