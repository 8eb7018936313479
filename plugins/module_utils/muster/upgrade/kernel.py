"""Which security fixes of its kernel a node gets, whether it can be started with them, and how it goes back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..nvidia_driver.family import is_part
from ..verdict.commands import on_node, playbook, shell
from ..verdict.words import few
from .kernel_seen import flavour, image_of, newest
from .model import VersionChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..nvidia_driver.apt import AptSimulation
    from .kernel_seen import Kernels

# Those that lead to the newest of their kind carry no version of a kernel in their name.
_VERSIONED = re.compile(r"-\d+\.\d+\.\d")
_OF_A_KERNEL = re.compile(r"linux-[a-z].*?-(\d+\.\d+\.\d.*)")
_PREBUILT = re.compile(r"linux-modules-nvidia-.+?-(?=\d+\.\d+\.\d)")
MOST_SAID = 600  # characters of apt's
DKMS = "/updates/dkms/"
ROOM = 200_000_000  # bytes that a kernel and its initramfs take in /boot, and some


@dataclass(frozen=True)
class KernelFix:
    """What one node gets. words: packages as apt takes them. start: the kernel it is to run; reboot: whether it has to
    be started for that. before: the one that runs now. installs: what apt brings, name and version.

    stays: the kernels that are there afterwards beside that one, which it can be started with. back: the commands.
    """

    before: str = ""
    start: str = ""
    reboot: bool = False
    words: tuple[str, ...] = ()
    installs: Mapping[str, str] = field(default_factory=dict)
    stays: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    @property
    def changes(self) -> list[VersionChange]:
        """What becomes another one; nothing where it has all fixes and runs them."""
        if self.reboot:
            new = self.start if self.start != self.before else f"{self.start}, with fixes"
            return [VersionChange("kernel", self.before, new)]
        if self.words:
            return [
                VersionChange("kernel", self.before, f"{self.before}, other packages of it alone, without a restart")
            ]
        return []


def fix_of(shape: Mapping[str, Any]) -> KernelFix:
    """Back from what asdict made of it, which plugins hand on as JSON."""
    lists = {name: tuple(shape[name]) for name in ("words", "stays", "back", "refusals")}
    return KernelFix(**{**shape, **lists})


def leading(seen: Kernels) -> list[str]:
    """The installed packages that lead to the newest kernel of the flavour that runs, and to what goes with it."""
    found: list[str] = []
    while True:
        more = [
            name
            for name, package in seen.packages.items()
            if name.startswith("linux-") and name not in found and not _VERSIONED.search(name)
            if any(need in found or _kernel_of(need) == seen.flavour for need in package.depends)
        ]
        if not more:
            return sorted(found)
        found += more


def _kernel_of(package: str) -> str:
    """The flavour that a package is for which belongs to one kernel, as linux-headers-6.8.0-90-generic."""
    found = _OF_A_KERNEL.fullmatch(package)
    return flavour(found[1]) if found else ""


def wanted(seen: Kernels) -> list[str]:
    """What apt is asked for: each of those packages in its newest version of a security pocket, where that is newer."""
    words = []
    for name in leading(seen):
        order = list(seen.known.get(name, ()))
        there = seen.packages[name].version
        best = next(iter(seen.offered.get(name, ())), "")
        if best and (there not in order or order.index(best) < order.index(there)):
            words.append(f"{name}={best}")
    return words


def unfit(seen: Kernels) -> Iterator[str]:
    """Why nobody can bring this node fixes, before apt is asked."""
    if seen.running not in seen.bootable:
        there = f": there are {few(seen.bootable)}" if seen.bootable else ", where there is none, as in a container"
        yield f"the kernel that it runs, {seen.running}, is none of those in /boot{there}"
        return
    if not any(image_of(need) for name in leading(seen) for need in seen.packages[name].depends):
        sample = f"linux-image-{seen.flavour}"
        yield f"no package leads to its newest {seen.flavour or 'such'} kernel: on it, sudo apt-get install {sample}"
    if not seen.pocket:
        yield "its apt has no security pocket (as noble-security or bookworm-security), so nobody knows of any fixes"
    held = [name for name in leading(seen) if seen.packages[name].held]
    if held:
        how = shell("sudo apt-mark unhold {held}", held=held)
        yield f"{few(held)} on hold, for which somebody may have reasons. Where there are none, on it: {how}"


def started_with(seen: Kernels, answer: AptSimulation) -> str:
    """The kernel that the next start takes, once apt has done that."""
    brought = [release for name in answer.installs if flavour(release := image_of(name)) == seen.flavour]
    return newest(seen.newest, *brought)


def missing(seen: Kernels, answer: AptSimulation) -> list[str]:
    """Packages that apt has to bring beside, so that the new kernel has the driver's module as this one has."""
    start = started_with(seen, answer)
    kernel = seen.of(start)
    there = {*seen.packages, *answer.installs}
    words = []
    if _builds(seen) and not kernel.headers and f"linux-headers-{start}" not in there:
        words.append(f"linux-headers-{start}")
    prebuilt = next((name for name in seen.packages if _prebuilt_for(name, seen.running)), "")
    if prebuilt and not kernel.module.version:
        name = f"{prebuilt.removesuffix(seen.running)}{start}"
        words += [] if name in there else [name]
    return words


