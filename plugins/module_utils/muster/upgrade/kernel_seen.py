"""Read a node's report about its kernels, their packages and the versions that apt knows.

The GRUB menu contains the entry that boots an older kernel once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..inspect.boot_menu import entry
from ..inspect.stack import natural
from ..packages.repositories import releases, versions
from ..verdict.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..nvidia_driver.facts import DriverStackFacts, KernelFacts

MOST_TEXT = 2_000_000
# 6.8.0-90-generic, 6.1.0-30-cloud-amd64, 6.12.48+deb13-amd64
_RELEASE = re.compile(r"\d[\d.]*(?:[~+][\w.]+)*(?:-\d+(?:\.\w+)*)?-(.+)")
_NAME = re.compile(r"[\w.+~-]{1,100}")  # printed as a part of commands
_WORDS = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_IMAGE = re.compile(r"linux-image-(?:unsigned-)?(\d.*)")


@dataclass(frozen=True)
class KernelPackage:
    version: str
    held: bool
    depends: tuple[str, ...]


@dataclass(frozen=True)
class Kernels:
    """The kernels of one node. bootable: bootable kernels, the newest last. loaded: version of the loaded driver.

    packages: installed packages of kernels, their modules and the driver. offered: versions in security pockets by
    package, newest first. known: all versions that apt knows, in the same form. pocket: whether a security pocket
    exists. runs: package version of the running kernel, or the last part of this version; "" if unknown. machine:
    machine ID of the node. free: free bytes in /boot; None if unknown. menu: for each kernel, the GRUB entry that boots
    it once.
    """

    running: str
    bootable: tuple[str, ...] = ()
    kernels: Mapping[str, KernelFacts] = field(default_factory=dict)
    loaded: str = ""
    packages: Mapping[str, KernelPackage] = field(default_factory=dict)
    offered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    known: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pocket: bool = False
    runs: str = ""
    machine: str = ""
    free: int | None = None
    menu: Mapping[str, str] = field(default_factory=dict)

    @property
    def flavour(self) -> str:
        return flavour(self.running)

    @property
    def newest(self) -> str:
        """The newest kernel of the running flavour, which is booted by default."""
        of_it = [release for release in self.bootable if flavour(release) == self.flavour]
        return of_it[-1] if of_it else ""

    @property
    def replaced(self) -> bool:
        """Whether another version of the running kernel's package is now installed."""
        names = (f"linux-image-{self.running}", f"linux-image-unsigned-{self.running}")
        image = next((self.packages[name].version for name in names if name in self.packages), "")
        same = image.endswith(self.runs) if self.runs.startswith(".") else image == self.runs
        return bool(self.runs and image) and not same


class UselessError(Exception):
    """The report of a node is invalid."""


def flavour(release: str) -> str:
    """Return the flavour of a kernel release, such as "generic" for 6.8.0-90-generic; "" if there is none."""
    found = _RELEASE.fullmatch(release)
    return found[1] if found else ""


def image_of(package: str) -> str:
    """Return the release of the kernel that a package contains; "" if it contains no kernel."""
    found = _IMAGE.fullmatch(package)
    return found[1] if found else ""


def newest(*names: str) -> str:
    return max(names, key=natural)


def read(stack: DriverStackFacts, answer: Any) -> Kernels:
    """Return the kernels of a node.

    stack: facts of the node. answer: output of the program kernel. Raises UselessError if the answer is invalid.
    """
    try:
        texts = {
            name: printable(str(answer[name])[:MOST_TEXT])
            for name in ("packages", "files", "policy", "menu", "machine", "version")
        }
        free = answer["boot_free"]
    except (KeyError, TypeError):
        raise UselessError from None
    rows = versions(texts["policy"])
    security = {place for place, fields in releases(texts["files"]).items() if _is_security(fields)}
    return replace(
        read_stack(stack),
        packages=_packages(texts["packages"]),
        offered={
            name: there
            for name, those in rows.items()
            if (there := tuple(version for version, places in those.items() if security & set(places)))
        },
        known={name: tuple(those) for name, those in rows.items()},
        pocket=bool(security),
        runs=_runs(texts["version"]),
        machine=texts["machine"].strip(),
        free=free if isinstance(free, int) else None,
        menu={release: one for release in stack["bootable"] if (one := entry(texts["menu"], release))},
    )


def read_stack(stack: DriverStackFacts) -> Kernels:
    """Return the kernels as known from the inspection. Raises UselessError if the inspection's data is invalid."""
    if not _NAME.fullmatch(stack["running"]):
        raise UselessError
    return Kernels(
        running=stack["running"],
        bootable=tuple(release for release in stack["bootable"] if _NAME.fullmatch(release)),
        kernels=stack["kernels"],
        loaded=stack["loaded"],
    )


def _packages(shown: str) -> dict[str, KernelPackage]:
    """Parse installed packages from lines with name, version, selection, state and dependencies, separated by tabs."""
    found = {}
    for line in shown.splitlines():
        name, version, want, state, depends = [*line.split("\t"), "", "", "", ""][:5]
        if state == "installed" and _WORDS.fullmatch(name):
            needs = [part.split()[0].partition(":")[0] for part in re.split(r"[,|]", depends) if part.split()]
            found[name] = KernelPackage(version, want == "hold", tuple(needs))
    return found


def _runs(text: str) -> str:
    """Return the version in /proc/version: on Debian a full version such as 6.1.140-1, on Ubuntu only the part from the
    last dot, such as .91.
    """
    if found := re.search(r" Debian (\d\S*)", text):
        return found[1]
    found = re.search(r" #(\d\S*)-Ubuntu ", text)
    return f".{found[1]}" if found else ""


def _is_security(fields: Mapping[str, str]) -> bool:
    """Return whether a pocket contains security updates: noble-security or noble-infra-security, on Debian
    stable-security.
    """
    suites = (fields.get("a", ""), fields.get("n", ""))
    return fields.get("l") == "Debian-Security" or any(suite.endswith("-security") for suite in suites)
