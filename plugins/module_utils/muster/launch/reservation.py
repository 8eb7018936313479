"""What a launch needs of a node for itself alone, its seats: a GPU each, or the processors. Who has them, and who wins.

A seat is held by a lock of the kernel (muster_node/launch/seats.py). A launch that has all of its seats on all nodes
begins; of several that take theirs in the same instant, the one with the lowest id tries on, and the others let go.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PROCESSORS = "cpu"
GPU = "gpu-{}"


class Holder(TypedDict):
    """A process that has something which a launch needs. pid: None where it cannot be seen, and its texts are empty.

    launch_id: of the launch that it belongs to, "" for none. seconds: since it began, None where it is not known.
    begun: whether it has started processes of its own, as a launch does with its ranks. detached: whether that launch
    goes on without a supervisor, as far as that is seen. manager_of: the uid of whose own launch it is; None for an
    administrator's. ours: it is of the very launch that asks; ids alone can be forged.
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
    """By seat. held: by its lock. computing: on a GPU, as nvidia-smi lists it; why: it could not be asked.

    uuids: of the GPUs, in the order of nvidia-smi.
    """

    held: dict[str, list[Holder]]
    computing: dict[str, list[Holder]]
    uuids: list[str]
    why: str


class ReserveRequest(TypedDict):
    """take: whether the launch tries to have its seats from now on, else it lets go. wait, lease: seconds."""

    launch_id: str
    take: bool
    wait: float
    lease: float


class Reserved(TypedDict):
    """By seat that the launch needs, who holds it now. over: the launch's unit has ended."""

    held: dict[str, list[Holder]]
    over: bool


class Move(Enum):
    BEGIN = "all seats are ours on every node"
    AGAIN = "nobody has a better right"
    YIELD = "another has a better right"


def seats_of(backend: str, nproc: int, env: Mapping[str, str], gpus: int, uuids: Sequence[str]) -> list[str]:
    """The seats of one node: a GPU for each rank, in the order in which CUDA shows them to the ranks.

    What CUDA_VISIBLE_DEVICES names in another way than by number or UUID (a MIG instance) may lie on any of the GPUs.
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
    """What a launch does next. seen: of each of its nodes, who holds each seat that it needs there."""
    seats = [holders for held in seen for holders in held.values()]
    others = [holder for holders in seats for holder in holders if not holder["ours"]]
    # A process outside of every launch has no id, which comes before all others.
    if any(holder["begun"] or holder["launch_id"] < launch_id for holder in others):
        return Move.YIELD
    return Move.AGAIN if others or not all(seats) else Move.BEGIN