def _prebuilt_for(name: str, release: str) -> bool:
    found = _PREBUILT.match(name)
    return bool(found) and name[found.end() if found else 0 :] == release


def _builds(seen: Kernels) -> bool:
    """Whether modules of the kernel that runs were built here, which takes its headers."""
    now = seen.of(seen.running)
    return DKMS in now.module.path or ("dkms" in seen.packages and now.headers)


def decide(node: str, seen: Kernels, words: Sequence[str], answer: AptSimulation) -> KernelFix:
    """words: what apt was asked for in the end; answer: what it would do for that."""
    start = started_with(seen, answer)
    brought = any(image_of(name) == start for name in answer.installs)
    reboot = start != seen.running or brought or seen.replaced
    stays = tuple(release for release in (*seen.bootable,) if release != start)
    return KernelFix(
        before=seen.running,
        start=start,
        reboot=reboot,
        words=() if answer.errors else tuple(words),
        installs=dict(answer.installs),
        stays=stays,
        back=tuple(going_back(node, seen)) if start != seen.running else (),
        refusals=tuple(f"{node}: {why}" for why in _refusals(seen, words, answer)),
    )


def _refusals(seen: Kernels, words: Sequence[str], answer: AptSimulation) -> Iterator[str]:
    if answer.errors:
        lacks = [word for word in words if "=" not in word]
        what = (
            f"its driver needs {few(lacks)} for the new kernel, which is not to be had" if lacks else "apt cannot do it"
        )
        yield f"{what}. apt says: {'; '.join(answer.errors)[:MOST_SAID]}"
        return
    if answer.removes:
        yield f"apt would remove {few(answer.removes)}: see with apt-get --simulate install {' '.join(words)}"
    parts = [name for name in answer.installs if is_part(name) and not name.startswith("linux-")]
    if parts:
        how = playbook("playbooks/gpu_stack.yml")
        yield f"the new kernel needs other parts of its driver ({few(parts)}), which is brought first by: {how}"
    if any(image_of(name) for name in answer.installs) and seen.free is not None and seen.free < ROOM:
        free = f"{seen.free // 1_000_000} MB are free in /boot, and a kernel takes {ROOM // 1_000_000}"
        yield f"{free}: on it, sudo apt-get autoremove takes kernels away that are no longer needed"
    now, start = seen.of(seen.running).module, started_with(seen, answer)
    if now.path and not seen.of(start).module.version and not _builds(seen):
        prebuilt = any(_prebuilt_for(name, start) for name in (*seen.packages, *answer.installs))
        if not prebuilt:
            yield (
                f"the module of its driver ({now.path}) is neither built by dkms nor of a package, so {start} "
                "would have none: install the driver anew with dkms, or have Muster bring one (docs/gpu_driver.md)"
            )


def going_back(node: str, seen: Kernels) -> Iterator[str]:
    """What is typed to start it once more with the kernel that runs now."""
    entry = seen.menu.get(seen.running)
    if not entry:
        yield f"{node}: at its boot menu, choose {seen.running}"
        return
    yield on_node(node, "grub-reboot {entry}", entry=entry, become=True)
    yield on_node(node, "shutdown -r +1", become=True)


def by_hand(fix: KernelFix) -> str:
    install = f"{shell('sudo apt-get install {words}', words=fix.words)}, then " if fix.words else ""
    return f"it is the machine on which this runs, which no run starts anew. On it: {install}sudo systemctl reboot"


def unready(seen: Kernels, fix: KernelFix) -> str:
    """Why it is not started now, after the packages have come; nothing where it can be."""
    start = seen.newest
    if start != fix.start:
        return f"its newest kernel is {start} and not {fix.start}"
    new, now = seen.of(start), seen.of(seen.running)
    if now.initramfs and not new.initramfs:
        how = shell("sudo update-initramfs -c -k {start}", start=start)
        return f"its kernel {start} has no initramfs, without which it may not come up: on it, {how}"
    if now.module.version and new.module.version != now.module.version:
        has = f"is {new.module.version}" if new.module.version else "is missing"
        return f"of its kernel {start} the driver's module {has}, and that of {seen.running} is {now.module.version}"
    return ""


def wrong_after(seen: Kernels, fix: KernelFix, loaded: str) -> str:
    """What is wrong with how it came back. loaded: the driver's version that ran before."""
    if seen.running != fix.start:
        how = "what its boot loader takes says GRUB_DEFAULT in /etc/default/grub"
        return f"it was started anew, and runs {seen.running} and not {fix.start}: {how}"
    if loaded and seen.loaded != loaded:
        return f"it runs {fix.start}, and its driver is {seen.loaded or 'not loaded'}, which was {loaded} before"
    return ""
