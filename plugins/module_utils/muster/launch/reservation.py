"""Exclusive slots of a launch on a node: a GPU slot for each rank, or the CPU slot. Decide which launch gets the slots.

A slot is held by a kernel lock (muster_node/launch/seats.py). A launch starts when it holds all of its slots on all
nodes. If several launches try to lock slots at the same time, the launch with the lowest ID keeps trying, and the
others release their slots.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PROCESSORS = "cpu"
GPU = "gpu-{}"


class Holder(TypedDict):
    """A process that holds a resource of a launch. pid: None if the process is not visible; its texts are then empty.

    launch_id: the launch that the process belongs to; "" for none. seconds: time since its start; None if unknown.
    begun: whether the process has child processes, such as the ranks of a launch. detached: whether that launch is
    known to run without a supervisor. manager_of: UID of the user of a user launch; None for an administrator launch.
    ours: whether the process belongs to the requesting launch. launch_id does not prove this, because it can be forged.
    """

    pid: int | None
    name: str
    command: str
    user: str
    unit: str
    launch_id: str
    seconds: float | None
    begun: bool
    detached: bool
    manager_of: int | None
    ours: bool


class Occupied(TypedDict):
    """The holders of each slot. held: holders of the slot's lock. computing: compute processes that nvidia-smi lists.
    why: why nvidia-smi failed.

    uuids: UUIDs of the GPUs, in the order of nvidia-smi.
    """

    held: dict[str, list[Holder]]
    computing: dict[str, list[Holder]]
    uuids: list[str]
    why: str


class ReserveRequest(TypedDict):
    """take: whether the launch tries to lock its slots or releases them. wait, lease: seconds."""

    launch_id: str
    take: bool
    wait: float
    lease: float


class Reserved(TypedDict):
    """held: the holders of each slot of the launch. over: whether the launch's unit has ended."""

    held: dict[str, list[Holder]]
    over: bool


class Move(Enum):
    BEGIN = "this launch holds all slots on all nodes"
    AGAIN = "no other launch has precedence"
    YIELD = "another launch has precedence"


def seats_of(backend: str, nproc: int, env: Mapping[str, str], gpus: int, uuids: Sequence[str]) -> list[str]:
    """Return the slots on a node: a GPU slot for each rank, in CUDA's order.

    If CUDA_VISIBLE_DEVICES contains anything but numbers and UUIDs, such as a MIG instance, the launch could use any
    GPU. It then needs all slots.
    """
    if backend != "nccl":
        return [PROCESSORS]
    visible = env.get("CUDA_VISIBLE_DEVICES")
    numbers: list[int] = []
    for word in [str(number) for number in range(nproc)] if visible is None else visible.split(","):
        name = word.strip()
        named = [number for number, uuid in enumerate(uuids) if name and uuid.startswith(name)]
        if name.isdecimal():
            numbers.append(int(name))
        elif len(named) == 1:
            numbers += named
        else:
            numbers = list(range(gpus))
            break
    else:
        numbers = numbers[:nproc]
    return [GPU.format(number) for number in sorted(set(numbers))]


def decide(launch_id: str, seen: Iterable[Mapping[str, Sequence[Holder]]]) -> Move:
    """Return the next action of a launch. seen: the holders of each slot, for each of the launch's nodes."""
    seats = [holders for held in seen for holders in held.values()]
    others = [holder for holders in seats for holder in holders if not holder["ours"]]
    # A process outside of launches has an empty id, which precedes all others.
    if any(holder["begun"] or holder["launch_id"] < launch_id for holder in others):
        return Move.YIELD
    return Move.AGAIN if others or not all(seats) else Move.BEGIN
