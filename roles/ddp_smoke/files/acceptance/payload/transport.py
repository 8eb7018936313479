"""Over what the ranks really talked, and what the node's hardware offers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .hardware import offered
from .nccl_log import parse, short
from .sockets import interfaces, own_connections

if TYPE_CHECKING:
    from .context import Context

MOST = 64


def transport(context: Context) -> dict[str, Any]:
    context.at("a first all_reduce")
    if context.world_size > 1:
        dist.all_reduce(torch.ones(1, device=context.device))
        context.wait()
    facts: dict[str, Any] = {"backend": context.backend, "env": settings()}
    if context.local_rank == 0:
        context.at("looking at the node's adapters and links")
        facts["offered"] = offered(with_gpus=context.device.type == "cuda")
    if context.backend == "nccl":
        facts["why_not"] = context.nccl_log.why_not
        if not context.nccl_log.why_not:
            text = context.nccl_log.text()
            facts.update(parse(text))
            if context.options.output:
                folder = Path(context.options.output)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"nccl-{context.rank}.txt").write_text(text, encoding="utf-8")
        return facts
    return {**facts, "net": "gloo/tcp", "channels": [], "sockets": sockets()}


def settings() -> dict[str, str]:
    """The variables that choose a way."""
    names = (
        "GLOO_SOCKET_IFNAME",
        "NCCL_SOCKET_IFNAME",
        "NCCL_IB_DISABLE",
        "NCCL_IB_HCA",
        "NCCL_NET",
        "NCCL_P2P_DISABLE",
    )
    return {name: short(os.environ[name]) for name in names if os.environ.get(name)}


def sockets() -> list[dict[str, Any]]:
    """[{interface, address, peer}] of this rank's connections to other addresses than its own, but the store's."""
    names, port = interfaces(), int(os.environ.get("MASTER_PORT", "0"))
    found = {
        (own[0], other[0]) for own, other in own_connections() if port not in (own[1], other[1]) and own[0] != other[0]
    }
    return [{"interface": names.get(own, ""), "address": own, "peer": other} for own, other in sorted(found)[:MOST]]
