"""The environment that a launch starts: its torch, the CUDA it is built for, and the NCCL that it really loads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..known.rows import CUDA_FLOORS
from ..verdict.entry import Entry
from ..verdict.finding import evidence
from .judged import Judged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .judged import Outcome

PYTORCH = "ansible-playbook site.yml --tags pytorch"
GPU_STACK = "ansible-playbook site.yml --tags gpu_stack"

FINDINGS = {
    "sw.torchrun.missing": Entry(
        reads="cluster_torchrun, as the training user",
        fires="fail: it is not there, or the training user may not run it",
        fix="The step pytorch builds the environment",
    ),
    "sw.torch.missing": Entry(
        reads="the environment's own Python",
        fires="fail: it has no torch, or does not start",
        fix="The step pytorch builds the environment",
    ),
    "sw.torch.hangs": Entry(
        reads="how long an import of torch takes, where its build has CUDA",
        fires="unknown: it does not come to an end within 50 s, as with a GPU that does not answer or a very slow disk",
        fix="Look at the GPUs first",
    ),
    "sw.torch.broken": Entry(
        reads="an import of torch inside a unit like a launch's, where its build has CUDA and ranks use GPUs",
        fires="fail: it ends with an error",
        fix="Build the environment anew",
    ),
    "sw.torch.no_cuda": Entry(
        reads="what torch is built for, and the backends that it has",
        fires="fail: launches use NCCL, and torch is built without CUDA or without NCCL",
        fix="Set cluster_torch_version or pytorch_variant, and run the step pytorch",
    ),
    "sw.torch.gpus": Entry(
        reads="torch.cuda.device_count() inside a unit like a launch's",
        fires="fail: torch sees fewer GPUs than cluster_gpus",
        fix="Look at the GPUs, and who may open /dev/nvidia*",
    ),
    "sw.torch.no_code": Entry(
        reads="torch.cuda.get_arch_list() and the GPUs' compute capabilities",
        fires="fail: the build has no code for one of the GPUs ('no kernel image is available')",
        fix="Choose a build that has it (pytorch_variant)",
    ),
    "sw.cuda.driver_old": Entry(
        reads="the loaded driver's version and torch.version.cuda",
        fires="fail: older than what that major version of CUDA needs at least (NVIDIA's CUDA compatibility guide)",
        fix="The step gpu_stack installs a fitting one",
    ),
    "sw.nccl.other": Entry(
        reads="the libnccl that an import of torch maps, and the wheel in the environment",
        fires="warn: torch loads another file than the wheel's, or another version",
        fix="Take away what puts it in front: LD_LIBRARY_PATH, /etc/ld.so.preload, or a library of the system",
    ),
    "env.preload": Entry(
        reads="/etc/ld.so.preload",
        fires="warn: it puts a libnccl or libcuda in front of the environment's, for every process of the node",
        fix="Take that line out",
    ),
}


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Outcome:
    out = Judged(request["node"])
    inside = facts["unit"]["inside"]
    preloaded = [path for path in facts["host"]["preload"] if re.search(r"lib(nccl|cuda)\b", path)]
    if preloaded:
        out.warn(
            "env.preload",
            f"/etc/ld.so.preload puts {' and '.join(preloaded)} in front of what every process would load",
            "Take that line out",
            "cat /etc/ld.so.preload",
            observed=", ".join(preloaded),
            expected="none",
        )
    rest = [name for name in FINDINGS if name != "env.preload"]
    if not inside:
        return out.skip_all(rest, facts["unit"]["why"])
    seen = inside["torch"]
    if not (seen["there"] and seen["usable"]):
        what = (
            f"{request['user']} may not run it"
            if seen["there"] and facts["unit"]["way"] == "unit"
            else "it is not there"
        )
        out.fail(
            "sw.torchrun.missing",
            f"a launch would start {request['torchrun']}, and {what}",
            "Build the environment with",
            PYTORCH,
            observed=what,
        )
        return out.skip_all([name for name in rest if name != "sw.torchrun.missing"], "there is no torchrun to ask")
    said = seen.get("said") or {}
    if not said.get("torch"):
        why = seen.get("why") or said.get("error") or "no Python lies beside torchrun"
        if seen.get("hangs"):
            report = "sw.torch.hangs"
            python = seen["python"]
            out.unknown(
                report,
                f"torch cannot be looked at: {why}",
                "Look how long it takes",
                f"time {python} -c 'import torch'",
            )
        else:
            report = "sw.torch.missing"
            out.fail(report, f"the Python beside {request['torchrun']} has no torch: {why}", "Build it with", PYTORCH)
        return out.skip_all(
            [name for name in rest if name not in ("sw.torchrun.missing", report)], "torch did not answer"
        )
    _cuda(out, said, facts, request)
    return out.outcome


def _cuda(out: Judged, said: Mapping[str, Any], facts: Mapping[str, Any], request: Mapping[str, Any]) -> None:
    torch, loaded = said["torch"], said["loaded"]
    of_cuda = ("sw.torch.broken", "sw.torch.gpus", "sw.torch.no_code", "sw.nccl.other", "sw.cuda.driver_old")
    if request["backend"] != "nccl" or not request["gpus"]:
        out.skip("no rank here uses a GPU", "sw.torch.no_cuda", *of_cuda)
        return
    if not torch["cuda"] or (loaded and "nccl" not in loaded["backends"]):
        what = "without NCCL" if torch["cuda"] else "without CUDA"
        out.fail(
            "sw.torch.no_cuda",
            f"launches use NCCL, and its torch {torch['version']} is built {what}",
            "Choose a build with both (cluster_torch_version, pytorch_variant), and build the environment with",
            PYTORCH,
            observed=torch["version"],
        )
        out.skip("its torch is built without", *of_cuda)
        return
    _driver(out, torch["cuda"], facts["driver"]["loaded"])
    if not loaded:
        out.fail(
            "sw.torch.broken",
            f"torch {torch['version']} cannot be imported: {said['error'] or 'it did not say why'}",
            "Build the environment anew with",
            PYTORCH,
            evidence=evidence("import torch", said["error"]),
        )
        out.skip("torch cannot be imported", *of_cuda[1:4])
        return
    if loaded["device_count"] < request["gpus"]:
        out.fail(
            "sw.torch.gpus",
            f"torch sees {loaded['device_count']} GPUs in a launch, and cluster_gpus is {request['gpus']}",
            "Look at the GPUs, and whether the training user may open them",
            "nvidia-smi -L && ls -l /dev/nvidia*",
            observed=str(loaded["device_count"]),
            expected=str(request["gpus"]),
        )
    _code(out, torch["version"], loaded)
    _nccl(out, torch["nccl"], loaded["nccl"])


def _driver(out: Judged, cuda: str, driver: str) -> None:
    floor = CUDA_FLOORS.get(cuda.partition(".")[0])
    if not driver or not floor:
        out.skip("no driver is loaded" if not driver else f"CUDA {cuda} is not in the table", "sw.cuda.driver_old")
    elif numbers(driver) < numbers(floor):
        out.fail(
            "sw.cuda.driver_old",
            f"torch is built for CUDA {cuda}, which needs the driver {floor} or newer, and {driver} is loaded",
            "Install a fitting one with",
            GPU_STACK,
            observed=driver,
            expected=f"{floor} or newer",
        )


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _code(out: Judged, version: str, loaded: Mapping[str, Any]) -> None:
    without = sorted({each for each in loaded["capabilities"] if not has_code(each, loaded["code_for"])})
    if without:
        out.fail(
            "sw.torch.no_code",
            f"torch {version} has no code for GPUs of compute capability {', '.join(without)}",
            "Choose a build that has it (pytorch_variant), and build the environment with",
            PYTORCH,
            observed=", ".join(loaded["code_for"]),
            expected=", ".join(without),
        )


def has_code(capability: str, built: Sequence[str]) -> bool:
    """Whether a build runs on a GPU: its machine code within the major version, or PTX of any older one."""
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


def _nccl(out: Judged, wheel: Mapping[str, Any], loaded: Mapping[str, Any]) -> None:
    if not wheel["version"] or not loaded["version"]:
        out.skip("NCCL is no wheel of its own here" if not wheel["version"] else "torch does not say", "sw.nccl.other")
        return
    other_file = wheel["file"] and loaded["file"] and loaded["file"] != wheel["file"]
    # torch tells three numbers, and a wheel may have a fourth.
    other_version = numbers(wheel["version"])[:3] != numbers(loaded["version"])[:3]
    if other_file or other_version:
        out.warn(
            "sw.nccl.other",
            f"torch loads NCCL {loaded['version']} from {loaded['file'] or 'an unknown place'}, and the environment's "
            f"own is {wheel['version']}",
            *(
                (
                    "Take away what puts it in front (LD_LIBRARY_PATH, ld.so.preload, ld.so.conf)",
                    "ldconfig -p | grep nccl",
                )
                if other_file
                else ("Its files are of several versions: build the environment anew with", PYTORCH)
            ),
            observed=f"{loaded['version']} ({loaded['file']})",
            expected=f"{wheel['version']} ({wheel['file']})",
        )
