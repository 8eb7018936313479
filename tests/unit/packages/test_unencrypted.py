"""Warnings about packages over HTTP, and their severity."""

from __future__ import annotations

from typing import Any

import pytest

from muster.health import cluster
from muster.inventory import Inventory, InventoryNode, warnings
from muster.packages import unencrypted

WHEELS = (
    "wheels are downloaded over HTTP from mirror.lab: an attacker on the network can replace them"
    " until their hashes are in the lock"
)
DEBS = "apt packages are downloaded over HTTP from mirror.lab: they are signed, but not encrypted"
CUSTOM = {"cluster_mirror": "custom"}


@pytest.mark.parametrize(
    ("values", "said", "status"),
    [
        ({}, "", None),
        ({"pytorch_index_url": "auto"}, "", None),
        ({"pytorch_index_url": "https://mirror.lab/simple", "pytorch_find_links": ["/srv/wheels"]}, "", None),
        ({"pytorch_index_url": "http://me:secret@mirror.lab/simple"}, WHEELS, "warn"),
        ({"pytorch_extra_index_urls": ["http://mirror.lab/a", "http://mirror.lab/b"]}, WHEELS, "warn"),
        ({"pytorch_find_links": ["http://mirror.lab/wheels", "http://[broken"]}, WHEELS, "warn"),
        ({"pytorch_find_links": ["http://mirror.lab"], "pytorch_offline_dir": "/srv/wheels"}, "", None),
        ({**CUSTOM, "cluster_mirror_urls": {"torch_links": "http://mirror.lab/{variant}"}}, WHEELS, "warn"),
        ({"cluster_mirror": "upstream", "cluster_mirror_urls": {"pip": "http://mirror.lab"}}, "", None),
        ({**CUSTOM, "cluster_mirror_urls": {"archive": "http://mirror.lab/ubuntu"}}, DEBS, "pass"),
        (
            {**CUSTOM, "cluster_mirror_urls": {"pip": "http://mirror.lab", "nvidia": "http://mirror.lab"}},
            f"{WHEELS}; {DEBS}",
            "warn",
        ),
    ],
)
def test_unencrypted_sources_are_found(values: dict[str, Any], said: str, status: str | None) -> None:
    assert unencrypted.warning(values) == said
    assert [one.status for one in unencrypted.judge("node1", values)] == ([status] if status else [])
    inventory = Inventory(tuple(InventoryNode(name, values) for name in ("node1", "node2")), (), 5, (2, 19))
    assert warnings(inventory) == ([f"every node: {said}."] if said else [])


def test_verdict_contains_the_warning_about_http() -> None:
    values = {"pytorch_index_url": "http://mirror.lab/simple"}
    plan = {"participants": ["node1"], "quarantined": [], "sources": {"node1": values}}
    health = cluster.judge(cluster.Nodes(plan, {}, {}, [], {}), "fail")
    assert [(one.id, one.status, one.node) for one in health.findings] == [
        ("packages.source.unencrypted", "warn", "node1")
    ]
    assert not health.refusal
