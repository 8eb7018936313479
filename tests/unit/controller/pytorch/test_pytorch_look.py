"""Arguments for inspecting the environments of a node: locks, mirrors and proxies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from acting import World
from muster.pytorch.lock import render
from muster_controller.pytorch.environments import environment_places, sections
from muster_controller.pytorch.lock_file import LockFile, reviewed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def lock(tmp_path: Path) -> LockFile:
    path = tmp_path / "pytorch.lock.txt"
    path.write_text(render(reviewed()[:1]))
    return LockFile(str(path))


@pytest.mark.parametrize(
    ("arguments", "shipped"),
    [
        ({"reviewed_lock": True}, True),
        ({"reviewed_lock": "yes", "index_url": "auto", "offline_dir": ""}, True),
        ({"reviewed_lock": True, "index_url": ""}, True),
        ({"reviewed_lock": True, "index_url": "https://pypi.example"}, False),
        ({"reviewed_lock": True, "offline_dir": "/srv/wheels"}, False),
        ({"reviewed_lock": "no"}, False),
        ({}, False),
    ],
)
def test_reviewed_locks_are_used_only_with_the_default_index(
    lock: LockFile, arguments: dict[str, Any], *, shipped: bool
) -> None:
    own = [section.as_dict() for section in reviewed()]
    assert sections(arguments, lock) == {"locked": own[:1], "reviewed": own if shipped else []}


def test_lock_is_not_read_for_an_environment_maintained_by_the_site(lock: LockFile) -> None:
    assert sections({"mode": "verify", "reviewed_lock": True}, lock) == {}
    assert sections({"mode": "manage"}, None) == {}


def test_mirrors_and_proxies_come_from_the_inventory(tmp_path: Path) -> None:
    hosts = "gpu_nodes: {hosts: {node1: {cluster_mirror: tsinghua, cluster_http_proxy: 'http://proxy:3128'}, node2: }}"
    world = World(tmp_path, hosts)
    here = (world.vars, world.templar, world.loader)
    found = environment_places(*here, "node1")
    assert found["mirror"] == {"pip": "https://mirrors.tuna.tsinghua.edu.cn/pypi/web/simple"}
    assert found["environment"]["http_proxy"] == "http://proxy:3128"
    assert environment_places(*here, "node2") == {"mirror": {}, "environment": {}}
