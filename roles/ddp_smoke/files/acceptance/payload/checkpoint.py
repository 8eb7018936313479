"""A checkpoint as a training should have it: written whole or not at all, loaded everywhere, and enough to go on from.

Rank 0 writes it so that it is there whole or not at all (whole_file.py). One that is torn nevertheless is refused, and
the one before it is used. Then the run that goes on from it must come to what the uninterrupted one came to.
"""

from __future__ import annotations

import hashlib
import io
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn import functional

from . import model, whole_file

if TYPE_CHECKING:
    from .context import Context

STEPS = 3  # before the interruption, and behind it
PER_RANK = 4
NAME = "checkpoint-{:06d}.pt"
SIGN = "of-rank-0"


class CheckpointJob:
    """A training with everything that its next step depends on."""

    def __init__(self, context: Context, seed: int) -> None:
        self.context = context
        self.wrapped = model.wrap(model.seeded_net(seed), context)
        self.optimizer = model.momentum_sgd(self.wrapped)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2, gamma=0.5)
        # It grows within a few steps, so that its state counts.
        self.scaler = torch.amp.GradScaler(context.device.type, init_scale=1024.0, growth_interval=2)
        self.patterns = model.class_patterns(context.options.seed, model.SMALL)
        self.step = 0
        # DDP arranges its buckets anew behind the first backward pass, and with them the order of each sum. Both runs
        # are to be behind that: this pass is thrown away.
        self.backward()
        self.optimizer.zero_grad()

    def backward(self) -> None:
        context = self.context
        seed = context.options.seed + 1 + self.step * context.world_size + context.rank
        inputs, labels = (part.to(context.device) for part in model.batch(self.patterns, PER_RANK, seed))
        # As augmentation does it: from the device's own random numbers, which a checkpoint has to hold.
        inputs = inputs + 0.1 * torch.randn_like(inputs)
        self.scaler.scale(functional.cross_entropy(self.wrapped(inputs), labels)).backward()

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.context.at(f"step {self.step + 1}")
            self.optimizer.zero_grad()
            self.backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.schedule.step()
            self.step += 1

    def state(self) -> dict[str, Any]:
        """Of all ranks: the random numbers differ, the rest does not."""
        return {
            "model": self.wrapped.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "step": self.step,
            "random": self.context.gather(self.random()),
        }

    def random(self) -> list[torch.Tensor]:
        states = [torch.get_rng_state()]
        if self.context.device.type == "cuda":
            states.append(torch.cuda.get_rng_state(self.context.device))
        return states

    def load(self, state: dict[str, Any]) -> None:
        self.wrapped.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.scaler.load_state_dict(state["scaler"])
        self.step = state["step"]
        own = state["random"][self.context.rank]
        torch.set_rng_state(own[0])
        if len(own) > 1:
            torch.cuda.set_rng_state(own[1], self.context.device)


def checkpoint(context: Context) -> dict[str, Any]:
    with ExitStack() as stack, model.exact(context.device):
        told = ["", ""]
        if context.rank == 0:
            try:
                folder = stack.enter_context(context.folder())
                (folder / SIGN).write_text(str(folder))
                told[0] = str(folder)
            except OSError as problem:
                told[1] = f"no folder for it: {problem}"
        # The path that all know it under; other nodes may have no folder of that name, or another one.
        dist.broadcast_object_list(told, src=0, device=context.device)
        return unwritten(context, told[1]) if told[1] else interrupted(context, Path(told[0]))


def unwritten(context: Context, problem: str) -> dict[str, Any]:
    """What all say when rank 0 could not write: nobody waits for it."""
    if context.rank == 0:
        context.wrong.append(f"no checkpoint can be written: {problem}")
    return {"shared": False, "bytes": 0, "torn": "", "used": "", "refused": [problem], "problem": ""}


def sees(folder: Path) -> bool:
    """Whether this is rank 0's folder, and no other of that name."""
    try:
        return (folder / SIGN).read_text() == str(folder)
    except OSError:
        return False


