"""Check the Python environment of launches: torch, its CUDA version, and the NCCL library that torch loads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..known.rows import CUDA_FLOORS
from ..verdict.check import Check, skip_all
from ..verdict.commands import playbook
from ..verdict.finding import evidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.check import Said

PYTORCH = playbook("site.yml", tags="pytorch")
GPU_STACK = playbook("site.yml", tags="gpu_stack")

TORCHRUN_MISSING = Check(
    "sw.torchrun.missing",
    seen="sandbox",
    reads="whether the training user can run the file cluster_torchrun",
    fires="fail: the file is missing, or the training user is not allowed to run it",
    fix=f"Build the environment with {PYTORCH}",
)
TORCH_MISSING = Check(
    "sw.torch.missing",
    seen="recording",
    reads="the environment's Python",
    fires="fail: Python does not start, or torch is not installed",
    fix=f"Build the environment with {PYTORCH}",
)
TORCH_HANGS = Check(
    "sw.torch.hangs",
    seen="recording",
    reads="the time to import torch, if torch is built with CUDA",
    fires="unknown: the import does not finish within 50 s (typical of an unresponsive GPU or a very slow disk)",
    fix="Check the GPUs first",
)
TORCH_BROKEN = Check(
    "sw.torch.broken",
    seen="recording",
    reads="an import of torch in a unit with a launch's settings, if torch is built with CUDA and ranks use GPUs",
    fires="fail: the import raises an error",
    fix="Rebuild the environment with",
    command=PYTORCH,
)
TORCH_NO_CUDA = Check(
    "sw.torch.no_cuda",
    seen="stand-in",
    reads="the CUDA version and the backends of the torch build",
    fires="fail: launches use NCCL, but torch is built without CUDA or without NCCL",
    fix="Choose a torch build with both (cluster_torch_version, pytorch_variant), and build the environment with",
    command=PYTORCH,
)
TORCH_GPUS = Check(
    "sw.torch.gpus",
    seen="stand-in",
    reads="torch.cuda.device_count() in a unit with a launch's settings",
    fires="fail: torch sees fewer GPUs than cluster_gpus",
    fix="Check the GPUs, and the training user's permissions on the devices, with",
    command="nvidia-smi -L && ls -l /dev/nvidia*",
)
TORCH_NO_CODE = Check(
    "sw.torch.no_code",
    seen="stand-in",
    reads="torch.cuda.get_arch_list() and the GPUs' compute capabilities",
    fires="fail: the build has no code for one of the GPUs ('no kernel image is available')",
    fix="Choose a torch build with code for the GPU (pytorch_variant), and build the environment with",
    command=PYTORCH,
)
CUDA_DRIVER_OLD = Check(
    "sw.cuda.driver_old",
    seen="stand-in",
    reads="the loaded driver's version and torch.version.cuda",
    fires="fail: the driver is too old for the CUDA major version (NVIDIA's CUDA compatibility guide)",
    fix="Install a compatible driver with",
    command=GPU_STACK,
)
NCCL_OTHER = Check(
    "sw.nccl.other",
    seen="recording",
    reads="the libnccl that torch loads, and the NCCL wheel in the environment",
    fires="warn: torch loads a different NCCL file or version from the one in the wheel",
    fix="Remove the source of the other file: LD_LIBRARY_PATH, /etc/ld.so.preload, or a system library",
)
PRELOAD = Check(
    "env.preload",
    seen="stand-in",
    reads="/etc/ld.so.preload",
    fires="warn: the file makes every process of the node load a libnccl or libcuda from outside the environment",
    fix="Remove the line with the library from /etc/ld.so.preload. Show the file with",
)
BY_AN_IMPORT = (TORCH_GPUS, TORCH_NO_CODE, NCCL_OTHER)
OF_CUDA = (TORCH_BROKEN, *BY_AN_IMPORT, CUDA_DRIVER_OLD)
OF_TORCH = (TORCH_NO_CUDA, *OF_CUDA)
CHECKS = (PRELOAD, TORCHRUN_MISSING, TORCH_MISSING, TORCH_HANGS, *OF_TORCH)
LOOKS = ("unit", "gpu")


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    inside = facts["unit"]["inside"]
    preloaded = [path for path in facts["host"]["preload"] if re.search(r"lib(nccl|cuda)\b", path)]
    if "/etc/ld.so.preload" in facts["host"]["unread"]:
        yield PRELOAD.skip("/etc/ld.so.preload cannot be read")
    if preloaded:
        yield PRELOAD.warn(
            node,
            f"/etc/ld.so.preload loads {' and '.join(preloaded)} into every process",
            command="cat /etc/ld.so.preload",
            observed=", ".join(preloaded),
            expected="none",
        )
    if not inside:
        yield from skip_all((TORCHRUN_MISSING, TORCH_MISSING, TORCH_HANGS, *OF_TORCH), facts["unit"]["why"])
        return
    seen = inside["torch"]
    said = seen.get("said") or {}
    if not (seen["there"] and seen["usable"]):
        forbidden = seen["there"] and facts["unit"]["way"] == "unit"
        what = f"{request['user']} is not allowed to run it" if forbidden else "the file does not exist"
        summary = f"launches run {request['torchrun']}, but {what}"
        yield TORCHRUN_MISSING.fail(node, summary, "Build the environment with", PYTORCH, observed=what)
        yield from skip_all((TORCH_MISSING, TORCH_HANGS, *OF_TORCH), "torchrun is missing")
    elif not said.get("torch"):
        yield from _no_torch(node, seen, said, request)
    else:
        yield from _cuda(node, said, facts, request)


def _no_torch(
    node: str, seen: Mapping[str, Any], said: Mapping[str, Any], request: Mapping[str, Any]
) -> Iterator[Said]:
    why = seen.get("why") or said.get("error") or "the environment has no Python"
    if seen.get("hangs"):
        command = f"time {seen['python']} -c 'import torch'"
        yield TORCH_HANGS.unknown(node, f"torch cannot be checked: {why}", "Measure the import time with", command)
        yield from skip_all((TORCH_MISSING, *OF_TORCH), "the import of torch did not finish")
    else:
        summary = f"the environment of {request['torchrun']} has no usable torch: {why}"
        yield TORCH_MISSING.fail(node, summary, "Build the environment with", PYTORCH)
        yield from skip_all((TORCH_HANGS, *OF_TORCH), "torch is missing")


def _cuda(node: str, said: Mapping[str, Any], facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    torch, loaded = said["torch"], said["loaded"]
    if request["backend"] != "nccl" or not request["gpus"]:
        yield from skip_all(OF_TORCH, "ranks on this node use no GPU")
        return
    if not torch["cuda"] or (loaded and "nccl" not in loaded["backends"]):
        what = "without NCCL" if torch["cuda"] else "without CUDA"
        yield TORCH_NO_CUDA.fail(
            node,
            f"launches use NCCL, but torch {torch['version']} is built {what}",
            observed=torch["version"],
        )
        yield from skip_all(OF_CUDA, f"torch is built {what}")
        return
    yield from _driver(node, torch["cuda"], facts["driver"]["loaded"])
    if not loaded:
        yield TORCH_BROKEN.fail(
            node,
            f"torch {torch['version']} cannot be imported: {said['error'] or 'no error message'}",
            evidence=evidence("import torch", said["error"]),
        )
        yield from skip_all(BY_AN_IMPORT, "torch cannot be imported")
        return
    if loaded["device_count"] < request["gpus"]:
        yield TORCH_GPUS.fail(
            node,
            f"torch sees {loaded['device_count']} GPUs in a launch, but cluster_gpus is {request['gpus']}",
            observed=str(loaded["device_count"]),
            expected=str(request["gpus"]),
        )
    yield from _code(node, torch["version"], loaded)
    yield from _nccl(node, torch["nccl"], loaded["nccl"])


def _driver(node: str, cuda: str, driver: str) -> Iterator[Said]:
    floor = CUDA_FLOORS.get(cuda.partition(".")[0])
    if not driver or not floor:
        yield CUDA_DRIVER_OLD.skip(f"the minimum driver of CUDA {cuda} is unknown" if driver else "no driver is loaded")
    elif numbers(driver) < numbers(floor):
        yield CUDA_DRIVER_OLD.fail(
            node,
            f"torch is built for CUDA {cuda}, which requires driver {floor} or newer, but {driver} is loaded",
            observed=driver,
            expected=f"{floor} or newer",
        )


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _code(node: str, version: str, loaded: Mapping[str, Any]) -> Iterator[Said]:
    without = sorted({each for each in loaded["capabilities"] if not has_code(each, loaded["code_for"])})
    if without:
        yield TORCH_NO_CODE.fail(
            node,
            f"torch {version} has no code for GPUs of compute capability {', '.join(without)}",
            observed=", ".join(loaded["code_for"]),
            expected=", ".join(without),
        )


def has_code(capability: str, built: Sequence[str]) -> bool:
    """Return whether a build of torch contains code for a GPU: machine code for the GPU's major version, or PTX of the
    same or an older version."""
    major, minor = (int(part) for part in capability.split("."))
    for each in built:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", each)
        if match is None:
            continue
        of_major, of_minor = int(match[2]), int(match[3])
        if match[4] == "a":
            fits = (of_major, of_minor) == (major, minor)
        elif match[1] == "sm" or match[4] == "f":
            fits = of_major == major and of_minor <= minor
        else:
            fits = (of_major, of_minor) <= (major, minor)
        if fits:
            return True
    return False


def _nccl(node: str, wheel: Mapping[str, Any], loaded: Mapping[str, Any]) -> Iterator[Said]:
    if not wheel["version"] or not loaded["version"]:
        yield NCCL_OTHER.skip("NCCL is not a separate wheel" if not wheel["version"] else "torch reports no NCCL")
        return
    other_file = wheel["file"] and loaded["file"] and loaded["file"] != wheel["file"]
    # torch reports three numbers; a wheel may have a fourth.
    other_version = numbers(wheel["version"])[:3] != numbers(loaded["version"])[:3]
    if other_file or other_version:
        fix, command = "The environment mixes files of several versions. Rebuild the environment with", PYTORCH
        if other_file:
            fix = "Remove the source of this file (LD_LIBRARY_PATH, ld.so.preload, ld.so.conf). List the libraries with"
            command = "ldconfig -p | grep nccl"
        yield NCCL_OTHER.warn(
            node,
            f"torch loads NCCL {loaded['version']} from {loaded['file'] or 'an unknown file'}, but the environment "
            f"contains NCCL {wheel['version']}",
            fix,
            command,
            observed=f"{loaded['version']} ({loaded['file']})",
            expected=f"{wheel['version']} ({wheel['file']})",
        )
