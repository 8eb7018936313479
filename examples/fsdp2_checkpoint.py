"""FSDP2 with a distributed checkpoint that can be loaded with a different number of processes.

    torchrun --nproc-per-node=3 fsdp2_checkpoint.py save DIR
    torchrun --nproc-per-node=2 fsdp2_checkpoint.py load DIR

Each process holds and writes its shard of each parameter. DIR must be the same for all processes: use a shared file
system on several machines. Requires PyTorch 2.6 or newer.
"""

import gc
import hashlib
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS = 5


def build():
    """Layers that are sharded separately, so that only one is unsharded at a time. 10 and 7 do not divide evenly."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 10), nn.GELU(), nn.Linear(10, 7), nn.GELU(), nn.Linear(7, 4))
    mesh = init_device_mesh("cuda" if dist.get_backend() == "nccl" else "cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(model, optimizer, device):
    for step in range(STEPS):
        torch.manual_seed(step)
        inputs = torch.randn(12, 16, device=device)
        mine = inputs[dist.get_rank() :: dist.get_world_size()]
        model(mine).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def digest(model):
    """Return a digest of the full parameters, gathered from all processes."""
    found = hashlib.sha256()
    for name, part in model.state_dict().items():
        whole = part.full_tensor().cpu().contiguous()
        found.update(name.encode() + bytes(whole.view(torch.uint8).flatten().tolist()))
    return found.hexdigest()


def work(verb, folder, device):
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if verb == "save":
        train(model, optimizer, device)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    if verb == "save":
        dcp.save(state, checkpoint_id=folder)
    else:
        dcp.load(state, checkpoint_id=folder)  # into the shards of this process
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    facts = {"event": verb, "processes": dist.get_world_size(), "parameters_sha256": digest(model)}
    if dist.get_rank() == 0:
        print(json.dumps(facts), flush=True)


def main():
    verb, folder = sys.argv[1:]
    backend = os.environ.get("MUSTER_BACKEND") or ("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    try:
        work(verb, folder, device)
    finally:
        gc.collect()  # first free objects that hold the group: no Gloo thread may outlive Python
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
