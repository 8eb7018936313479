"""Decide whether the NVIDIA driver will work after the next boot: kernel, module, signature and initramfs.

A reboot is refused unless the module exists for exactly the kernel that will be booted. The findings warn before
anything reboots the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..verdict.check import Check
from ..verdict.commands import playbook, shell
from ..verdict.finding import evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..verdict.check import Said
    from .facts import BootFacts, KernelFacts

MODPROBE = "/etc/modprobe.d/muster-nvidia.conf"
DKMS = "/dkms/"

NEXT_BOOT = Check(
    "sw.next_boot",
    seen="stand-in",
    reads="GRUB's menu and environment, and for the kernel that it boots next: the NVIDIA module (modinfo), its"
    " signature, Secure Boot, and the initramfs",
    fires="the driver would not work after the next boot (warn): no module for exactly this kernel, a module of another"
    " version or with a rejected signature, or no current initramfs. unknown: the module could not be checked",
    fix="Do not reboot the node. Run the step gpu_stack, which repairs the driver, with",
    command=playbook("playbooks/gpu_stack.yml"),
)


@dataclass(frozen=True)
class NextBoot:
    """kernel: the kernel of the next boot. assumed: why the boot menu does not name it; it is then the newest kernel.

    problems: reasons why the driver would not work. unknown: why it could not be checked. fix: a command for the node;
    "" if only the step gpu_stack helps. skipped: why nothing was checked.
    """

    kernel: str = ""
    assumed: str = ""
    problems: tuple[str, ...] = ()
    unknown: str = ""
    fix: str = ""
    skipped: str = ""

    @property
    def sentence(self) -> str:
        """The problems, or what is unknown; "" if the driver will work."""
        unknown = self.unknown and f"whether the driver works on it is unknown: {self.unknown}"
        said = "; ".join(self.problems) or unknown
        starts = "probably starts" if self.assumed else "starts"
        return said and f"the next boot {starts} the kernel {self.kernel}, and {said}"

    @property
    def against_reboot(self) -> str:
        """Why the node must not be rebooted; "" if it can be."""
        return f"{self.sentence}. Run on the node: {self.fix}" if self.fix else self.sentence


def next_boot(
    seen: BootFacts, installed: str = "", secure_boot: bool | None = None, key_enrolled: bool | None = None
) -> NextBoot:
    """Return the decision. installed: version of the driver's libraries; "" if unknown. key_enrolled: whether the
    firmware trusts the signing key of dkms."""
    if not seen["bootable"]:
        return NextBoot(skipped="the node has no kernels in /boot (as in a container)")
    name = seen["boots"] or seen["bootable"][-1]
    kernel = seen["kernels"].get(name)
    if kernel is None or name not in seen["bootable"]:
        return NextBoot(name, problems=(f"{name} is not in /boot and /lib/modules",), fix="sudo update-grub")
    running = seen["kernels"].get(seen["running"])
    wanted = installed or (running["module"] if running else "")
    problems, unknown, fix = [], "", ""
    if not (wanted or seen["loaded"]):
        pass  # no driver is in use
    elif kernel["module_why"]:
        unknown = kernel["module_why"]
    elif not kernel["module"]:
        built = not (running and running["module"]) or DKMS in running["module_path"]
        lacks = " and no headers to build one" if built and not kernel["headers"] else ""
        problems.append(f"it has no module of driver {wanted or seen['loaded']}{lacks}")
        how = "sudo apt-get install linux-headers-{name}" if lacks else "sudo dkms autoinstall -k {name}"
        fix = shell(how, name=name) if built else ""
    elif kernel["built_for"] not in ("", name):
        problems.append(f"its driver module was built for {kernel['built_for']}")
    elif wanted and kernel["module"] != wanted:
        has = "is installed" if installed else f"belongs to {seen['running']}"
        problems.append(f"its driver module is {kernel['module']}, but {wanted} {has}")
    problems += _rejected(kernel, running, seen["loaded"], secure_boot, key_enrolled)
    if running and running["has_initramfs"] and not kernel["has_initramfs"]:
        problems.append("it has no initramfs and might not boot")
        fix = fix or shell("sudo update-initramfs -c -k {name}", name=name)
    elif kernel["initramfs_old"]:
        problems.append(f"its initramfs is older than {MODPROBE}, so nouveau might bind the GPUs")
        fix = fix or shell("sudo update-initramfs -u -k {name}", name=name)
    return NextBoot(name, seen["boots_why"], tuple(problems), unknown, fix)


def _rejected(
    kernel: KernelFacts, running: KernelFacts | None, loaded: str, secure_boot: bool | None, key_enrolled: bool | None
) -> Iterator[str]:
    """Yield why Secure Boot rejects the module. A module that is loaded now was accepted, and so is its signer."""
    accepted = running["signer"] if running and running["module"] == loaded else None
    if not (secure_boot and kernel["module"]) or (kernel is running and accepted is not None):
        return
    if not kernel["signer"]:
        yield "its driver module is not signed, so Secure Boot rejects it (docs/gpu_driver.md)"
    elif DKMS in kernel["module_path"] and key_enrolled is False and kernel["signer"] != accepted:
        yield "Secure Boot rejects its driver module: the signing key of dkms is not enrolled (docs/gpu_driver.md)"


def findings(node: str, boot: NextBoot) -> Iterator[Said]:
    """Yield the finding about one node, or why nothing was checked."""
    if boot.skipped:
        yield NEXT_BOOT.skip(boot.skipped, node)
    elif boot.problems:
        fix = ("Do not reboot the node. Repair the driver on it with", boot.fix) if boot.fix else (None, "")
        proof = evidence("GRUB's menu", boot.assumed or boot.kernel)
        yield NEXT_BOOT.warn(node, boot.sentence, *fix, observed=boot.kernel, evidence=proof)
    elif boot.unknown:
        yield NEXT_BOOT.unknown(node, boot.sentence)
