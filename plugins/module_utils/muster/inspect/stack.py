"""Convert the GPU stack data collected on a node (muster_node/looks/stack.py) into facts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..gpu_info.processes import holders
from ..packages.repositories import sources
from .boot_menu import NextKernel, next_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..nvidia_driver.facts import BootFacts, KernelFacts

# dpkg states of packages that are not installed; their configuration files may remain.
GONE = ("not-installed", "config-files")
# Packages waiting for triggers are unpacked and configured.
WHOLE = ("installed", "triggers-awaited", "triggers-pending")


def stack_facts(look: Mapping[str, Any], skipped: dict[str, str]) -> dict[str, Any]:
    """Return the facts about the GPU stack. The reasons for missing facts are added to `skipped`."""
    for subject in ("packages", "units"):
        if look[f"{subject}_why"]:
            skipped[f"stack.{subject}"] = look[f"{subject}_why"]
    boot = boot_facts(look)
    missing = {kernel["module_why"] for kernel in boot["kernels"].values()} - {""}
    if missing:
        skipped["stack.modules"] = ", ".join(sorted(missing))
    if not look["saw_all_holders"]:
        skipped["stack.holders"] = "device users of other accounts are visible only to root"
    uptime = _uptime(look)
    return {
        "packages": packages_of(look["packages"]),
        "dpkg_interrupted": look["interrupted"],
        **boot,
        "files": look["files"],
        "sources": [entry for path, text in look["sources"].items() for entry in _sources(path, text)],
        "reboot_required": look["reboot_required"],
        "reboot_required_by": sorted(set(look["reboot_required_by"])),
        "runfile": _runfile(look, skipped),
        "units": _units(look["units"], look["now"] - uptime),
        "holders": holders(look["holders"], uptime),
        "launches": [
            *(line.split()[0] for line in look["launches"].splitlines() if line.split()),
            *look.get("own_launches", ()),
        ],
        "nvidia_smi": _nvidia_smi(look["nvidia_smi"]),
        "evidence": look["evidence"] or {"kernel_log": "", "dkms": ""},
    }


def boot_facts(look: Mapping[str, Any]) -> BootFacts:
    """Return the facts about the kernels. look: data of the collector next_boot, also as a part of the stack's data."""
    booted = look["now"] - _uptime(look)
    menu = look["menu"]
    boots = NextKernel(why=menu["why"]) if menu["why"] else next_kernel(menu["text"], look["menu_variables"])
    return {
        "loaded": look["loaded"] or _version_in(look["loaded_text"]),
        "running": look["running"],
        "bootable": sorted(look["bootable"], key=natural),
        "kernels": {name: _kernel(kernel, look["modprobe"], booted) for name, kernel in look["kernels"].items()},
        "boots": boots.release,
        "boots_why": boots.why,
    }


def _uptime(look: Mapping[str, Any]) -> float:
    return float((look["uptime"].split() or ["0"])[0])


def natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key that puts 6.8.0-9 before 6.8.0-10, and a release candidate before its release."""
    parts = re.findall(r"\d+|[a-z~]+", text)
    return [(int(part), "") if part.isdigit() else (-1 if part in ("rc", "~rc") else 0, part) for part in parts]


def packages_of(shown: str) -> dict[str, dict[str, Any]]:
    """Return packages by name. The architecture is part of the name only for packages of foreign architectures."""
    lines = [line.split() for line in shown.splitlines()]
    rows = [words for words in lines if len(words) == 5 and words[3] not in GONE]
    own = next((words[4] for words in rows if words[0].partition(":")[0] == "dpkg"), "")
    packages = {}
    for binary, version, want, state, architecture in rows:
        name = binary.partition(":")[0]
        if name == "dpkg":
            continue
        foreign = own and architecture not in (own, "all")
        packages[f"{name}:{architecture}" if foreign else name] = {
            "version": version,
            "held": want == "hold",
            "state": "installed" if state in WHOLE else state,
        }
    return packages


def _version_in(text: str) -> str:
    """Return the driver version in /proc/driver/nvidia/version.

    Open and proprietary modules word this file differently.
    """
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+[\d.]*)\s", text)
    return found[1] if found else ""


def _kernel(look: Mapping[str, Any], modprobe: float | None, booted: float) -> KernelFacts:
    initramfs = look["initramfs"]
    # modprobe uses the first of several modules with the same name.
    fields: dict[str, str] = {}
    for key, value in re.findall(r"^(\w+):[ \t]*(.*)$", look["modinfo"], re.MULTILINE):
        if key == "filename" and fields:
            break
        fields.setdefault(key, value.strip())
    return {
        "module": fields.get("version", ""),
        "module_why": look["modinfo_why"],
        "built_for": (fields.get("vermagic", "").split() or [""])[0],
        "module_path": fields.get("filename", ""),
        "signer": fields.get("signer", ""),
        "license": fields.get("license", ""),
        "headers": look["headers"],
        "has_initramfs": initramfs is not None,
        "initramfs_old": initramfs is not None and modprobe is not None and initramfs < modprobe,
        # A kernel installed before the last boot was not selected at that boot, which was intentional.
        "since_boot": look["installed"] is not None and look["installed"] > booted,
    }


def _sources(path: str, text: str) -> list[dict[str, str]]:
    """Return NVIDIA's repositories in an apt source list. Passwords are removed from the URLs."""
    return [
        {"file": path, "uri": _plain(uri), "signed_by": source.signed_by}
        for source in sources(path, text)
        for uri in source.uris
        if _is_nvidia(uri)
    ]


def _is_nvidia(uri: str) -> bool:
    return bool(re.search(r"nvidia|/cuda\b", uri, re.IGNORECASE))


def _plain(uri: str) -> str:
    return re.sub(r"//[^/@]*@", "//", uri)


def _runfile(look: Mapping[str, Any], skipped: dict[str, str]) -> dict[str, Any]:
    """Return the NVIDIA programs and libraries that do not belong to any package."""
    if look["owners_why"]:
        skipped["stack.runfile"] = look["owners_why"]
        return {"programs": [], "libraries": [], "log": look["installer_log"]}
    owned = {path for _, path in re.findall(r"^(\S[^/]*?): (/.+)$", look["owners"], re.MULTILINE)}
    return {
        "programs": [path for path in look["installer"] if path not in owned],
        "libraries": [path for path in look["libraries"] if path not in owned],
        "log": look["installer_log"],
    }


def _units(shown: str, booted: float) -> dict[str, dict[str, Any]]:
    """Return the installed units. started: when the unit was started, in seconds since the epoch."""
    units = {}
    for block in shown.split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if fields.get("LoadState", "not-found") == "not-found":
            continue
        micros = fields.get("ExecMainStartTimestampMonotonic", "")
        units[fields.get("Id", "").removesuffix(".service")] = {
            "load": fields["LoadState"],
            "active": fields.get("ActiveState", ""),
            "enabled": fields.get("UnitFileState", ""),
            "reload": fields.get("NeedDaemonReload") == "yes",
            # { path=... ; argv[]=/usr/bin/x --y ; ignore_errors=no ; ... }
            "argv": found[1].strip() if (found := re.search(r"argv\[\]=(.*?) ; ", fields.get("ExecStart", ""))) else "",
            "stop_when_unneeded": fields.get("StopWhenUnneeded") == "yes",
            "fragment": fields.get("FragmentPath", ""),
            "drop_ins": fields.get("DropInPaths", "").split(),
            "started": booted + int(micros) / 1e6 if micros.isdigit() and int(micros) else None,
        }
    return units


def _nvidia_smi(look: Mapping[str, str] | None) -> dict[str, Any]:
    """Return what nvidia-smi reported about each GPU.

    asked: whether nvidia-smi was run, which requires a loaded module.
    """
    if look is None:
        return {"asked": False, "why": "", "gpus": [], "said": ""}
    rows = [[cell.strip() for cell in line.split(",")] for line in look["text"].splitlines()]
    gpus = [
        {"index": int(row[0]), "name": row[1], "driver": row[2], "persistence": row[3] != "Disabled"}
        for row in rows
        if len(row) == 4 and row[0].isdigit() and re.fullmatch(r"\d+\.[\d.]+", row[2])
    ]
    said = " ".join(look["text"].split())[:300]
    return {"asked": True, "why": look["why"], "gpus": gpus, "said": said if look["why"] or not gpus else ""}
