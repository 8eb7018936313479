"""Which release of PyTorch nodes go back to: one that lies there already, so that going back is a matter of seconds."""

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
    """Of one node: the environment that its link leads to, and the others that lie there, newest first."""

    current: str = ""
    others: tuple[str, ...] = ()

    @property
    def release(self) -> str:
        return release_of(self.current)

    @property
    def earlier(self) -> tuple[str, ...]:
        """Releases that it could have in a moment, newest first."""
        return tuple(dict.fromkeys(one for name in self.others if (one := release_of(name)) != self.release))


def environments(link: str, names: Sequence[str]) -> Environments:
    """What a node says of its folder; names that no request makes are somebody else's."""
    found = _LINK.fullmatch(link)
    current = found[1] if found and is_environment(found[1]) else ""
    return Environments(current, tuple(name for name in names if is_environment(name) and name != current))


def release_of(environment: str) -> str:
    """2.13.0 of 2.13.0-cpu-py3.12-1f0c2a7b."""
    return environment.partition("-")[0]


def going_back(nodes: Mapping[str, Environments], listed: str, asked: str = "") -> tuple[str, str]:
    """The release to go back to, or why there is none.

    listed: what the inventory asks for. Where some node has another one, an upgrade did not come to its end, and that
    is where all were before. Otherwise it is what lies beside what is in use, the same everywhere. asked: the release
    that the user names.
    """
    if not nodes:
        return "", "No node answers, so nothing is known of what could be gone back to"
    if asked:
        return _there(nodes, asked)
    if any(one.release != listed for one in nodes.values()):
        return _there(nodes, listed)
    first = Counter(one.earlier[0] for one in nodes.values() if one.earlier)
    if not first:
        return "", f"All nodes have {listed}, and none has kept an earlier environment. {_build(listed)}"
    if len(first) > 1:
        said = ", ".join(f"{release} on {count}" for release, count in first.most_common())
        return "", f"Nodes have kept several earlier environments ({said}). Say which: -e torch_version=RELEASE"
    return _there(nodes, next(iter(first)))


def _there(nodes: Mapping[str, Environments], release: str) -> tuple[str, str]:
    lacking = [name for name, one in nodes.items() if release not in (one.release, *one.earlier)]
    if not lacking:
        return release, ""
    verb = "has" if len(lacking) == 1 else "have"
    return "", f"{few(lacking)} {verb} not kept an environment with PyTorch {release}. {_build(release)}"


def _build(release: str) -> str:
    return f"Without rollback=true, -e torch_version={release} or another one builds it, in some minutes"