def interrupted(context: Context, folder: Path) -> dict[str, Any]:
    shared = sees(folder)
    job = CheckpointJob(context, context.options.seed)
    job.train(STEPS)
    size, problem = save(context, folder, job)
    if problem:
        return unwritten(context, problem)
    job.train(1)
    _, problem = save(context, folder, job)
    if problem:
        return unwritten(context, problem)
    torn = folder / NAME.format(job.step)
    if context.rank == 0:
        os.truncate(torn, size // 2)  # the newest is torn on purpose: the one before it has to be used
    job.train(STEPS - 1)
    facts: dict[str, Any] = {"shared": shared, "bytes": size, "torn": torn.name}
    body, said = load(context, folder, shared=shared)
    facts |= said
    if body is None:
        return facts
    resumed = CheckpointJob(context, context.options.seed + 1 + context.rank)
    resumed.load(torch.load(io.BytesIO(body), map_location="cpu", weights_only=True))
    facts["resumed_at"] = resumed.step
    resumed.train(2 * STEPS - resumed.step)
    return facts | same(context, job, resumed)


def save(context: Context, folder: Path, job: CheckpointJob) -> tuple[int, str]:
    """Return how many bytes a checkpoint has, and why it could not be written; nobody goes on before that is known."""
    state = job.state()
    told: list[Any] = [0, ""]
    if context.rank == 0:
        content = io.BytesIO()
        torch.save(state, content)
        name = NAME.format(job.step)
        try:
            told[0] = whole_file.write(folder / name, content.getvalue())
        except OSError as problem:
            told[1] = f"{name} cannot be written: {problem}"
    dist.broadcast_object_list(told, src=0, device=context.device)
    return told[0], told[1]


def load(context: Context, folder: Path, *, shared: bool) -> tuple[bytes | None, dict[str, Any]]:
    """The checkpoint that rank 0 chose: from the folder where it is seen, else from rank 0; None: there is none."""
    context.at("loading the checkpoint")
    told: list[Any] = ["", "", []]
    chosen = None
    if context.rank == 0:
        name, chosen, refused = whole_file.newest(folder, "checkpoint-*.pt")
        told = [name, hashlib.sha256(chosen or b"").hexdigest(), refused]
    dist.broadcast_object_list(told, src=0, device=context.device)
    name, wanted, refused = told
    facts = {"used": name, "refused": refused, "problem": ""}
    if not name:
        if context.rank == 0:
            context.wrong.append(f"no checkpoint can be loaded: {', '.join(refused) or 'none is there'}")
        return None, facts
    own = None
    if shared:
        try:
            own = whole_file.read(folder / name)
            if hashlib.sha256(own).hexdigest() != wanted:
                own, facts["problem"] = None, f"{name} is not what rank 0 reads"
        except (whole_file.TornError, OSError) as problem:
            facts["problem"] = f"{name} {problem}"
    if facts["problem"]:
        context.wrong.append(f"the checkpoint that rank 0 wrote cannot be loaded: {facts['problem']}")
    if all(context.gather(own is not None)):
        return own, facts
    sent = [chosen]
    dist.broadcast_object_list(sent, src=0, device=context.device)
    return own or sent[0], facts


def same(context: Context, job: CheckpointJob, resumed: CheckpointJob) -> dict[str, Any]:
    """The run that went on from the checkpoint, against the one that was not interrupted."""
    relative, absolute = model.TOLERANCE[torch.float32]
    worst = model.apart(resumed.wrapped.module.named_parameters(), job.wrapped.module.parameters(), relative, absolute)
    bitwise = model.parameters_sha256(resumed.wrapped.module) == model.parameters_sha256(job.wrapped.module)
    rest = [
        name
        for name, one, other in (
            ("step", resumed.step, job.step),
            ("schedule", resumed.schedule.get_last_lr(), job.schedule.get_last_lr()),
            ("scaler", resumed.scaler.get_scale(), job.scaler.get_scale()),
        )
        if one != other
    ]
    # On GPUs some sums are taken in any order: https://docs.pytorch.org/docs/stable/notes/randomness.html
    must = context.device.type == "cpu"
    if rest or worst["excess"] > 1 or (must and not bitwise):
        context.wrong.append("the resumed run is not equal to the uninterrupted one")
    digest = model.parameters_sha256(resumed.wrapped.module)
    return {"bitwise": bitwise, "must": must, "worst": worst, "other": rest, "parameters_sha256": digest}
