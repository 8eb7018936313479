"""Plan the kernel security fixes of a node, check that the node can boot with them, and plan the rollback."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..nvidia_driver.family import is_part
from ..nvidia_driver.next_boot import DKMS
from ..verdict.commands import on_node, playbook, shell
from ..verdict.words import few
from .kernel_seen import flavour, image_of, newest
from .model import VersionChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..nvidia_driver.apt import AptSimulation
    from ..nvidia_driver.next_boot import NextBoot
    from .kernel_seen import Kernels

# Meta packages, which depend on the newest kernel, have no kernel version in their name.
_VERSIONED = re.compile(r"-\d+\.\d+\.\d")
_OF_A_KERNEL = re.compile(r"linux-[a-z].*?-(\d+\.\d+\.\d.*)")
_PREBUILT = re.compile(r"linux-modules-nvidia-.+?-(?=\d+\.\d+\.\d)")
MOST_SAID = 600  # characters of apt's messages
ROOM = 200_000_000  # bytes in /boot for a kernel and its initramfs, with a margin


@dataclass(frozen=True)
class KernelFix:
    """The fixes of one node. words: package arguments for apt. start: the kernel to boot. reboot: whether a reboot is
    required. before: the running kernel. installs: versions of the packages that apt installs, by name.

    stays: the other kernels that can be booted afterwards. back: the rollback commands.
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
        """The changes; empty if all fixes are already in use on the node."""
        if self.reboot:
            new = self.start if self.start != self.before else f"{self.start}, with fixes"
            return [VersionChange("kernel", self.before, new)]
        if self.words:
            return [VersionChange("kernel", self.before, f"{self.before}, with updated packages, without a reboot")]
        return []


def fix_of(shape: Mapping[str, Any]) -> KernelFix:
    """Create a KernelFix from a mapping created by asdict, which plugins pass as JSON."""
    lists = {name: tuple(shape[name]) for name in ("words", "stays", "back", "refusals")}
    return KernelFix(**{**shape, **lists})


def leading(seen: Kernels) -> list[str]:
    """Return the installed meta packages of the running kernel's flavour, including those for its
    modules and headers.
    """
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
    """Return the flavour of a package that belongs to a single kernel, such as linux-headers-6.8.0-90-generic."""
    found = _OF_A_KERNEL.fullmatch(package)
    return flavour(found[1]) if found else ""


def wanted(seen: Kernels) -> list[str]:
    """Return the package arguments for apt: each meta package in the newest version of a security pocket, if that
    version is newer.
    """
    words = []
    for name in leading(seen):
        order = list(seen.known.get(name, ()))
        there = seen.packages[name].version
        best = next(iter(seen.offered.get(name, ())), "")
        if best and (there not in order or order.index(best) < order.index(there)):
            words.append(f"{name}={best}")
    return words


def unfit(seen: Kernels) -> Iterator[str]:
    """Yield reasons why fixes cannot be installed on this node. These reasons are known before apt is simulated."""
    if seen.running not in seen.bootable:
        there = f" ({few(seen.bootable)})" if seen.bootable else ", which has no kernels (as in a container)"
        yield f"the running kernel {seen.running} is not in /boot{there}"
        return
    if not any(image_of(need) for name in leading(seen) for need in seen.packages[name].depends):
        sample = f"linux-image-{seen.flavour}"
        what = f"the newest {seen.flavour} kernel" if seen.flavour else "the newest kernel"
        yield f"no meta package for {what} is installed. Run on the node: sudo apt-get install {sample}"
    if not seen.pocket:
        yield "no security pocket (such as noble-security) is configured in apt, so available fixes are unknown"
    held = [name for name in leading(seen) if seen.packages[name].held]
    if held:
        how = shell("sudo apt-mark unhold {held}", held=held)
        yield f"{few(held)} on hold, possibly on purpose. If not, run on the node: {how}"


def started_with(seen: Kernels, answer: AptSimulation) -> str:
    """Return the kernel that will be booted next after apt has installed the packages."""
    brought = [release for name in answer.installs if flavour(release := image_of(name)) == seen.flavour]
    return newest(seen.newest, *brought)


