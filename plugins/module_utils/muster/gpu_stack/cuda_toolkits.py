"""Which CUDA toolkits a node has, whose they are, and which are still to be installed. Pure.

A toolkit is what lies below /usr/local/cuda-X.Y, whoever put it there, and is judged by what its compiler says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = "/usr/local/cuda"
ALTERNATIVE = "/etc/alternatives/cuda"
# Those of Ubuntu and Debian put nvcc and the headers into /usr, where every compiler finds them first.
REFUSED = {
    "nvidia-cuda-toolkit": (
        "it is the distribution's toolkit, whose compiler and headers lie in /usr and are found before any other. "
        "Remove it: sudo apt remove nvidia-cuda-toolkit; or keep it, and leave cuda_toolkit_versions empty"
    )
}


@dataclass(frozen=True)
class ToolkitFolder:
    """A toolkit. owned: whether packages brought it. nvcc: what its compiler says of itself; why: why nothing."""

    owned: bool = True
    nvcc: str = ""
    why: str = ""

    @property
    def release(self) -> str:
        found = re.search(r"release (\d+\.\d+)", self.nvcc)
        return found[1] if found else ""


@dataclass(frozen=True)
class ToolkitsState:
    """The node. folders: by version. link: where /usr/local/cuda leads at first; target: in the end. Empty for none."""

    folders: Mapping[str, ToolkitFolder] = field(default_factory=dict)
    link: str = ""
    target: str = ""
    folder_instead: bool = False


@dataclass
class ToolkitsPlan:
    """packages: those to have. default: where /usr/local/cuda is to lead; empty where it stays."""

    packages: list[str] = field(default_factory=list)
    default: str = ""
    differences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def make_plan(versions: Sequence[str], default: str, seen: ToolkitsState, *, verifies: bool = False) -> ToolkitsPlan:
    plan = ToolkitsPlan()
    for version in versions:
        folder = seen.folders.get(version)
        by_hand = folder is not None and not folder.owned
        if not by_hand and not verifies:
            plan.packages.append(package(version))
        if folder is None:
            plan.differences.append(f"it has no CUDA toolkit {version}")
        elif folder.release != version:
            sentence = f"{ROOT}-{version}/bin/nvcc {_said(folder)}, and not release {version}"
            if by_hand:
                plan.problems.append(f"{sentence}; no package brought it. Install it anew, or remove {ROOT}-{version}")
            else:
                fix = f"Bring it back: sudo apt install --reinstall cuda-nvcc-{version.replace('.', '-')}"
                plan.differences.append(f"{sentence}. {fix}")
    plan.notes += _by_hand(versions, seen)
    _default(plan, versions, default, seen)
    return plan


def package(version: str) -> str:
    """Return the package of the toolkit alone. cuda and cuda-13-0 would bring a driver."""
    return f"cuda-toolkit-{version.replace('.', '-')}"


def newest(versions: Sequence[str]) -> str:
    return max(versions, key=lambda version: [int(part) for part in version.split(".")], default="")


def _said(folder: ToolkitFolder) -> str:
    return f"says release {folder.release}" if folder.release else f"says nothing ({folder.why or 'no release'})"


def _by_hand(versions: Sequence[str], seen: ToolkitsState) -> Iterator[str]:
    for version, folder in sorted(seen.folders.items()):
        if not folder.owned:
            end = "is taken as it is" if version in versions else "is left alone"
            yield f"{ROOT}-{version}, which no package brought (a runfile, as a rule), {end}"


def _default(plan: ToolkitsPlan, versions: Sequence[str], default: str, seen: ToolkitsState) -> None:
    if not default:
        return
    wanted = f"{ROOT}-{default}"
    if default not in versions:
        plan.problems.append(f"cuda_toolkit_default is {default}, which is not in cuda_toolkit_versions")
    elif seen.target == wanted:
        return
    elif seen.folder_instead or (seen.link and seen.link != ALTERNATIVE):
        what = "a folder" if seen.folder_instead else f"a link to {seen.link}"
        plan.problems.append(
            f"{ROOT} is {what} that somebody made by hand, and not one of update-alternatives: it stays. "
            f"Take it away ({'sudo mv ' + ROOT + ' ' + ROOT + '.old' if seen.folder_instead else 'sudo rm ' + ROOT}), "
            "or leave cuda_toolkit_default empty"
        )
    else:
        plan.default = wanted
        plan.differences.append(f"{ROOT} leads to {seen.target or 'nothing'} and not to {wanted}")
