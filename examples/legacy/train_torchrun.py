"""train_launch.py migrated to torchrun, which passes the ranks in environment variables.

torchrun --nproc-per-node=2 train_torchrun.py --epochs 2
"""

import argparse
import gc
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])  # was the argument --local_rank
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if cuda else "gloo")  # env:// is the default and reads the variables of torchrun
    try:
        train(options.epochs, device, [local_rank] if cuda else None)
    finally:
        gc.collect()  # first free objects that hold the group: no Gloo thread may outlive Python
        dist.destroy_process_group()  # was missing


def train(epochs, device, ids):
    torch.manual_seed(0)
    # Without find_unused_parameters, which searches the graph in each step: all parameters are used here.
    model = DistributedDataParallel(nn.Linear(8, 1).to(device), device_ids=ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(1)).to(device)
    mine = inputs[dist.get_rank() :: dist.get_world_size()]
    for _ in range(epochs):
        loss = (model(mine).squeeze(1) - mine.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"weights {[round(weight, 4) for weight in model.module.weight.flatten().tolist()]}", flush=True)
        torch.save(model.module.state_dict(), "legacy.pt")  # without .module, all names have the prefix "module."


if __name__ == "__main__":
    main()
