"""A legacy script for torch.distributed.launch, which passed the local rank as an argument.

    python -m torch.distributed.launch --nproc_per_node=2 train_launch.py --epochs 2

train_torchrun.py is the migrated version.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    # torch.distributed.launch adds this argument; newer releases use a hyphen.
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0)
    parser.add_argument("--dist-url", default="env://")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()

    cuda = torch.cuda.is_available()
    device = torch.device("cuda", options.local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(options.local_rank)
    dist.init_process_group("nccl" if cuda else "gloo", init_method=options.dist_url)

    torch.manual_seed(0)
    model = nn.Linear(8, 1).to(device)
    ids = [options.local_rank] if cuda else None
    model = DistributedDataParallel(model, device_ids=ids, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(1)).to(device)
    mine = inputs[dist.get_rank() :: dist.get_world_size()]
    for _ in range(options.epochs):
        loss = (model(mine).squeeze(1) - mine.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"weights {[round(weight, 4) for weight in model.module.weight.flatten().tolist()]}", flush=True)
        torch.save(model.state_dict(), "legacy.pt")


if __name__ == "__main__":
    main()
