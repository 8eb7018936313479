"""What a node says of its kernels, of who brings them, and of what apt has; as far as it can be used.

How a node is started once with an older kernel: what GRUB's menu calls it.
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
_NAME = re.compile(r"[\w.+~-]{1,100}")  # what is printed as a part of commands
_WORDS = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_IMAGE = re.compile(r"linux-image-(?:unsigned-)?(\d.*)")
# What is printed as a part of a command is nothing but a name.
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
    """What lies there of one kernel."""

    headers: bool = False
    initramfs: bool = False
    module: Module = field(default_factory=Module)


@dataclass(frozen=True)
class Kernels:
    """Of one node. bootable: kernels, the newest last. loaded: the version of the driver that runs.

    packages: those of kernels, of what is built for them, and of the driver. offered: the versions that a security
    pocket has of them, newest first, and known: all that apt knows of, the same way. pocket: whether there is one.
    runs: of the kernel that runs, which version of its package that is, or the end of it; empty where it does not say.
    machine: its id. free: bytes in /boot; None where nobody knows. menu: by kernel, what starts it once.
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
        """The newest kernel of the flavour that runs, which is the one that a start takes."""
        of_it = [release for release in self.bootable if flavour(release) == self.flavour]
        return of_it[-1] if of_it else ""

    @property
    def replaced(self) -> bool:
        """Whether the kernel that runs is another version of its package than is installed."""
        names = (f"linux-image-{self.running}", f"linux-image-unsigned-{self.running}")
        image = next((self.packages[name].version for name in names if name in self.packages), "")
        same = image.endswith(self.runs) if self.runs.startswith(".") else image == self.runs
        return bool(self.runs and image) and not same


class UselessError(Exception):
    """The answer is of no use."""


def flavour(release: str) -> str:
    """generic of 6.8.0-90-generic; nothing where a release says none."""
    found = _RELEASE.fullmatch(release)
    return found[1] if found else ""


def image_of(package: str) -> str:
    """The kernel that a package brings; nothing where it brings none."""
    found = _IMAGE.fullmatch(package)
    return found[1] if found else ""


def newest(*names: str) -> str:
    return max(names, key=natural)


def read(stack: DriverStackFacts, answer: Any) -> Kernels:
    """stack: its facts. answer: of the program kernel. Raises UselessError."""
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
    """What of it is known by a look alone. Raises UselessError."""
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
    """Name, version, what dpkg wants and has, and what it needs, apart by tabs: of what is installed."""
    found = {}
    for line in shown.splitlines():
        name, version, want, state, depends = [*line.split("\t"), "", "", "", ""][:5]
        if state == "installed" and _WORDS.fullmatch(name):
            needs = [part.split()[0].partition(":")[0] for part in re.split(r"[,|]", depends) if part.split()]
            found[name] = KernelPackage(version, want == "hold", tuple(needs))
    return found


def _runs(text: str) -> str:
    """What /proc/version says: Debian's version, as 6.1.140-1; of Ubuntu's what stands behind its last dot, as .91."""
    if found := re.search(r" Debian (\d\S*)", text):
        return found[1]
    found = re.search(r" #(\d\S*)-Ubuntu ", text)
    return f".{found[1]}" if found else ""


def _is_security(fields: Mapping[str, str]) -> bool:
    """Ubuntu's noble-security and noble-infra-security; Debian's stable-security, also by its code name."""
    suites = (fields.get("a", ""), fields.get("n", ""))
    return fields.get("l") == "Debian-Security" or any(suite.endswith("-security") for suite in suites)


def entry(menu: str, release: str) -> str:
    """What grub-reboot takes for this kernel, as submenu>entry; nothing where the menu has none.

    menu: the lines of grub.cfg that name an entry.
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
