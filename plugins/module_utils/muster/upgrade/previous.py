"""Choose the PyTorch release for a rollback. It must still be installed, so that the rollback takes only seconds."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..pytorch.request import is_environment
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LINK = re.compile(r"envs/([^/]+)")


@dataclass(frozen=True)
class Environments:
    """The environments of one node. current: target of the link. others: the other environments, newest first."""

    current: str = ""
    others: tuple[str, ...] = ()

    @property
    def release(self) -> str:
        return release_of(self.current)

    @property
    def earlier(self) -> tuple[str, ...]:
        """The other installed releases, newest first."""
        return tuple(dict.fromkeys(one for name in self.others if (one := release_of(name)) != self.release))


def environments(link: str, names: Sequence[str]) -> Environments:
    """Return the environments in a node's folder. Folders whose names Muster does not create are ignored."""
    found = _LINK.fullmatch(link)
    current = found[1] if found and is_environment(found[1]) else ""
    return Environments(current, tuple(name for name in names if is_environment(name) and name != current))


def release_of(environment: str) -> str:
    """Return the release in an environment's name, such as 2.13.0 for 2.13.0-cpu-py3.12-1f0c2a7b."""
    return environment.partition("-")[0]


def going_back(nodes: Mapping[str, Environments], listed: str, asked: str = "") -> tuple[str, str]:
    """Return (release for the rollback, reason why there is none).

    listed: the release in the inventory. If a node has a different release, an upgrade was not completed, and all nodes
    had the listed release before it. Otherwise the result is the earlier release that all nodes have installed. asked:
    the release that the user requested.
    """
    if not nodes:
        return "", "No node responds, so the installed releases are unknown"
    if asked:
        return _there(nodes, asked)
    if any(one.release != listed for one in nodes.values()):
        return _there(nodes, listed)
    first = Counter(one.earlier[0] for one in nodes.values() if one.earlier)
    if not first:
        return "", f"All nodes have {listed}, and no node has an earlier environment. {_build(listed)}"
    if len(first) > 1:
        said = ", ".join(f"{release} on {count}" for release, count in first.most_common())
        return "", f"The nodes have different earlier environments ({said}). Choose one: -e torch_version=RELEASE"
    return _there(nodes, next(iter(first)))


def _there(nodes: Mapping[str, Environments], release: str) -> tuple[str, str]:
    lacking = [name for name, one in nodes.items() if release not in (one.release, *one.earlier)]
    if not lacking:
        return release, ""
    verb = "has" if len(lacking) == 1 else "have"
    return "", f"{few(lacking)} {verb} no environment with PyTorch {release}. {_build(release)}"


def _build(release: str) -> str:
    return f"To build one in a few minutes, set -e torch_version={release} (or another release) without rollback=true"
