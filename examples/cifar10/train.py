"""Train a ConvNet on CIFAR-10 in one process, on the GPUs of one machine, or on several machines.

    python train.py                                          one process, synthetic data
    torchrun --nproc-per-node=2 train.py --data DIR          two processes, data from DIR/cifar-10-python.tar.gz
    torchrun --nproc-per-node=2 train.py --resume            continue from output/checkpoint.pt if it exists

Requires only PyTorch 2.3 or newer. Copy the script and replace build_model and load_data with your model and data.
On SIGTERM, it writes a checkpoint after the next step and exits with 0. Run it again with --resume.
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import gc
import hashlib
import io
import json
import math
import os
import pickle
import resource
import shutil
import signal
import tarfile
import time
import urllib.request
from contextlib import nullcontext
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CLASSES = 10
ARCHIVE = "cifar-10-python.tar.gz"
MD5 = "c58f30108f718f92721af3b95e74349a"  # as published: https://www.cs.toronto.edu/~kriz/cifar.html
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training images, per channel


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--data", type=Path, help=f"folder with {ARCHIVE}; default: synthetic data")
    add("--download", action="store_true", help="download the archive to --data if missing, once per machine")
    add("--samples", type=int, default=10240, help="number of synthetic images to train on")
    add("--output", type=Path, default=Path("output"), help="folder for checkpoint.pt, weights.pt, tensorboard/")
    add("--resume", action="store_true", help="continue from the checkpoint in --output if it exists")
    add("--epochs", type=int, default=10)
    add("--global-batch", type=int, default=768, help="samples per optimizer step over all processes")
    add("--micro-batch", type=int, default=256, help="maximum samples on the device of a process")
    add("--width", type=int, default=32, help="channels of the first layer, a multiple of 8")
    add("--learning-rate", type=float, default=0.1)
    add("--clip", type=float, default=1.0, help="maximum gradient norm")
    add("--precision", choices=["auto", "fp32", "bf16", "fp16"], default="auto", help="auto: bf16 if supported")
    add(
        "--compress",
        choices=["no", "fp16", "bf16", "powersgd"],
        default="no",
        help="gradient compression; bf16: GPUs only",
    )
    add("--log-every", type=int, default=10, metavar="STEPS")
    add("--checkpoint-every", type=int, default=0, metavar="STEPS", help="0: after each epoch")
    add("--num-workers", type=int, default=2, help="data loader workers per training process")
    add("--seed", type=int, default=0)
    add("--deterministic", action="store_true", help="reproducible results, also on GPUs; slower")
    add("--profile", action="store_true", help="write a trace of steps 4 to 6 of rank 0 into --output")
    return parser.parse_args()


# --- The processes -------------------------------------------------------------------------------------------------


class Team:
    """Rank and device of this process. A single process is a team of one, so that other code needs no special case."""

    def __init__(self):
        self.rank, self.size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        backend = os.environ.get("MUSTER_BACKEND") or ("nccl" if torch.cuda.is_available() else "gloo")
        self.device = torch.device("cuda", self.local_rank) if backend == "nccl" else torch.device("cpu")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # before any other GPU access
        # Without torchrun, there are no other processes and a local store is sufficient.
        place = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
        dist.init_process_group(backend, timeout=timedelta(minutes=20), **place)
        self.stop = False
        signal.signal(signal.SIGTERM, self.on_sigterm)

    def on_sigterm(self, *_):
        self.stop = True  # only set a flag: during a step, the other processes wait for this one

    def reduce(self, values, operation=dist.ReduceOp.SUM):
        """Reduce the numbers of all processes."""
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, operation)
        return tensor.tolist()

    def say(self, event, **facts):
        """Print a JSON line from rank 0. Muster shows and stores lines with the mark @muster."""
        if self.rank == 0:
            mark = "@muster " if "MUSTER_LAUNCH_ID" in os.environ else ""
            print(mark + json.dumps({"event": event, **facts}), flush=True)


# --- The data ------------------------------------------------------------------------------------------------------


def load_data(options, team):
    """Return (images, labels) for training and for testing; images are uint8, 3 x 32 x 32."""
    if options.data is None:
        team.say("data", source="SYNTHETIC: a pattern for each class, and noise. --data DIR takes the real CIFAR-10")
        count = options.samples
        images, labels = synthetic(count + count // 5, options.seed)
        return (images[:count], labels[:count]), (images[count:], labels[count:])
    archive = options.data / ARCHIVE
    if options.download:
        if team.local_rank == 0:  # one process per machine; the others wait
            fetch(archive)
        dist.barrier()
    if not archive.is_file():
        raise FileNotFoundError(f"{archive} is not there: put it there, or add --download")
    published = md5(archive) == MD5
    team.say("data", source=f"{archive}, {'CIFAR-10 as published' if published else 'which is not the published one'}")
    with tarfile.open(archive) as tar:
        files = {Path(member.name).name: member for member in tar if member.isfile()}
        names = sorted(name for name in files if name.startswith("data_batch_"))
        parts = [read_batch(tar.extractfile(files[name])) for name in names]
        test = read_batch(tar.extractfile(files["test_batch"]))
    return tuple(torch.cat(part) for part in zip(*parts, strict=True)), test


def synthetic(count, seed):
    random = torch.Generator().manual_seed(seed)
    # Coarse patterns, so that shifts and flips change them only slightly.
    patterns = F.interpolate(torch.rand(CLASSES, 3, 4, 4, generator=random), size=32, mode="bilinear")
    labels = torch.randint(CLASSES, (count,), generator=random)
    images = torch.empty(count, 3, 32, 32, dtype=torch.uint8)
    for part in torch.arange(count).split(1024):
        noise = torch.randn(len(part), 3, 32, 32, generator=random)
        images[part] = (255 * patterns[labels[part]] + 50 * noise).clamp(0, 255).byte()
    return images, labels


def fetch(archive):
    """Download the archive unless it exists. Keep only a complete archive with the right checksum."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with open(archive.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run on this machine may be downloading
        if archive.is_file():
            return
        part = archive.with_suffix(f".{os.getpid()}.part")
        address = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
        with urllib.request.urlopen(address, timeout=60) as answer, open(part, "wb") as file:
            shutil.copyfileobj(answer, file)
        if md5(part) != MD5:
            part.unlink()
            raise ValueError(f"what came from {address} is not CIFAR-10 as published: its md5 is not {MD5}")
        part.rename(archive)


