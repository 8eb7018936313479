"""The wheels of an environment, where the node that gets them for all was taken over and answers what it likes."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from muster.pytorch import lock
from muster.pytorch.choice import Ask
from muster.pytorch.wheels import WheelNeed
from muster_controller.pytorch import environment_steps
from muster_controller.pytorch.environment_steps import EnvironmentSteps
from muster_controller.pytorch.lock_file import reviewed

if TYPE_CHECKING:
    from pathlib import Path

    from muster.pytorch.lock import WheelSection

SHIPPED = next(one for one in reviewed() if (one.python, one.machine) == ("3.12", "x86_64"))
ASK = Ask(SHIPPED.asked[0].partition("==")[2], "cuda", 8, tuple(SHIPPED.asked[1:]))
NODES = ["node1", "node2"]


def others(section: WheelSection) -> WheelSection:
    """The same environment by its name, with another file in the place of its first wheel."""
    first, *rest = section.wheels
    return replace(section, wheels=(replace(first, sha256="e" * 64), *rest))


class Variables(dict[str, dict[str, Any]]):
    def raw_get(self, host: str) -> dict[str, Any]:
        return self[host]


class Action:
    """Ansible's part, with a node that answers with this section."""

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
    """Sharing of wheels that has nothing to do but to be counted."""

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
        """What comes of node1's turn. section: what the look says that the lock has."""
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


def test_another_environment_than_the_reviewed_one_is_refused(cluster: Cluster) -> None:
    """It would be installed on all nodes, and be in the lock for those that join."""
    result = cluster.fetch(None, others(SHIPPED))
    assert result["failed"]
    assert "the node returned a different environment for" in result["msg"]
    assert "than roles/pytorch/files/locks has" in result["msg"]
    assert (cluster.sharing.spreads, cluster.lock.exists()) == (0, False)


def test_the_reviewed_one_is_taken(cluster: Cluster) -> None:
    result = cluster.fetch(SHIPPED, SHIPPED)
    assert (result.get("failed"), cluster.sharing.spreads) == (None, 1)
    assert lock.parse(cluster.lock.read_text()) == (SHIPPED,)


@pytest.mark.parametrize("arguments", [{"reviewed_lock": False}, {"index_url": "https://pypi.example.org/simple"}])
def test_what_was_reviewed_is_not_compared_where_it_is_not_used(cluster: Cluster, arguments: dict[str, Any]) -> None:
    """So what the first node resolves is what all nodes get: docs/security.md says how to trust no node."""
    assert cluster.fetch(None, others(SHIPPED), **arguments)["complete"]
    assert lock.parse(cluster.lock.read_text()) == (others(SHIPPED),)


def test_the_lock_counts_more_than_what_was_reviewed(cluster: Cluster) -> None:
    own = others(SHIPPED)
    cluster.lock.write_text(lock.render([own]))
    assert cluster.fetch(own, own)["complete"]
    result = cluster.fetch(None, SHIPPED)
    assert "the node returned a different environment for" in result["msg"]
    assert result["msg"].endswith("than pytorch.lock.txt has")
    assert lock.parse(cluster.lock.read_text()) == (own,)
