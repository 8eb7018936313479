"""Read a node's report of its kernels, their packages and the versions known to apt.

The GRUB menu has the entry for one boot with an older kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

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
# Names are printed as a part of commands, so other characters do not match.
_ENTRY = re.compile(r"^(\s*)(submenu|menuentry) .*\$?menuentry_id_option '([\w.+~:-]+)'")


@dataclass(frozen=True)
class KernelPackage:
    version: str
    held: bool
    depends: tuple[str, ...]


@dataclass(frozen=True)
class Module:
    """The driver's module for one kernel. path: empty for none."""

    version: str = ""
    path: str = ""


@dataclass(frozen=True)
class InstalledKernel:
    """The installed files of one kernel."""

    headers: bool = False
    initramfs: bool = False
    module: Module = field(default_factory=Module)


@dataclass(frozen=True)
class Kernels:
    """The kernels of one node. bootable: kernels, the newest last. loaded: version of the loaded driver.

    packages: of kernels, their modules, and the driver. offered: versions in security pockets by package, newest first.
    known: all versions known to apt, in the same form. pocket: whether a security pocket exists. runs: package version
    of the running kernel, or its end; empty if unknown. machine: its machine ID. free: bytes in /boot; None if unknown.
    menu: by kernel, the GRUB entry that boots it once.
    """

    running: str
    bootable: tuple[str, ...] = ()
    kernels: Mapping[str, InstalledKernel] = field(default_factory=dict)
    loaded: str = ""
    packages: Mapping[str, KernelPackage] = field(default_factory=dict)
    offered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    known: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pocket: bool = False
    runs: str = ""
    machine: str = ""
    free: int | None = None
    menu: Mapping[str, str] = field(default_factory=dict)

    def of(self, release: str) -> InstalledKernel:
        return self.kernels.get(release, InstalledKernel())

    @property
    def flavour(self) -> str:
        return flavour(self.running)

    @property
    def newest(self) -> str:
        """The newest kernel of the running flavour, which is the default of a boot."""
        of_it = [release for release in self.bootable if flavour(release) == self.flavour]
        return of_it[-1] if of_it else ""

    @property
    def replaced(self) -> bool:
        """Whether the package of the running kernel was replaced by another version."""
        names = (f"linux-image-{self.running}", f"linux-image-unsigned-{self.running}")
        image = next((self.packages[name].version for name in names if name in self.packages), "")
        same = image.endswith(self.runs) if self.runs.startswith(".") else image == self.runs
        return bool(self.runs and image) and not same


class UselessError(Exception):
    """A node's report is invalid."""


def flavour(release: str) -> str:
    """Return the flavour of a kernel release: generic of 6.8.0-90-generic; "" for none."""
    found = _RELEASE.fullmatch(release)
    return found[1] if found else ""


def image_of(package: str) -> str:
    """Return the kernel release in a package; "" if it contains no kernel."""
    found = _IMAGE.fullmatch(package)
    return found[1] if found else ""


def newest(*names: str) -> str:
    return max(names, key=natural)


def read(stack: DriverStackFacts, answer: Any) -> Kernels:
    """stack: facts of the node. answer: of the program kernel. Raise UselessError if it is invalid."""
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
    """Return the kernels known from the inspection. Raise UselessError if it is invalid."""
    if not _NAME.fullmatch(stack["running"]):
        raise UselessError
    return Kernels(
        running=stack["running"],
        bootable=tuple(release for release in stack["bootable"] if _NAME.fullmatch(release)),
        kernels={name: _kernel(seen) for name, seen in stack["kernels"].items()},
        loaded=stack["loaded"],
    )


def _kernel(seen: KernelFacts) -> InstalledKernel:
    module = Module(seen["module"], seen["module_path"])
    return InstalledKernel(seen["headers"], seen["has_initramfs"], module)


def _packages(shown: str) -> dict[str, KernelPackage]:
    """Parse installed packages from lines of name, version, selection, state and dependencies, separated by tabs."""
    found = {}
    for line in shown.splitlines():
        name, version, want, state, depends = [*line.split("\t"), "", "", "", ""][:5]
        if state == "installed" and _WORDS.fullmatch(name):
            needs = [part.split()[0].partition(":")[0] for part in re.split(r"[,|]", depends) if part.split()]
            found[name] = KernelPackage(version, want == "hold", tuple(needs))
    return found


def _runs(text: str) -> str:
    """Return the version in /proc/version: on Debian, such as 6.1.140-1; on Ubuntu, the part from the last dot: .91."""
    if found := re.search(r" Debian (\d\S*)", text):
        return found[1]
    found = re.search(r" #(\d\S*)-Ubuntu ", text)
    return f".{found[1]}" if found else ""


def _is_security(fields: Mapping[str, str]) -> bool:
    """Return whether a pocket is for security: noble-security, noble-infra-security; on Debian, stable-security."""
    suites = (fields.get("a", ""), fields.get("n", ""))
    return fields.get("l") == "Debian-Security" or any(suite.endswith("-security") for suite in suites)


def entry(menu: str, release: str) -> str:
    """Return the argument of grub-reboot for a kernel, as submenu>entry; "" if the menu has none.

    menu: lines of grub.cfg with an entry.
    """
    submenu = ""
    for line in menu.splitlines():
        found = _ENTRY.match(line)
        if not found:
            continue
        indent, kind, name = found.groups()
        if kind == "submenu":
            submenu = name
        elif name.startswith(f"gnulinux-{release}-advanced-"):
            return f"{submenu}>{name}" if submenu and indent else name
    return ""