def md5(path):
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


class Raw:
    """Replacement for NumPy arrays and types in a pickle. Stores their contents and executes nothing."""

    state = ()

    def __init__(self, *_):
        pass

    def __setstate__(self, state):
        self.state = state


class ArrayUnpickler(pickle.Unpickler):
    """Unpickler that allows only arrays. A pickle could otherwise call any function."""

    def find_class(self, module, name):
        if module.partition(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype"):
            return Raw
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes for Python 2
            return codecs.encode
        raise pickle.UnpicklingError(f"{module}.{name} has no place in CIFAR-10")


def read_batch(file):
    batch = ArrayUnpickler(file, encoding="bytes").load()
    _, shape, _, column_major, content = batch[b"data"].state
    if column_major or shape[1:] != (3072,):
        raise ValueError(f"{file.name} holds an array of {shape}, not of images")
    images = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, 3, 32, 32)
    return images, torch.tensor(batch[b"labels"])


class Shard(DistributedSampler):
    """Samples of this process in each epoch, without the samples processed before a resume."""

    skip = 0

    def __iter__(self):
        return islice(super().__iter__(), self.skip, None)


# --- The model -----------------------------------------------------------------------------------------------------


def build_model(width):
    def block(inputs, outputs):
        # GroupNorm, because BatchNorm statistics depend on the number of processes.
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return nn.Sequential(convolution, nn.GroupNorm(8, outputs), nn.ReLU(), nn.MaxPool2d(2))

    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, CLASSES))
    return nn.Sequential(block(3, width), block(width, 2 * width), block(2 * width, 4 * width), head)


