"""Compare the present state of a node with the requested driver, and plan the changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..gpu_info.processes import way_out
from ..verdict.commands import shell
from . import persistence
from .family import PINNING, branch_of, is_obsolete, is_part, is_versioned, keeps_step
from .judge import busy, judge_driver
from .model import DriverFile, DriverPlan
from .next_boot import MODPROBE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .model import DriverRequest, DriverState

KEPT = "The driver is kept unchanged. To replace it, set nvidia_driver_replace to true"
UNINSTALLERS = {"nvidia-uninstall": "--silent", "nvidia-installer": "--uninstall --silent"}


def make_plan(request: DriverRequest, seen: DriverState) -> DriverPlan:
    plan = DriverPlan()
    if not request.driver:
        judge_driver(plan, request, seen)
        plan.reboot = []
        return plan
    _runfile(plan, request, seen)
    _packages(plan, request, seen)
    _dpkg(plan, request, seen)
    _files(plan, request, seen)
    _modules(plan, request, seen)
    judge_driver(plan, request, seen)
    plan.unready = seen.next_boot.against_reboot
    changes_driver = plan.apt or plan.configure or bool(plan.uninstall)
    in_use = busy(seen)
    if in_use and (changes_driver or plan.of_kind("boot")):
        how = way_out([*(holder["name"] for holder in seen.stack["holders"]), *seen.stack["launches"]])
        plan.refusals.append(f"{in_use}, so the driver was not changed: {how}, then run this again")
    elif in_use and plan.due:
        plan.remarks.append(f"a reboot is required ({'; '.join(plan.due)}) but was postponed, because {in_use}")
    else:
        plan.reboot += plan.due
    return plan


def forbids_reboot(request: DriverRequest) -> str:
    """Return why Muster does not reboot the node, with the command that the user can run instead; "" if Muster may
    reboot the node.
    """
    if request.controller:
        return "Muster does not reboot the controller: run sudo systemctl reboot, then run this again"
    if not request.reboots:
        return "nvidia_driver_reboot is never: run sudo systemctl reboot on the node, then run this again"
    return ""


def requested_version(request: DriverRequest, seen: DriverState) -> str:
    """Return the version for every part of the driver; "" if no installed package determines it.

    The version of a driver from another source is not kept, because the new source may not offer all parts in this
    version.
    """
    from_there = any(is_versioned(name, request.source) and name in seen.packages for name in request.driver)
    return request.exact or (seen.installed if request.fits(seen.installed) and from_there else "")


def _runfile(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    left = seen.stack["runfile"]
    paths = [*left["programs"], *left["libraries"]]
    if not paths:
        return
    programs = {path.rpartition("/")[2]: path for path in left["programs"]}
    command = _uninstaller(programs)
    found = f"a driver was installed without packages ({', '.join(paths)})"
    if request.removes_runfile and command:
        plan.uninstall = command
        plan.differs("disk", found, "runfile driver", ", ".join(paths), "uninstalled")
        return
    if command:
        how = f"{_uninstaller(programs, 'sudo ')}, or set nvidia_driver_remove_runfile to true"
    else:
        how = shell("sudo rm {libraries}", libraries=left["libraries"])
    plan.refusals.append(f"{found}, which conflicts with the packages. To remove it: {how}")


def _dpkg(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    # apt refuses to work before dpkg is configured. The interrupted packages may be unrelated to the driver.
    plan.apt = plan.apt or bool(seen.broken)
    if seen.broken or (seen.stack["dpkg_interrupted"] and plan.apt):
        plan.configure = True
        what = f" while it installed {', '.join(seen.broken)}" if seen.broken else ""
        plan.differs("disk", f"dpkg was interrupted{what}", "dpkg", "interrupted", "configured")
    plan.unhold = [name for name, each in seen.packages.items() if each["held"] and _moves(name, request, seen)]
    if plan.unhold:
        # Holds were a common practice before pins. With a pin, a hold makes apt fail.
        said = f"{', '.join(plan.unhold)} on hold, so apt cannot change all driver packages together"
        plan.differs("disk", said, "apt-mark hold", ", ".join(plan.unhold), "none")


def _moves(name: str, request: DriverRequest, seen: DriverState) -> bool:
    """Return whether the driver change affects this package.

    Kernel packages are not affected, because users may hold them on purpose.
    """
    ours = is_part(name) and name in (*request.packages, *request.pins)
    return ours or keeps_step(name, seen.packages[name]["version"], request.source) or name.startswith(PINNING)


def _packages(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    there = seen.packages
    plan.keep = requested_version(request, seen)
    missing = [name for name in (*request.pins, *request.packages) if name not in there]
    if missing:
        plan.apt = True
        plan.differs("disk", f"missing packages: {', '.join(missing)}")
        for name in missing:
            plan.differs("disk", "", f"package {name}", "missing", "installed")
    target = plan.keep or f"{request.branch}.*"
    for name, version in seen.parts(request.source).items():
        if not request.fits(version) or (plan.keep and version != plan.keep):
            plan.apt = True
            said = f"{name} is {version} instead of {target}"
            plan.differs("disk", said, f"package {name}", version, _becomes(name, request, seen, target))
    if plan.apt and (not plan.keep or plan.keep != seen.loaded):
        plan.differs("disk", "", "reboot", "", "after the installation")
    for name in leftovers(request, seen):
        plan.apt = True
        plan.differs("disk", f"{name} remains from another driver", f"package {name}", "installed", "removed")


def _becomes(name: str, request: DriverRequest, seen: DriverState, target: str) -> str:
    """Describe what happens to a part. Only apt knows the package names of a branch."""
    if is_obsolete(name, request.branch):
        return "removed"
    if name in request.packages or branch_of(seen.installed) == request.branch:
        return target
    return f"{target}, or removed if not available"


def leftovers(request: DriverRequest, seen: DriverState) -> list[str]:
    """Return packages and pins of other branches to remove. Parts of the driver are compared by version instead."""
    parts = {name for name, version in seen.parts(request.source).items() if not request.fits(version)}
    return [
        name
        for name in seen.packages
        if name not in (*request.pins, *request.packages, *parts) and is_obsolete(name, request.branch)
    ]


def _files(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    for file in _requested_files(request, seen):
        there = seen.stack["files"].get(file.path)
        if request.source not in (file.sources or (request.source,)):
            if there is not None:
                plan.unwanted.append(file.path)
                plan.differs(
                    "disk",
                    f"{file.path} is not used with a driver from {request.source}",
                    file.path,
                    "present",
                    "removed",
                )
            continue
        if there is None:
            why = "is missing"
        elif there.get("text") != file.content:
            why = "has different content"
        elif (there["mode"], there["owner"]) != ("0644", "root"):
            why = f"has owner {there['owner']} and mode {there['mode']} instead of root and 0644"
        else:
            continue
        plan.files.append(file)
        plan.differs(
            "disk", f"{file.path} {why}", file.path, "" if there is None else there.get("text", ""), file.content
        )
    plan.initramfs = [
        name
        for name in seen.stack["bootable"]
        if (kernel := seen.stack["kernels"][name])["has_initramfs"]
        and (kernel["initramfs_old"] or any(file.path == MODPROBE for file in plan.files))
    ]
    if plan.initramfs:
        named = ", ".join(plan.initramfs)
        plan.differs(
            "disk", f"the initramfs of {named} is older than {MODPROBE}", f"initramfs of {named}", "old", "new"
        )


def _requested_files(request: DriverRequest, seen: DriverState) -> Iterator[DriverFile]:
    yield from request.files
    file, unit = seen.stack["files"].get(persistence.UNIT_FILE), seen.stack["units"].get(persistence.UNIT)
    # A unit in /etc belongs to the site. Muster only checks whether it works.
    of_the_site = unit is not None and unit["fragment"].startswith("/etc/")
    text = persistence.drop_in(file.get("text", "")) if file and not of_the_site else ""
    if text:
        yield DriverFile(persistence.DROP_IN, text)


def _modules(plan: DriverPlan, request: DriverRequest, seen: DriverState) -> None:
    """Plan the kernel modules for each kernel that will be booted, unless apt installs them."""
    if plan.apt or plan.configure or not plan.keep:
        return
    for name in seen.next_kernels:
        kernel = seen.stack["kernels"][name]
        if kernel["module"] == plan.keep:
            continue
        found = f"has driver module {kernel['module']}" if kernel["module"] else "has no driver module"
        said = f"the kernel {name} {found}, but driver {plan.keep} is installed"
        if request.build == "dkms" and kernel["headers"]:
            plan.build.append(name)
        else:
            plan.apt = True
            if request.build == "dkms":
                plan.optional.append(f"linux-headers-{name}")
                said += ", and dkms cannot build the module without kernel headers"
        plan.differs("disk", said, f"module for {name}", kernel["module"] or "none", plan.keep)


def settle(plan: DriverPlan, request: DriverRequest, stage: str) -> list[str]:
    """Return why the node must stop at this stage. Also removes a reboot that is not allowed from the plan.

    stage: look (before any change), settle (packages are installed), installed (only a reboot is missing) or done.
    """
    if plan.refusals:
        return plan.refusals
    fixes = {"look": ("disk", "boot", "run"), "settle": ("disk", "boot", "run", "broken"), "installed": ("boot",)}
    hopeless = [each for each in plan.differences if not request.driver or each.kind not in fixes.get(stage, ())]
    # The pending changes may fix what is broken.
    if request.driver and stage in ("look", "installed") and plan.of_kind(*fixes[stage]):
        hopeless = [each for each in hopeless if each.kind != "broken"]
    wrong = [each.sentence for each in hopeless if each.sentence]
    if wrong and not request.driver:
        wrong.append(KEPT if request.kept else "Muster does not change the driver (nvidia_driver_mode is verify)")
    if wrong or not plan.reboot:
        return wrong
    last_word = stage == "installed" or not plan.of_kind("disk", "run")
    # The pending changes may install the module.
    forbidden = (plan.unready if last_word else "") or forbids_reboot(request)
    if forbidden and plan.of_kind("boot"):
        return [f"{'; '.join(plan.reboot)}, but {forbidden}"] if last_word else []
    if forbidden:
        plan.remarks.append(f"a reboot is required ({'; '.join(plan.reboot)}), but {forbidden}")
        plan.reboot = []
    return []


def _uninstaller(programs: Mapping[str, str], before: str = "") -> str:
    """Return the command that removes a driver installed by a runfile; "" if there is no uninstaller.

    programs: paths by name.
    """
    known = ((programs[name], how) for name, how in UNINSTALLERS.items() if name in programs)
    return next((shell(f"{before}{{program}} {how}", program=path) for path, how in known), "")
