"""Plan the CUDA toolkits of a node from those that are installed and how they were installed. Pure functions.

A toolkit is a folder /usr/local/cuda-X.Y, however it was installed. Its version is the one that its nvcc reports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = "/usr/local/cuda"
ALTERNATIVE = "/etc/alternatives/cuda"
# The packages of Ubuntu and Debian install nvcc and the headers into /usr, where every compiler finds them first.
REFUSED = {
    "nvidia-cuda-toolkit": (
        "the distribution's CUDA toolkit is installed in /usr, where compilers find it before any other toolkit. "
        "Remove it: sudo apt remove nvidia-cuda-toolkit; or leave cuda_toolkit_versions empty to keep it"
    )
}


@dataclass(frozen=True)
class ToolkitFolder:
    """An installed toolkit.

    owned: whether it was installed from packages. nvcc: version output of nvcc; why: the error if there is no output.
    """

    owned: bool = True
    nvcc: str = ""
    why: str = ""

    @property
    def release(self) -> str:
        found = re.search(r"release (\d+\.\d+)", self.nvcc)
        return found[1] if found else ""


@dataclass(frozen=True)
class ToolkitsState:
    """The toolkits on the node.

    folders: toolkits by version. link: direct target of /usr/local/cuda. target: its resolved path. Both are "" if the
    link does not exist.
    """

    folders: Mapping[str, ToolkitFolder] = field(default_factory=dict)
    link: str = ""
    target: str = ""
    folder_instead: bool = False


@dataclass
class ToolkitsPlan:
    """packages: packages to install. default: new target of /usr/local/cuda; "" for no change."""

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
            plan.differences.append(f"the CUDA toolkit {version} is not installed")
        elif folder.release != version:
            sentence = f"{ROOT}-{version}/bin/nvcc {_said(folder, version)}"
            if by_hand:
                fix = f"Reinstall the toolkit, or remove {ROOT}-{version}"
                plan.problems.append(f"{sentence}; the toolkit was not installed from a package. {fix}")
            else:
                fix = f"Reinstall the package: sudo apt install --reinstall cuda-nvcc-{version.replace('.', '-')}"
                plan.differences.append(f"{sentence}. {fix}")
    plan.notes += _by_hand(versions, seen)
    _default(plan, versions, default, seen)
    return plan


def package(version: str) -> str:
    """Return the package of the toolkit.

    The packages cuda and cuda-13-0 are not used, because they also install a driver.
    """
    return f"cuda-toolkit-{version.replace('.', '-')}"


def newest(versions: Sequence[str]) -> str:
    return max(versions, key=lambda version: [int(part) for part in version.split(".")], default="")


def _said(folder: ToolkitFolder, version: str) -> str:
    instead = f"reports release {folder.release} instead of {version}"
    return instead if folder.release else f"failed ({folder.why or 'its output contains no release'})"


def _by_hand(versions: Sequence[str], seen: ToolkitsState) -> Iterator[str]:
    for version, folder in sorted(seen.folders.items()):
        if not folder.owned:
            end = "is used unchanged" if version in versions else "is left unchanged"
            yield f"{ROOT}-{version} was installed without a package (usually from a runfile) and {end}"


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
            f"{ROOT} is {what} that was created manually. Muster changes only a link of update-alternatives. "
            f"Run {'sudo mv ' + ROOT + ' ' + ROOT + '.old' if seen.folder_instead else 'sudo rm ' + ROOT}, "
            "or leave cuda_toolkit_default empty"
        )
    else:
        plan.default = wanted
        plan.differences.append(f"{ROOT} points to {seen.target or 'nothing'} instead of {wanted}")
