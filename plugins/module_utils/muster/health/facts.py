"""What was looked at on a node (muster_node/look_health.py), made into facts: small, and without what nobody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..gpu_info import facts as gpu_facts
from ..inspect import facts as inspect_facts
from . import environment, ethernet, host, jobs, pci, ras, rdma

if TYPE_CHECKING:
    from collections.abc import Mapping


def facts(looks: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a node, by subject; request: the options of nccl_health."""
    known = inspect_facts.facts({name: looks[name] for name in ("system", "services", "clock", "disk")})
    gpu = gpu_facts.facts(looks["gpu"])
    inside = looks["unit"]["inside"]
    variables = environment.facts_of(looks["host"], inside)
    if inside:
        # What is reported of the environment is reported there, and secrets are covered.
        inside = {name: value for name, value in inside.items() if name not in ("environment", "nccl_conf")}
    later = looks["later"]
    return {
        "system": known["system"],
        "looked_as": known["looked_as"],
        "firewall": known["firewall"],
        "clock": known["clock"],
        "disk": known["disk"],
        "skipped": known["skipped"],
        "training_user": looks["users"]["training_user"],
        "unit": {**looks["unit"], "inside": inside},
        "gpu": gpu,
        "driver": gpu["driver"],
        "host": host.facts_of(looks["host"]),
        "environment": variables,
        "jobs": jobs.facts_of(looks, request["port"]),
        "ras": ras.facts_of(looks["ras"]),
        "ethernet": ethernet.facts_of(looks["ethernet"], later["ethernet"]),
        "rdma": rdma.facts_of(looks["rdma"], later["rdma"], environment.chosen_adapters(variables["nccl_conf"])),
        "pci": pci.facts_of(looks["pci"]),
        "kernel_log": looks["kernel_log"],
        "code": looks["code"],
        "collective": looks["collective"],
    }
