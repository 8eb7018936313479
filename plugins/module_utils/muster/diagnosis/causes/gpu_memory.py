"""The memory of a GPU: full of the rank's own, or of others', or so that nobody can tell.

Who had how much is in torch's own message; whose the rest was, in what was seen of the node.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...verdict.words import gigabytes
from ..digests import environment
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..said import said
from .gpu import OWN, SMI, VISIBLE, found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..case import LaunchCase
    from ..model import CauseAnswer, Symptom

MUCH = 0.2  # of a GPU's memory, in the hands of another process
MOST_OF_IT = 0.6  # in the hands of the process that asked for more
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIZE = r"(?P<{0}>[\d.]+) (?P<{0}_unit>[KMGT]iB)"
TOTAL = re.compile(r"total capaci?ty of " + SIZE.format("size") + r"|; " + SIZE.format("older") + r" total capacity")
THIS = re.compile(
    r"this process has " + SIZE.format("size") + r"|; " + SIZE.format("older") + r" (?:already )?allocated"
)
ASKED = re.compile(r"Tried to allocate " + SIZE.format("size"))
NUMBER = re.compile(r"GPU (\d+)(?: has a total|;)")
OTHER = re.compile(r"Process (?P<pid>\d+) has " + SIZE.format("size") + r" memory in use")
FULL = ("cuda.out_of_memory", "cuda.not_enough_memory")


def ranks_that_met(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    return (CausePlace(one.node, rank=one.rank) for one in by if one.node and one.final and one.rank is not None)


def out_of_memory_words(case: LaunchCase, place: CausePlace) -> str:
    return next((f"{one.summary}\n{one.traceback}" for one in case.all_failures if one.rank == place.rank), "")


def amount(match: re.Match[str] | None) -> float:
    if match is None:
        return 0.0
    name = "size" if match["size"] is not None else "older"
    return float(match[name]) * UNITS[match[f"{name}_unit"]]


def of_its_own(much: bool) -> Callable[[LaunchCase, CausePlace], CauseAnswer]:
    """Whether most of the GPU's memory was in its own hands, or only a small part."""

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        words = out_of_memory_words(case, place)
        total, mine = amount(TOTAL.search(words)), amount(THIS.search(words))
        if not total or not mine:
            return not_looked("the message does not say who has how much")
        said = f"it had {gigabytes(mine)} of {gigabytes(total)}"
        return yes(said, f"last words of rank {place.rank}") if (mine >= MOST_OF_IT * total) == much else no(said)

    return look


def beyond_the_whole(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Whether what it had, and what it asked for, is more than the GPU has: then no other one is the reason."""
    words = out_of_memory_words(case, place)
    total, mine, asked = (amount(one.search(words)) for one in (TOTAL, THIS, ASKED))
    if not total or not asked:
        return not_looked("the message does not say how much was asked for, and of how much")
    said = f"it asked for {gigabytes(asked)} and had {gigabytes(mine)}, of {gigabytes(total)}"
    return yes(said, f"last words of rank {place.rank}") if mine + asked > total else no(said)


def full_of_others(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    words = out_of_memory_words(case, place)
    total, own = amount(TOTAL.search(words)), {shot["pid"] for _, shot in case.shots.values()}
    for match in OTHER.finditer(words):
        if total and amount(match) >= MUCH * total and int(match["pid"]) not in own and own:
            text = f"process {match['pid']} had {gigabytes(float(match['size']) * UNITS[match['size_unit']])} of it"
            return yes(text, f"last words of rank {place.rank}")
    return not_looked("whose the other processes were is not known") if OTHER.search(words) and not own else no()


def taken_before(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    start, number = case.seen["start"].get(place.node), NUMBER.search(out_of_memory_words(case, place))
    if start is None or start["gpus"] is None:
        return not_looked(case.why_not(place.node, "gpus"))
    if number is None or VISIBLE in (environment(case, place.node) or {}):
        return not_looked("which GPU it was is not known")
    for gpu in start["gpus"]:
        used, total = gpu["memory_used"], gpu["memory_total"]
        if gpu["index"] == int(number[1]) and used and total and used >= MUCH * total:
            by = f" by process {gpu['processes'][0]}" if gpu["processes"] else ""
            return yes(
                f"GPU {gpu['index']} had {gigabytes(used)} in use{by}", f"nvidia-smi on {place.node} at the start"
            )
    return no("that GPU was not in use when the launch began")


OWN_MEMORY = Question("gpu.memory.own", "did rank {rank} fill the memory of its GPU itself?", of_its_own(True))
LITTLE_OF_ITS_OWN = Question("gpu.memory.little", "had rank {rank} only a small part of it?", of_its_own(False))
BEYOND = Question("gpu.memory.beyond", "did rank {rank} ask for more than its whole GPU has?", beyond_the_whole)
OTHERS_MEMORY = Question("gpu.memory.others", "had other processes much of the memory?", full_of_others, SMI)
TAKEN_BEFORE = Question(
    "gpu.memory.before", "was memory of a GPU of {node} taken before the launch?", taken_before, SMI
)

CAUSES = (
    Cause(
        "gpu.memory.others",
        group="gpu",
        scope="node",
        says="other processes hold memory of the GPU that rank {rank} on {node} uses",
        fix="Look whose they are, and wait for them or end them",
        command=SMI,
        symptoms=FULL,
        places=ranks_that_met,
        confirm=(OTHERS_MEMORY, TAKEN_BEFORE),
        support=(
            *(found("gpu.process.foreign", "a foreign process"), found("gpu.memory.held", "memory that nobody owns")),
            LITTLE_OF_ITS_OWN,
        ),
        refute=(BEYOND,),
        instead_of=(*OWN, "gpu.memory.own", "gpu.memory.full"),
    ),
    Cause(
        "gpu.memory.own",
        group="gpu",
        scope="process",
        says="rank {rank} on {node} needs more memory than its GPU has",
        fix="Use smaller batches or sequences, mixed precision or checkpointing of activations",
        symptoms=("cuda.out_of_memory",),
        places=ranks_that_met,
        confirm=(OWN_MEMORY, BEYOND),
        instead_of=(*OWN, "gpu.memory.full"),
    ),
    Cause(
        "gpu.memory.full",
        group="gpu",
        scope="process",
        says="the memory of the GPU that rank {rank} on {node} uses is full, of its own or of other processes",
        fix="End what others hold there, or use smaller batches; who holds it is shown by",
        command=SMI,
        symptoms=FULL,
        places=ranks_that_met,
        confirm=(said("said.memory_full", "did CUDA find the memory of the GPU of rank {rank} full?", *FULL),),
        instead_of=OWN,
    ),
)
