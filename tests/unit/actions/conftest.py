"""Fixtures: a three-node cluster on which action plugins run as tasks do, and the displayed output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible import context
from ansible.module_utils.common.collections import ImmutableDict
from ansible.utils.display import Display

from acting import World

if TYPE_CHECKING:
    from pathlib import Path

RUN = "20260101-120000-abcd"
HOSTS = """\
gpu_nodes:
  vars: {{ansible_connection: local, cluster_name: rack, cluster_artifacts_dir: {folder}/artifacts}}
  hosts:
    node1: {{cluster_address: 10.0.0.1}}
    node2: {{cluster_address: 10.0.0.2}}
    node3: {{cluster_address: 10.0.0.3}}
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a cluster whose artifacts are stored in tmp_path/artifacts/rack/RUN."""
    monkeypatch.setenv("MUSTER_RUN", RUN)
    rack = str(tmp_path / "rack")
    given = {"inventory": [rack], "tags": ["all"], "skip_tags": [], "args": ["site.yml"], "forks": 5}
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(**given))
    return World(tmp_path / "rack", HOSTS.format(folder=tmp_path))


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the displayed lines and warnings."""
    found: list[str] = []
    for name in ("display", "warning"):
        monkeypatch.setattr(Display, name, lambda _self, text, *_args, **_more: found.append(str(text)))
    return found
