"""Check whether ranks can open the RDMA adapters. If they cannot, NCCL silently uses sockets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check, skip_all
from ..verdict.finding import evidence
from .rdma import active_ports, is_named, unused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

# The kernel driver of an adapter's device, and the name of its user-space provider (rdma-core, the folders of
# providers/). Drivers that are not listed here are not checked.
PROVIDERS = {
    "mlx5_core": "mlx5",
    "mlx4_core": "mlx4",
    "bnxt_en": "bnxt_re",
    "ice": "irdma",
    "i40e": "irdma",
    "efa": "efa",
    "cxgb4": "cxgb4",
    "hns3": "hns",
    "qede": "qedr",
    "hfi1": "hfi1verbs",
    "erdma": "erdma",
    "mana": "mana",
    "vmw_pvrdma": "vmw_pvrdma",
}
PROVIDER = re.compile(r"lib(.+)-rdmav\d+\.so")
# libibverbs.so.1.14.39.0 belongs to rdma-core 39 (its buildlib, LIBIBVERBS_ABI and PACKAGE_VERSION).
RELEASE = re.compile(r"libibverbs\.so\.1\.\d+\.(\d+)\.\d+")
INSTALL = "sudo apt-get install libibverbs1 ibverbs-providers"
# The network card of a cloud machine is an RDMA adapter, too, and a launch over its TCP may be intended.
GRADE = "fail if InfiniBand is active or NCCL_IB_HCA names an adapter, warn for other Ethernet adapters:"

DEVICES_MISSING = Check(
    "rdma.devices.missing",
    seen="stand-in",
    reads="/dev/infiniband/uverbs*",
    fires=f"{GRADE} a port is active, but these files are missing, so ranks cannot open the adapter",
    fix="Run sudo modprobe ib_uverbs. Start a container with --device /dev/infiniband",
)
VERBS_MISSING = Check(
    "rdma.verbs.missing",
    seen="stand-in",
    reads="libibverbs.so.1, which NCCL opens at startup (nccl, ibvsymbols.cc), in the linker's cache (ldconfig -p)",
    fires=f"{GRADE} a port is active, but the library is missing, so NCCL silently uses sockets",
    fix="Install rdma-core's user space with",
    command=INSTALL,
)
PROVIDER_MISSING = Check(
    "rdma.provider.missing",
    seen="stand-in",
    reads="the kernel driver of each adapter, and the installed providers of libibverbs (rdma-core, providers/)",
    fires=f"{GRADE} libibverbs has no provider for the driver of an active port and does not list the adapter",
    fix="Install rdma-core's providers with",
    command=INSTALL,
)
CHECKS = (DEVICES_MISSING, VERBS_MISSING, PROVIDER_MISSING)
LOOKS = ("verbs",)


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
    look = looks["verbs"]
    release = RELEASE.fullmatch(look["file"])
    return {
        "why": look["why"],
        "library": look["library"],
        "release": int(release[1]) if release else None,
        "folder": look["folder"],
        "providers": sorted({found[1] for name in look["providers"] if (found := PROVIDER.fullmatch(name))}),
        "drivers": look["drivers"],
    }


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    active = active_ports(facts)
    why = unused(facts, request) or ("" if active else "no RDMA port that NCCL would use is active")
    if why:
        yield from skip_all(CHECKS, why)
        return
    node, seen = request["node"], facts["rdma_verbs"]
    certain = is_named(facts) or any(port["layer"] == "InfiniBand" for port in active)
    adapters = sorted({port["device"] for port in active})
    if not facts["rdma"]["uverbs"]:
        container = facts["system"]["container"]
        yield (DEVICES_MISSING.fail if certain else DEVICES_MISSING.warn)(
            node,
            "/dev/infiniband/uverbs* is missing, so ranks cannot open an RDMA adapter",
            "Start the container with --device /dev/infiniband" if container else "Load the kernel module with",
            "" if container else "sudo modprobe ib_uverbs",
        )
    if not seen["library"]:
        yield from _library(node, seen["why"], adapters, certain)
        return
    yield from _providers(node, seen, adapters, certain)


def _library(node: str, why: str, adapters: list[str], certain: bool) -> Iterator[Said]:
    if why:
        yield from skip_all((VERBS_MISSING, PROVIDER_MISSING), f"the linker's cache cannot be read: {why}")
        return
    yield PROVIDER_MISSING.skip("libibverbs, which loads the providers, is missing")
    yield (VERBS_MISSING.fail if certain else VERBS_MISSING.warn)(
        node,
        f"libibverbs.so.1, required for {', '.join(adapters)}, is missing, so launches would silently use sockets",
        "Install the library and its providers with",
        INSTALL,
        observed="none",
        expected="libibverbs.so.1",
        evidence=evidence("ldconfig -p", "no line for libibverbs.so.1"),
    )


def _providers(node: str, seen: Mapping[str, Any], adapters: list[str], certain: bool) -> Iterator[Said]:
    unknown = [name for name in adapters if seen["drivers"].get(name) not in PROVIDERS]
    if unknown:
        drivers = ", ".join(f"{name}: {seen['drivers'].get(name) or 'none'}" for name in unknown)
        yield PROVIDER_MISSING.skip(f"the libibverbs provider for this driver is unknown ({drivers})")
    for provider in sorted({PROVIDERS[seen["drivers"][name]] for name in adapters if name not in unknown}):
        if provider in seen["providers"]:
            continue
        own = [name for name in adapters if PROVIDERS.get(seen["drivers"].get(name, "")) == provider]
        yield (PROVIDER_MISSING.fail if certain else PROVIDER_MISSING.warn)(
            node,
            f"libibverbs has no provider {provider} for {', '.join(own)}, so launches would silently use sockets",
            "Install the library and its providers with",
            INSTALL,
            observed=", ".join(seen["providers"]) or "none",
            expected=provider,
            evidence=evidence(seen["folder"], ", ".join(seen["providers"]) or "no provider"),
        )