def normalized(images, device):
    images = images.to(device, non_blocking=True).float() / 255
    return (images - torch.tensor(MEAN, device=device).view(3, 1, 1)) / torch.tensor(STD, device=device).view(3, 1, 1)


def augmented(images, rank=0, size=1):
    """Return the images shifted by up to four pixels, and half of them flipped.

    The images are every size-th image of the global batch, starting with index rank. Random numbers are drawn for the
    whole global batch, so that the result does not depend on the number of processes.
    """
    count, device = len(images), images.device
    mirrored = torch.rand(count * size, 1, 1, 1, device=device)[rank::size] < 0.5
    images = torch.where(mirrored, images.flip(3), images)
    shifts = torch.randint(9, (2, count * size, 1), device=device)[:, rank::size]
    rows, columns = shifts + torch.arange(32, device=device)
    one, channel = torch.arange(count, device=device).view(-1, 1, 1, 1), torch.arange(3, device=device).view(1, 3, 1, 1)
    return F.pad(images, (4, 4, 4, 4))[one, channel, rows.view(count, 1, 32, 1), columns.view(count, 1, 1, 32)]


# --- Training ------------------------------------------------------------------------------------------------------


class Trainer:
    """Model, optimizer, schedule and scaler."""

    def __init__(self, options, team, share):
        self.options, self.team, self.step = options, team, 0
        torch.manual_seed(options.seed)  # the same weights on all ranks
        gpu = team.device.type == "cuda"
        self.precision = options.precision
        if self.precision == "auto":
            self.precision = "bf16" if gpu and torch.cuda.is_bf16_supported() else "fp32"
        ids = [team.local_rank] if gpu else None
        self.model = DistributedDataParallel(
            build_model(options.width).to(team.device), ids, gradient_as_bucket_view=True
        )
        if options.compress == "powersgd":
            state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=10)
            self.model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        elif options.compress != "no":
            self.model.register_comm_hook(None, getattr(default_hooks, f"{options.compress}_compress_hook"))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0, momentum=0.9, weight_decay=5e-4, nesterov=True)
        self.scaler = torch.amp.GradScaler(team.device.type, enabled=self.precision == "fp16")
        self.micro_batch = self.warm_up(min(options.micro_batch, share))

    def loss(self, images, labels):
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        with torch.autocast(self.team.device.type, kind, enabled=kind is not None):
            return F.cross_entropy(self.model(images), labels, reduction="sum")

    def warm_up(self, size):
        """Return the largest micro-batch that fits into the memory of all processes. Determined before the first step,
        because the other processes would wait in a collective if one process failed during a step."""
        while not self.fits(size):
            if size == 1:
                raise MemoryError("there is not enough memory on the GPU for a single image")
            size = (size + 1) // 2
        size = int(self.team.reduce([size], dist.ReduceOp.MIN)[0])
        # DDP rebuilds its buckets after the first all-reduce. Done here, a resumed run adds gradients in the same order
        # as an uninterrupted run and produces bitwise equal results.
        self.loss(*self.blank(size)).backward()
        self.optimizer.zero_grad()
        return size

    def fits(self, size):
        try:
            momentum = [torch.empty_like(parameter) for parameter in self.model.parameters()]  # optimizer state
            with self.model.no_sync():
                self.loss(*self.blank(size)).backward()
            return bool(momentum)
        except torch.cuda.OutOfMemoryError:
            return False
        finally:
            self.optimizer.zero_grad()
            torch.cuda.empty_cache()

    def blank(self, size):
        images = torch.zeros(size, 3, 32, 32, device=self.team.device)
        return images, torch.zeros(size, dtype=torch.long, device=self.team.device)

    def train_step(self, images, labels, learning_rate):
        """Run one optimizer step for the global batch. Return the mean loss of this process."""
        # The seed of a step is its number, so that checkpoints need no random state.
        torch.manual_seed(self.options.seed * 1_000_003 + self.step)
        images, labels = normalized(images, self.team.device), labels.to(self.team.device)
        images = augmented(images, self.team.rank, self.team.size)
        parts = list(zip(images.split(self.micro_batch), labels.split(self.micro_batch), strict=True))
        total = 0.0
        for number, part in enumerate(parts, start=1):
            # Gradients accumulate locally and are reduced once, with the last micro-batch.
            with nullcontext() if number == len(parts) else self.model.no_sync():
                loss = self.loss(*part) / len(images)
                self.scaler.scale(loss).backward()
            total += loss.detach()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.scaler.unscale_(self.optimizer)  # clip the unscaled gradient norm
        nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.step += 1
        return float(total)

    @torch.inference_mode()
    def evaluate(self, images, labels):
        """Return the accuracy over all test images. DistributedSampler is not used, because it would repeat some."""
        correct, mine = 0, torch.arange(self.team.rank, len(images), self.team.size)
        for part in mine.split(1024):
            predicted = self.model.module(normalized(images[part], self.team.device)).argmax(1)
            correct += int((predicted.cpu() == labels[part]).sum())
        correct, total = self.team.reduce([correct, len(mine)])
        return round(correct / total, 4)

    def state(self):
        # Without the number of processes: the global batches do not depend on it.
        same = {name: getattr(self.options, name) for name in ("seed", "global_batch", "epochs", "learning_rate")}
        parts = {"model": self.model.module, "optimizer": self.optimizer, "scaler": self.scaler}
        return same, parts

    def save(self, path):
        """Write the checkpoint on rank 0 atomically: after a crash, either the old or the new checkpoint exists."""
        same, parts = self.state()
        if self.team.rank == 0:
            write(path, {"step": self.step, **same, **{name: part.state_dict() for name, part in parts.items()}})

    def load(self, path):
        """Load the checkpoint of rank 0 on all processes. No shared file system is required."""
        content = [path.read_bytes() if self.team.rank == 0 and path.is_file() else None]
        dist.broadcast_object_list(content)
        if content[0] is None:
            return
        kept = torch.load(io.BytesIO(content[0]), map_location=self.team.device, weights_only=True)
        same, parts = self.state()
        for name, value in same.items():
            if kept[name] != value:
                raise ValueError(f"{path} was written with {name} {kept[name]}, and this run has {value}")
        for name, part in parts.items():
            part.load_state_dict(kept[name])
        self.step = kept["step"]
        self.team.say("resumed", checkpoint=str(path), step=self.step)

    def memory(self):
        """Return the maximum memory of a process in MB, on its GPU or on the host."""
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        used = torch.cuda.max_memory_allocated() if self.team.device.type == "cuda" else used
        return round(self.team.reduce([used], dist.ReduceOp.MAX)[0] / 1e6)


