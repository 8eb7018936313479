"""Check whether the driver works: the loaded version equals the installed one, the GPUs respond, persistence is on and
the units run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import persistence
from .family import upstream
from .model import NOT_OURS

if TYPE_CHECKING:
    from .facts import DriverHolder, UnitFacts
    from .model import DriverPlan, DriverRequest, DriverState

FABRIC_UNIT = "nvidia-fabricmanager"
# Kernel packages in /run/reboot-required.pkgs, written by unattended-upgrades and by the packages
KERNEL_PACKAGES = ("linux-", "kernel-")
IMAGE = re.compile(r"linux-image-\d")  # the kernel of one release, which may have been removed since
# States of units that are started at boot or by another unit
STARTED = ("enabled", "static", "indirect", "generated")
NOT_THERE = "is not there"
# The unit of Ubuntu runs with --no-persistence-mode, so starting it changes nothing.
BY_HAND = ": run sudo nvidia-smi -pm 1 (effective until the next boot)"


def judge_driver(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    """Add the differences that a reboot or a restart of units fixes, and those that Muster cannot fix."""
    if not seen.installed:
        if not request.driver:
            plan.differs("broken", "no driver is installed")
        else:
            _reboots(plan, seen)
        return
    # Where Muster changes the driver, the plan repairs the module or refuses the reboot.
    if not request.driver and seen.next_boot.problems:
        plan.remarks.append(seen.next_boot.against_reboot)
    _reboots(plan, seen)
    if plan.of_kind("boot"):
        _enable(plan, request, seen)
        return
    _answers(plan, seen)
    _persistence(plan, request, seen)
    _fabric(plan, request, seen)


def reboot_reasons(seen: DriverState) -> list[str]:
    """Return why the driver requires a reboot."""
    reasons = []
    installed, loaded = seen.installed, seen.loaded
    if installed and loaded != installed:
        runs = f"the kernel has loaded the driver {loaded}" if loaded else "the kernel has not loaded the driver"
        reasons.append(f"{runs}, but {installed} is installed")
    for driver in NOT_OURS:
        slots = [device["slot"] for device in seen.gpus["devices"] if device["driver"] == driver]
        if slots:
            reasons.append(f"{driver} controls {_gpus(len(slots))} ({', '.join(slots)})")
    return reasons


def due_reasons(seen: DriverState) -> list[str]:
    """Return the reasons for a reboot that concern the kernel but not the driver."""
    stack = seen.stack
    reasons = []
    there = {f"linux-image-{release}" for release in stack["bootable"]}
    kernels = [name for name in stack["reboot_required_by"] if name.startswith(KERNEL_PACKAGES)]
    by = [name for name in kernels if name in there or not there or not IMAGE.match(name)]
    if stack["reboot_required"] and (by or not stack["reboot_required_by"]):
        reasons.append(f"/run/reboot-required exists{', because of ' + ', '.join(by) if by else ''}")
    newest = stack["bootable"][-1] if stack["bootable"] else stack["running"]
    # If the system was booted after the installation, the running kernel was chosen on purpose.
    if newest != stack["running"] and stack["kernels"][newest]["since_boot"]:
        reasons.append(f"the newest kernel is {newest}, but {stack['running']} is running")
    return reasons


def busy(seen: DriverState) -> str:
    """Describe the processes and launches that use a GPU; "" if there are none."""
    holders = [_holder(each) for each in seen.stack["holders"]]
    launches = [f"the launch {unit}" for unit in seen.stack["launches"]]
    who = [*holders, *launches]
    return f"a GPU is in use by {', '.join(who)}" if who else ""


def _holder(holder: DriverHolder) -> str:
    age = f", for {_duration(holder['age'])}" if holder["age"] is not None else ""
    return f"{holder['name']} (pid {holder['pid']}, user {holder['owner']}{age})"


def _duration(seconds: int) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"


def _gpus(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


def _reboots(plan: DriverPlan, seen: DriverState) -> None:
    for reason in reboot_reasons(seen):
        plan.differs("boot", f"{reason}{_evidence(seen)}", "reboot", "needed", "done")
        plan.reboot.append(reason)
    plan.due = due_reasons(seen)


def _evidence(seen: DriverState) -> str:
    """Return the messages of the kernel and of dkms about an installed driver that is not loaded."""
    evidence = seen.stack["evidence"]
    parts = []
    if evidence["kernel_log"] and not seen.loaded:
        parts.append(f"kernel log: {' | '.join(evidence['kernel_log'].splitlines())}")
    if evidence["dkms"].strip() and not seen.loaded:
        parts.append(f"dkms: {' | '.join(evidence['dkms'].split(chr(10))).strip(' |')}")
    return f" ({'; '.join(parts)})" if parts else ""


def _broken_later(plan: DriverPlan, request: DriverRequest, said: str) -> None:
    """Add a problem that does not affect the driver now. If a working driver is kept, the problem is only a remark."""
    if request.kept:
        plan.remarks.append(said)
    else:
        plan.differs("broken", said)


def _answers(plan: DriverPlan, seen: DriverState) -> None:
    smi = seen.stack["nvidia_smi"]
    if not smi["asked"]:
        return
    wanted = len(seen.gpu_slots)
    if smi["why"].endswith(NOT_THERE):
        plan.remarks.append("nvidia-smi is not installed, so the GPUs were not checked")
    elif smi["why"]:
        said = f": {smi['said']}" if smi["said"] else ""
        plan.differs("broken", f"{smi['why']}{said}. Check the kernel log: journalctl -k -g 'NVRM|Xid'")
    elif len(smi["gpus"]) < wanted:
        seen_ones = f"{_gpus(wanted)} on the bus, but nvidia-smi lists {len(smi['gpus'])}"
        plan.differs("broken", f"{seen_ones}. Check the kernel log: journalctl -k -g 'NVRM|Xid'")


def _persistence(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    unit = seen.stack["units"].get(persistence.UNIT)
    gpus = seen.stack["nvidia_smi"]["gpus"]
    off = [str(gpu["index"]) for gpu in gpus if not gpu["persistence"]]
    if unit is None:
        if off or not gpus:
            said = "nvidia-persistenced is not installed, so no service keeps idle GPUs initialised"
            if request.driver:
                plan.differs("run", said)
            else:
                _broken_later(plan, request, f"{said}{BY_HAND if request.kept else ''}")
        return
    if not request.driver:
        if off or (not gpus and not persistence.is_on(unit)):
            how = BY_HAND if request.kept else ": sudo systemctl enable --now nvidia-persistenced"
            _broken_later(plan, request, f"persistence mode is off{how}")
        return
    if unit["load"] == "masked":
        plan.remarks.append(f"{persistence.UNIT} is masked. To unmask it: sudo systemctl unmask {persistence.UNIT}")
        return
    why = _unready(unit)
    file = seen.stack["files"].get(persistence.DROP_IN)
    if unit["active"] == "active":
        if unit["reload"] or (file and unit["started"] is not None and unit["started"] < file["changed"]):
            why.append("runs with outdated settings")
        elif not persistence.is_on(unit) or off:
            why.append("does not enable persistence mode")
    if why:
        said = f"{persistence.UNIT} {' and '.join(why)}"
        plan.units.append({"name": f"{persistence.UNIT}.service", "restart": unit["active"] == "active", "start": True})
        plan.differs("run", said, persistence.UNIT, ", ".join(why), "enabled, running, keeps GPUs initialised")


def _fabric(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    if not (request.fabric or seen.gpus["nvswitches"]):
        return
    unit = seen.stack["units"].get(FABRIC_UNIT)
    if unit is None:
        plan.differs("broken", f"CUDA requires {FABRIC_UNIT} on nodes with NVSwitches, but it is not installed")
        return
    for name, package in seen.packages.items():
        if (
            name.startswith(FABRIC_UNIT)
            and upstream(package["version"]) not in ("", seen.loaded)
            and not request.driver
        ):
            said = f"{name} {upstream(package['version'])} cannot start with driver {seen.loaded}"
            plan.differs("broken", said)
    why = _unready(unit)
    if not why:
        return
    said = f"{FABRIC_UNIT} {' and '.join(why)}, but CUDA requires it on this node"
    if unit["load"] == "masked" or not request.driver:
        how = "unmask" if unit["load"] == "masked" else "enable --now"
        plan.differs("broken", f"{said}: sudo systemctl {how} {FABRIC_UNIT}")
        return
    plan.units.append({"name": f"{FABRIC_UNIT}.service", "restart": False, "start": True})
    plan.differs("run", said, FABRIC_UNIT, ", ".join(why), "enabled, running")


def _enable(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    """Enable units without starting them, because the node will be rebooted."""
    wanted = [persistence.UNIT, *([FABRIC_UNIT] if request.fabric else [])] if request.driver else []
    for name in wanted:
        unit = seen.stack["units"].get(name)
        if unit is not None and unit["load"] == "loaded" and unit["enabled"] not in STARTED:
            plan.units.append({"name": f"{name}.service", "restart": False, "start": False})
            plan.differs("run", f"{name} is not started at boot", name, "not enabled", "enabled")


def _unready(unit: UnitFacts) -> list[str]:
    if unit["load"] == "masked":
        return ["is masked"]
    why = [] if unit["enabled"] in STARTED else ["is not started at boot"]
    return why if unit["active"] == "active" else [*why, "is not running"]
