"""Whether the driver of a node works: loaded and installed are the same, GPUs answer and are kept ready, units run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import persistence
from .family import upstream
from .model import NOT_OURS

if TYPE_CHECKING:
    from .facts import DriverHolder, UnitFacts
    from .model import DriverPlan, DriverRequest, DriverState

FABRIC_UNIT = "nvidia-fabricmanager"
# What unattended-upgrades and the kernels' own packages write there.
KERNEL_PACKAGES = ("linux-", "kernel-")
# As systemd has it for a unit that starts with the system, or that another one starts.
STARTED = ("enabled", "static", "indirect", "generated")
NOT_THERE = "is not there"
# Ubuntu's unit runs with --no-persistence-mode: to start it changes nothing.
BY_HAND = ": sudo nvidia-smi -pm 1 does so until the next start"


def judge_driver(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    """Add what a reboot or units would fix, and what nothing of ours does."""
    if not seen.installed:
        if not request.driver:
            plan.differs("broken", "it has no driver")
        else:
            _reboots(plan, seen)
        return
    _signed(plan, request, seen)
    _reboots(plan, seen)
    if plan.of_kind("boot"):
        _enable(plan, request, seen)
        return
    _answers(plan, seen)
    _persistence(plan, request, seen)
    _fabric(plan, request, seen)


def reboot_reasons(seen: DriverState) -> list[str]:
    """Return why the driver itself needs a reboot."""
    reasons = []
    installed, loaded = seen.installed, seen.loaded
    if installed and loaded != installed:
        runs = f"its kernel runs the driver {loaded}" if loaded else "its kernel has not loaded the driver"
        reasons.append(f"{runs}, and {installed} is installed")
    for driver in NOT_OURS:
        slots = [device["slot"] for device in seen.gpus["devices"] if device["driver"] == driver]
        if slots:
            reasons.append(f"{driver} holds {_gpus(len(slots))} ({', '.join(slots)})")
    return reasons


def due_reasons(seen: DriverState) -> list[str]:
    """Return why the kernel asks for a reboot, which the driver works without."""
    stack = seen.stack
    reasons = []
    by = [name for name in stack["reboot_required_by"] if name.startswith(KERNEL_PACKAGES)]
    if stack["reboot_required"] and (by or not stack["reboot_required_by"]):
        reasons.append(f"/run/reboot-required is there{', for ' + ', '.join(by) if by else ''}")
    newest = stack["bootable"][-1] if stack["bootable"] else stack["running"]
    # A system that was started since with another kernel was started so by somebody.
    if newest != stack["running"] and stack["kernels"][newest]["since_boot"]:
        reasons.append(f"its newest kernel is {newest}, and {stack['running']} runs")
    return reasons


def busy(seen: DriverState) -> str:
    """Name who uses a GPU; "" for nobody."""
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
    """What the kernel and dkms say of a driver that is installed and not loaded."""
    evidence = seen.stack["evidence"]
    parts = []
    if evidence["kernel_log"] and not seen.loaded:
        parts.append(f"its kernel says: {' | '.join(evidence['kernel_log'].splitlines())}")
    if evidence["dkms"].strip() and not seen.loaded:
        parts.append(f"dkms says: {' | '.join(evidence['dkms'].split(chr(10))).strip(' |')}")
    return f" ({'; '.join(parts)})" if parts else ""


def _signed(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    for name in seen.next_kernels:
        kernel = seen.stack["kernels"][name]
        if not request.driver and kernel["module"] not in ("", seen.installed):
            said = f"of its kernel {name} the module is {kernel['module']}, and the driver is {seen.installed}"
            _broken_later(plan, request, f"{said}: it will not work after the next boot")
        # Where validation is switched off in the firmware (mokutil --disable-validation) one was let in all the same.
        is_in = name == seen.stack["running"] and kernel["module"] == seen.loaded
        if seen.secure_boot and kernel["module"] and not kernel["signer"] and not is_in:
            said = f"its module for {name} is not signed, and Secure Boot lets no such module in"
            # What apt brings may be signed; otherwise the node must not be started with it.
            if request.driver:
                plan.differs("disk", f"{said}: docs/gpu_driver.md has the steps")
            else:
                _broken_later(plan, request, f"{said}: docs/gpu_driver.md has the steps")


def _broken_later(plan: DriverPlan, request: DriverRequest, said: str) -> None:
    """What does not keep a driver from working now: one that is kept because it works does not stop the node for it."""
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
        plan.remarks.append("nvidia-smi is not there, so its GPUs were not asked")
    elif smi["why"]:
        said = f": {smi['said']}" if smi["said"] else ""
        plan.differs("broken", f"{smi['why']}{said}. What the kernel says of it: journalctl -k -g 'NVRM|Xid'")
    elif len(smi["gpus"]) < wanted:
        seen_ones = f"{_gpus(wanted)} on its bus, and nvidia-smi lists {len(smi['gpus'])}"
        plan.differs("broken", f"there are {seen_ones}: journalctl -k -g 'NVRM|Xid' shows why")


def _persistence(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    unit = seen.stack["units"].get(persistence.UNIT)
    gpus = seen.stack["nvidia_smi"]["gpus"]
    off = [str(gpu["index"]) for gpu in gpus if not gpu["persistence"]]
    if unit is None:
        if off or not gpus:
            said = "nothing keeps its GPUs initialised while nobody uses them"
            if request.driver:
                plan.differs("run", said)
            else:
                _broken_later(plan, request, f"{said}{BY_HAND if request.kept else ''}")
        return
    if not request.driver:
        if off or (not gpus and not persistence.is_on(unit)):
            how = BY_HAND if request.kept else ": sudo systemctl enable --now nvidia-persistenced"
            _broken_later(plan, request, f"persistence is off{how}")
        return
    if unit["load"] == "masked":
        plan.remarks.append(f"{persistence.UNIT} is masked. To have it run: sudo systemctl unmask {persistence.UNIT}")
        return
    why = _unready(unit)
    file = seen.stack["files"].get(persistence.DROP_IN)
    if unit["active"] == "active":
        if unit["reload"] or (file and unit["started"] is not None and unit["started"] < file["changed"]):
            why.append("has not read its settings since they were changed")
        elif not persistence.is_on(unit) or off:
            why.append("leaves persistence off")
    if why:
        said = f"{persistence.UNIT} {' and '.join(why)}"
        plan.units.append({"name": f"{persistence.UNIT}.service", "restart": unit["active"] == "active", "start": True})
        plan.differs("run", said, persistence.UNIT, ", ".join(why), "enabled, runs, keeps GPUs initialised")


def _fabric(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    if not (request.fabric or seen.gpus["nvswitches"]):
        return
    unit = seen.stack["units"].get(FABRIC_UNIT)
    if unit is None:
        plan.differs("broken", f"it has NVSwitches and no {FABRIC_UNIT}, without which no program can use CUDA")
        return
    for name, package in seen.packages.items():
        if (
            name.startswith(FABRIC_UNIT)
            and upstream(package["version"]) not in ("", seen.loaded)
            and not request.driver
        ):
            said = f"{name} is {upstream(package['version'])}, and the driver is {seen.loaded}: it will not start"
            plan.differs("broken", said)
    why = _unready(unit)
    if not why:
        return
    said = f"{FABRIC_UNIT} {' and '.join(why)}, without which no program can use CUDA here"
    if unit["load"] == "masked" or not request.driver:
        how = "unmask" if unit["load"] == "masked" else "enable --now"
        plan.differs("broken", f"{said}: sudo systemctl {how} {FABRIC_UNIT}")
        return
    plan.units.append({"name": f"{FABRIC_UNIT}.service", "restart": False, "start": True})
    plan.differs("run", said, FABRIC_UNIT, ", ".join(why), "enabled, runs")


def _enable(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    """Before a reboot nothing is started: what is enabled comes with the system."""
    wanted = [persistence.UNIT, *([FABRIC_UNIT] if request.fabric else [])] if request.driver else []
    for name in wanted:
        unit = seen.stack["units"].get(name)
        if unit is not None and unit["load"] == "loaded" and unit["enabled"] not in STARTED:
            plan.units.append({"name": f"{name}.service", "restart": False, "start": False})
            plan.differs("run", f"{name} does not start with the system", name, "not enabled", "enabled")


def _unready(unit: UnitFacts) -> list[str]:
    if unit["load"] == "masked":
        return ["is masked"]
    why = [] if unit["enabled"] in STARTED else ["does not start with the system"]
    return why if unit["active"] == "active" else [*why, "does not run"]
