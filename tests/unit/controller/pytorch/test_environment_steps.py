"""Validation of an environment's wheels when the node that resolves them for all nodes is compromised."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from muster.pytorch import lock
from muster.pytorch.choice import Ask
from muster.pytorch.wheels import WheelNeed
from muster_controller.pytorch import environment_steps
from muster_controller.pytorch.environment_steps import EnvironmentSteps
from muster_controller.pytorch.lock_file import reviewed
from muster_controller.pytorch.wheels import WheelSharing

if TYPE_CHECKING:
    from pathlib import Path

    from muster.pytorch.lock import WheelSection

SHIPPED = next(one for one in reviewed() if (one.python, one.machine) == ("3.12", "x86_64"))
ASK = Ask(SHIPPED.asked[0].partition("==")[2], "cuda", 8, tuple(SHIPPED.asked[1:]))
NODES = ["node1", "node2"]


def with_other_wheel(section: WheelSection) -> WheelSection:
    """Return the section with another file as its first wheel. The name stays the same."""
    first, *rest = section.wheels
    return replace(section, wheels=(replace(first, sha256="e" * 64), *rest))


class Variables(dict[str, dict[str, Any]]):
    def raw_get(self, host: str) -> dict[str, Any]:
        return self[host]


class Action:
    """Stub of the action plugin, with a node that returns this section."""

    def __init__(self, answer: WheelSection) -> None:
        self.answer = answer
        self.shown: list[str] = []
        self._templar = self._loader = None
        self._display = self

    def display(self, line: str) -> None:
        self.shown.append(line.strip())

    def _execute_module(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"changed": True, "section": self.answer.as_dict()}


class Sharing:
    """Stub of the wheel distribution: counts its calls."""

    holders = ("node1",)

    def __init__(self) -> None:
        self.spreads = 0
        self.messages = self.distribution = self
        self.came: dict[str, Any] = {}
        self.lacks = dict.fromkeys(NODES, ())

    def close(self) -> None: ...

    def spread(self) -> dict[str, str]:
        self.spreads += 1
        return {}


class Cluster:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lock = folder / "pytorch.lock.txt"
        self.sharing = Sharing()
        monkeypatch.setattr(environment_steps, "environment_places", lambda *_: {})
        monkeypatch.setattr(EnvironmentSteps, "_sharing", lambda *_: self.sharing)
        monkeypatch.setattr(EnvironmentSteps, "_without_folder", lambda _, names: names)
        monkeypatch.setattr(EnvironmentSteps, "_asks", lambda _: [ASK])

    def fetch(self, section: WheelSection | None, answer: WheelSection, **arguments: Any) -> dict[str, Any]:
        """Return the result of the step on node1. section: the lock section that the inspection found."""
        need = WheelNeed(build=True, key="the same", here=False, section=section.as_dict() if section else None)
        found = {"looks": {"needs": asdict(need)}}
        known = {"hostvars": Variables(dict.fromkeys(NODES, found)), "groups": {"gpu_nodes": NODES}}
        given = {"lock": str(self.lock), "looks": "looks", "reviewed_lock": True, "index_url": "auto", **arguments}
        variables = {**known, "inventory_hostname": "node1", "ansible_play_batch": NODES}
        action: Any = Action(answer)
        return EnvironmentSteps(action, variables, given).work("fetch")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


def test_environment_that_differs_from_reviewed_lock_is_rejected(cluster: Cluster) -> None:
    """The environment would be installed on all nodes, and the lock would pass it to new nodes."""
    result = cluster.fetch(None, with_other_wheel(SHIPPED))
    assert result["failed"]
    assert "the environment that the node returned for" in result["msg"]
    assert "differs from the one in roles/pytorch/files/locks" in result["msg"]
    assert (cluster.sharing.spreads, cluster.lock.exists()) == (0, False)


def test_reviewed_environment_is_accepted(cluster: Cluster) -> None:
    result = cluster.fetch(SHIPPED, SHIPPED)
    assert (result.get("failed"), cluster.sharing.spreads) == (None, 1)
    assert lock.parse(cluster.lock.read_text()) == (SHIPPED,)


@pytest.mark.parametrize("arguments", [{"reviewed_lock": False}, {"index_url": "https://pypi.example.org/simple"}])
def test_unused_reviewed_lock_is_not_compared(cluster: Cluster, arguments: dict[str, Any]) -> None:
    """All nodes get the packages that the first node resolves. See docs/security.md to avoid trusting nodes."""
    assert cluster.fetch(None, with_other_wheel(SHIPPED), **arguments)["complete"]
    assert lock.parse(cluster.lock.read_text()) == (with_other_wheel(SHIPPED),)


def test_lock_of_the_site_overrides_the_reviewed_lock(cluster: Cluster) -> None:
    own = with_other_wheel(SHIPPED)
    cluster.lock.write_text(lock.render([own]))
    assert cluster.fetch(own, own)["complete"]
    result = cluster.fetch(None, SHIPPED)
    assert "the environment that the node returned for" in result["msg"]
    assert result["msg"].endswith("differs from the one in pytorch.lock.txt")
    assert lock.parse(cluster.lock.read_text()) == (own,)


def test_one_holder_cannot_claim_sizes_that_fit_on_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: Any = None
    section: Any = SimpleNamespace(wheels=[SimpleNamespace(file="a.whl", sha256="a" * 64)], title="x")
    sizes = {"node1": 5, "node2": 5, "node3": 2**34, "node4": 2**61}
    said = {name: {"sizes": {"a.whl": size}, "room": 9, "port_free": True, "error": ""} for name, size in sizes.items()}
    said["node5"] = {**said["node1"], "sizes": {}, "room": 100}
    addresses = dict.fromkeys(said, "192.0.2.1")
    sharing = WheelSharing(section, "/w", addresses, 1, messages, print, privileged=True)
    answers = {name: SimpleNamespace(data=data, error="") for name, data in said.items()}
    monkeypatch.setattr(sharing.distribution, "ask", lambda *_: answers)
    monkeypatch.setattr(
        sharing.distribution, "spread", lambda content: {one.path: str(one.size) for one in content.files}
    )
    sharing.look(["node5"])
    assert sharing.distribution.failures == {"node4": "invalid answer"}
    assert sharing.spread() == {"a.whl": "5"}
    assert "node5" in sharing.distribution.lacks