def missing(seen: Kernels, answer: AptSimulation) -> list[str]:
    """Return the additional packages that the driver's module needs for the new kernel."""
    start = started_with(seen, answer)
    kernel = seen.kernels.get(start)
    there = {*seen.packages, *answer.installs}
    words = []
    if _builds(seen) and not (kernel and kernel["headers"]) and f"linux-headers-{start}" not in there:
        words.append(f"linux-headers-{start}")
    prebuilt = next((name for name in seen.packages if _prebuilt_for(name, seen.running)), "")
    if prebuilt and not (kernel and kernel["module"]):
        name = f"{prebuilt.removesuffix(seen.running)}{start}"
        words += [] if name in there else [name]
    return words


def _prebuilt_for(name: str, release: str) -> bool:
    found = _PREBUILT.match(name)
    return bool(found) and name[found.end() if found else 0 :] == release


def _builds(seen: Kernels) -> bool:
    """Return whether modules of the running kernel were built on the node. If so, the new kernel needs its headers."""
    now = seen.kernels.get(seen.running)
    return now is not None and (DKMS in now["module_path"] or ("dkms" in seen.packages and now["headers"]))


def decide(node: str, seen: Kernels, words: Sequence[str], answer: AptSimulation) -> KernelFix:
    """Return the fixes of a node. words: the final package arguments. answer: what apt would do."""
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
            f"the driver requires {few(lacks)} for the new kernel, which apt cannot install"
            if lacks
            else "apt cannot install the fixes"
        )
        yield f"{what}. Output of apt: {'; '.join(answer.errors)[:MOST_SAID]}"
        return
    if answer.removes:
        yield f"apt would remove {few(answer.removes)}. To see why: apt-get --simulate install {' '.join(words)}"
    parts = [name for name in answer.installs if is_part(name) and not name.startswith("linux-")]
    if parts:
        how = playbook("playbooks/gpu_stack.yml")
        yield f"the new kernel requires other driver packages ({few(parts)}). Install them first: {how}"
    if any(image_of(name) for name in answer.installs) and seen.free is not None and seen.free < ROOM:
        free = f"/boot has {seen.free // 1_000_000} MB free, but a kernel requires {ROOM // 1_000_000} MB"
        yield f"{free}. To remove old kernels, run on the node: sudo apt-get autoremove"
    start = started_with(seen, answer)
    now, new = seen.kernels.get(seen.running), seen.kernels.get(start)
    if now and now["module_path"] and not (new and new["module"]) and not _builds(seen):
        prebuilt = any(_prebuilt_for(name, start) for name in (*seen.packages, *answer.installs))
        if not prebuilt:
            yield (
                f"the driver's module ({now['module_path']}) is neither built by dkms nor from a package, so {start} "
                "would have no module: reinstall the driver with dkms or with Muster (docs/gpu_driver.md)"
            )


def going_back(node: str, seen: Kernels) -> Iterator[str]:
    """Yield the commands that make the node boot the running kernel again."""
    entry = seen.menu.get(seen.running)
    if not entry:
        yield f"{node}: choose {seen.running} in the boot menu"
        return
    yield on_node(node, "grub-reboot {entry}", entry=entry, become=True)
    yield on_node(node, "shutdown -r +1", become=True)


def by_hand(fix: KernelFix) -> str:
    install = f"{shell('sudo apt-get install {words}', words=fix.words)}, then " if fix.words else ""
    return f"Muster does not reboot the controller. Run on it: {install}sudo systemctl reboot"


def unready(seen: Kernels, fix: KernelFix, boot: NextBoot) -> str:
    """Return why the node must not be rebooted after the installation; "" if it can be rebooted."""
    if seen.newest != fix.start:
        return f"the newest kernel is {seen.newest} instead of {fix.start}"
    if boot.kernel != fix.start and not boot.assumed:
        return f"the boot menu starts {boot.kernel} instead of {fix.start}: check GRUB_DEFAULT in /etc/default/grub"
    return boot.against_reboot


def wrong_after(seen: Kernels, fix: KernelFix, loaded: str) -> str:
    """Return what is wrong after the reboot; "" if nothing is.

    loaded: version of the driver that was loaded before the reboot.
    """
    if seen.running != fix.start:
        how = "check GRUB_DEFAULT in /etc/default/grub"
        return f"the node was rebooted, but runs {seen.running} instead of {fix.start}: {how}"
    if loaded and seen.loaded != loaded:
        return f"the node runs {fix.start}, but the driver is {seen.loaded or 'not loaded'} (before: {loaded})"
    return ""
