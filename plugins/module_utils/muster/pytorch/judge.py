"""Compare the inspected PyTorch environment with the request.

The input is the output of muster_node/units/torch_facts.py: `error` (optionally with `trace` and `fix`) if PyTorch
cannot be used, otherwise `torch`, `packages` and `imported`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.finding import evidence
from .request import TORCH, EnvironmentRequest, public_version, same_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.finding import Finding

REBUILD = "Set pytorch_mode=manage so that Muster rebuilds the environment, or repair it on the node"
MISFIT = "The packages are incompatible with this node or with each other: see the traceback in the findings"

IMPORT = Check(
    "torch.import",
    seen="stand-in",
    reads="the environment of cluster_torchrun",
    fires="PyTorch cannot be imported (fail)",
    fix=REBUILD,
)
VERSION = Check(
    "torch.version",
    seen="sandbox",
    reads="the version that torch reports",
    fires="the version differs from cluster_torch_version (fail)",
    fix=REBUILD,
)
VARIANT = Check(
    "torch.variant",
    seen="stand-in",
    reads="the CUDA version that torch is built for",
    fires="the build differs from pytorch_variant (fail)",
    fix="Check which builds the index or folder offers, and set pytorch_variant",
)
PACKAGES = Check(
    "torch.packages",
    seen="stand-in",
    reads="the packages in the environment",
    fires="a package of pytorch_packages is missing or has a different version (fail)",
    fix=REBUILD,
)
BACKENDS = Check(
    "torch.backends",
    seen="stand-in",
    reads="torch.distributed",
    fires="gloo is missing, or nccl is missing on a node with GPUs (fail)",
    fix="Choose another build with pytorch_variant",
)
DEVICES = Check(
    "torch.devices",
    seen="stand-in",
    reads="torch.cuda.device_count()",
    fires="torch sees fewer GPUs than cluster_gpus (warn)",
    fix="Check the driver: nvidia-smi",
)
NCCL = Check(
    "torch.nccl",
    seen="stand-in",
    reads="the NCCL library that torch loads",
    fires="the NCCL version cannot be read (unknown)",
    fix=REBUILD,
)


TOOLS = Check(
    "workbench.environment",
    seen="stand-in",
    reads="the environment with JupyterLab and TensorBoard",
    fires="JupyterLab cannot be imported, or a package has a different version (fail)",
    fix="Set workbench_mode=manage so that Muster rebuilds the environment",
)


def judge(node: str, request: EnvironmentRequest, look: Mapping[str, Any]) -> list[Finding]:
    """Return one finding for each check that was possible. look: output of torch_facts.py."""
    if request.main.name != TORCH:
        return [_tools(node, request, look)]
    if look.get("error"):
        return [_unusable(node, request, look)]
    found = [_version(node, request, look), _variant(node, request, look), *_packages(node, request, look)]
    if not look["imported"]:
        why = "the environment is unchanged, so torch was not imported; set pytorch_full_look=true to import it"
        return [*found, BACKENDS.not_looked(node, why)]
    return [*found, _backends(node, request, look), *_devices(node, request, look), *_nccl(node, look)]


def variant_of(cuda: str | None) -> str:
    """Return the name of a build: "cpu", or for example "cu130" for CUDA 13.0."""
    return "cu" + "".join(cuda.split(".")[:2]) if cuda else "cpu"


def _unusable(node: str, request: EnvironmentRequest, look: Mapping[str, Any]) -> Finding:
    trace = look.get("trace", "")
    return IMPORT.fail(
        node,
        f"PyTorch cannot be used: {look['error']}",
        fix=look.get("fix") or (MISFIT if trace else None),
        expected=f"{request.main} can be imported",
        evidence=evidence("import torch", trace),
    )


def _tools(node: str, request: EnvironmentRequest, look: Mapping[str, Any]) -> Finding:
    if look.get("error"):
        summary = f"{request.main} cannot be used: {look['error']}"
        return TOOLS.fail(node, summary, evidence=evidence(f"import {request.main.name}", look.get("trace", "")))
    unmet = [pin for pin in request.requirements if not pin.met_by(look["packages"])]
    have = ", ".join(f"{pin.name} {look['packages'].get(pin.name, 'none')}" for pin in unmet or request.requirements)
    if unmet:
        return TOOLS.fail(node, f"{', '.join(map(str, unmet))} is requested; installed: {have}", observed=have)
    return TOOLS.passed(node, have, observed=have)


def _version(node: str, request: EnvironmentRequest, look: Mapping[str, Any]) -> Finding:
    version, wanted = look["torch"]["version"], request.main.version
    seen = {"observed": version, "expected": wanted}
    if same_version(public_version(version), public_version(wanted)):
        return VERSION.passed(node, f"torch {version}", **seen)
    return VERSION.fail(node, f"torch {version} is installed, but {wanted} is requested", **seen)


def _variant(node: str, request: EnvironmentRequest, look: Mapping[str, Any]) -> Finding:
    variant, wanted = variant_of(look["torch"]["cuda"]), request.variant
    seen = {"observed": variant, "expected": wanted}
    if variant == wanted or (wanted == "cuda" and variant != "cpu"):
        return VARIANT.passed(node, f"the build is for {variant}", **seen)
    return VARIANT.fail(node, f"the build is for {variant}, but {wanted} is requested", **seen)


def _packages(node: str, request: EnvironmentRequest, look: Mapping[str, Any]) -> Iterator[Finding]:
    pins, there = request.requirements[1:], look["packages"]
    unmet = ", ".join(str(pin) for pin in pins if not pin.met_by(there))
    have = ", ".join(f"{pin.name} {there.get(pin.name, 'none')}" for pin in pins)
    if unmet:
        yield PACKAGES.fail(node, f"{unmet} is requested; installed: {have}", observed=have, expected=unmet)
    elif have:
        yield PACKAGES.passed(node, have, observed=have)


def _backends(node: str, request: EnvironmentRequest, look: Mapping[str, Any]) -> Finding:
    needed = {"gloo", "nccl"} if request.gpus else {"gloo"}
    missing = ", ".join(sorted(needed - set(look["torch"]["backends"])))
    have = ", ".join(look["torch"]["backends"])
    seen = {"observed": have, "expected": ", ".join(sorted(needed))}
    if missing:
        return BACKENDS.fail(node, f"this build does not support the backend {missing}", **seen)
    return BACKENDS.passed(node, f"backends {have}", **seen)


def _devices(node: str, request: EnvironmentRequest, look: Mapping[str, Any]) -> Iterator[Finding]:
    if not request.gpus:
        return
    count = look["torch"]["device_count"]
    summary = f"torch sees {count} of {request.gpus} GPUs"
    seen = {"observed": str(count), "expected": str(request.gpus)}
    if count >= request.gpus:
        yield DEVICES.passed(node, summary, **seen)
    else:
        yield DEVICES.warn(node, summary, command="nvidia-smi", **seen)


def _nccl(node: str, look: Mapping[str, Any]) -> Iterator[Finding]:
    if "nccl" not in look["torch"]["backends"]:
        return
    version, file = look["torch"]["nccl"]["version"], look["torch"]["nccl"]["file"]
    summary = f"NCCL {version or 'of unknown version'} from {file or 'inside torch'}"
    if version:
        yield NCCL.passed(node, summary, observed=version)
    else:
        yield NCCL.unknown(node, summary)