def write(path, state):
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def parameters_sha256(model):
    """Return a digest of all weights."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode() + bytes(value.cpu().contiguous().view(torch.uint8).flatten().tolist()))
    return digest.hexdigest()


def warm_cosine(step, steps):
    """Return the learning rate factor of a step."""
    return min(1.0, (step + 1) / max(1, steps // 20)) * 0.5 * (1 + math.cos(math.pi * step / steps))


def open_board(options, team):
    if team.rank != 0 or not find_spec("tensorboard"):  # optional, not part of PyTorch
        return None
    return import_module("torch.utils.tensorboard").SummaryWriter(options.output / "tensorboard")


def profiler(options, team, steps):
    if not options.profile or team.rank != 0:
        return nullcontext()
    if steps < 6:
        team.say("no trace", steps=steps, needed=6)
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=2, warmup=1, active=3, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(str(options.output / "profile")),
    )


def run(options, team, trainer, loader, test):
    """Train and return the summary, or None if the processes were asked to stop."""
    checkpoint, per_epoch = options.output / "checkpoint.pt", len(loader.dataset) // options.global_batch
    steps, first, board = options.epochs * per_epoch, trainer.step, open_board(options, team)
    began, busy, loss, rate, accuracy = time.monotonic(), 0.0, None, None, None
    with profiler(options, team, steps - first) as profile:
        while trainer.step < steps:
            epoch, done = divmod(trainer.step, per_epoch)
            loader.sampler.set_epoch(epoch)  # a new order per epoch, the same on all processes
            loader.sampler.skip = done * loader.batch_size
            clock = time.monotonic()
            for images, labels in loader:
                part = options.learning_rate * warm_cosine(trainer.step, steps)
                # One small all-reduce per step for the loss and the stop flag, so that all processes stop together.
                own = trainer.train_step(images, labels, part)
                loss, stop = team.reduce([own / team.size, team.stop])
                step, now = trainer.step, time.monotonic()
                if step > first + 1:  # the first step includes initialization
                    busy += now - clock
                    rate = round(options.global_batch * (step - first - 1) / busy, 1)
                if step % options.log_every == 0 or step == steps:
                    team.say("step", step=step, steps=steps, loss=round(loss, 4), samples_per_second=rate)
                    if board:
                        board.add_scalar("loss", loss, step)
                if profile:
                    profile.step()
                if stop or step % (options.checkpoint_every or per_epoch) == 0:
                    trainer.save(checkpoint)
                if stop:
                    return team.say("stopped", step=step, checkpoint=str(checkpoint))
                clock = time.monotonic()
            accuracy = trainer.evaluate(*test)
            team.say("epoch", epoch=epoch + 1, epochs=options.epochs, accuracy=accuracy)
            if board:
                board.add_scalar("accuracy", accuracy, trainer.step)
    seconds = round(time.monotonic() - began, 3)
    if board:
        board.close()
    if accuracy is None:  # resumed after the last step
        accuracy = trainer.evaluate(*test)
    facts = {"seconds": seconds, "samples_per_second": rate, "loss": loss and round(loss, 4)}
    return {**facts, "accuracy": accuracy, "memory_mb": trainer.memory()}


def train(options, team):
    if options.global_batch % team.size:
        better = math.ceil(options.global_batch / team.size) * team.size
        raise ValueError(f"--global-batch {options.global_batch} is no multiple of {team.size} processes; {better} is")
    if options.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic cuBLAS
        torch.use_deterministic_algorithms(True)
    options.output.mkdir(parents=True, exist_ok=True)
    training, test = load_data(options, team)
    share = options.global_batch // team.size
    sampler = Shard(TensorDataset(*training), team.size, team.rank, seed=options.seed, drop_last=True)
    workers = {"num_workers": options.num_workers, "persistent_workers": options.num_workers > 0}
    gpu = team.device.type == "cuda"
    loader = DataLoader(sampler.dataset, share, sampler=sampler, drop_last=True, pin_memory=gpu, **workers)
    trainer = Trainer(options, team, share)
    if options.resume:
        trainer.load(options.output / "checkpoint.pt")
    how = {"processes": team.size, "device": team.device.type, "precision": trainer.precision}
    how.update(global_batch=options.global_batch, accumulation=math.ceil(share / trainer.micro_batch))
    team.say("start", **how)
    facts = run(options, team, trainer, loader, test)
    if facts:
        if team.rank == 0:
            write(options.output / "weights.pt", trainer.model.module.state_dict())  # .module: loadable without DDP
        team.say("summary", **how, **facts, parameters_sha256=parameters_sha256(trainer.model.module))


def main():
    options, team = read_options(), Team()
    try:
        train(options, team)
    finally:
        gc.collect()  # first free objects that hold the group: no Gloo thread may outlive Python
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
