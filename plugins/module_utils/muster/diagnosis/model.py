"""What a diagnosis is made of: texts and symptoms, questions and causes.

A cause is data. It becomes a candidate by a symptom, is proved by a question that is answered with yes about the same
place, and is ruled out by one that refutes it, or when every question that could prove it is answered with no:

    OUT_OF_MEMORY = Cause(
        "process.memory.unit",
        group="process",
        scope="node",
        says="the kernel ended rank {rank} on {node}: the launch's memory limit was reached",
        fix="Raise memory_max of the launch, or use less",
        symptoms=("rank.signal",),
        places=ranks_that_ended,
        confirm=(OOM_KILLS_GREW,),
        refute=(),
    )

`NOT_LOOKED` is never no: a cause whose questions nobody could ask stays a candidate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..verdict.commands import OnNode
    from .case import LaunchCase

    # Where a cause may be, for the symptoms that make it a candidate.
    Places = Callable[[LaunchCase, Sequence["Symptom"]], Iterable["CausePlace"]]

Scope = Literal["process", "node", "link", "pair", "config", "code", "unknown"]
Group = Literal[
    "head",  # the head node cannot be reached
    "agreement",  # the nodes disagree on the launch
    "absent",  # a node is absent or late
    "address",  # a node tells others a wrong address of itself
    "network",  # other ports, packets, loss, a link that was gone for a while
    "process",  # a process ended, crashed, was killed, stopped or frozen
    "program",  # what the ranks compute does not fit together
    "resources",  # disk, shm, files, tasks, processor time
    "drift",  # versions, code, data or clocks differ
    "access",  # a node or its ssh is down, or the controller is cut off
    "gpu",  # GPUs and their fabric
    "interference",  # proxies, container networks, service meshes
]
# The nearer to one process, the earlier it is said where two causes explain as much.
NEAREST: tuple[Scope, ...] = ("process", "node", "link", "pair", "config", "code", "unknown")


@dataclass(frozen=True)
class Symptom:
    """What a rank, a launcher or a node showed. id: of a Text, or one of symptoms.OTHERS. rank: None for the node or
    its launcher. when: controller time, 0 where it is not known. line: as it was printed. about: the named groups.

    victim: it follows from something else, as far as it says. final: it is in the last words; else it was said before,
    and may have been dealt with.
    """

    id: str
    node: str
    rank: int | None = None
    when: float = 0.0
    line: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    victim: bool = False
    final: bool = True


class CausePlace(NamedTuple):
    """Where a cause may lie. what: a word more, such as a path, a port, a variable or an exception."""

    node: str = ""
    peer: str = ""
    rank: int | None = None
    what: str = ""


class CauseAnswer(NamedTuple):
    """word: yes, no or not looked. text, source: what was seen and where; why, for not looked. at: controller time
    from which on it was so, 0 where that is not known."""

    word: Literal["yes", "no", "not looked"]
    text: str = ""
    source: str = ""
    at: float = 0.0


def yes(text: str, source: str, at: float = 0.0) -> CauseAnswer:
    return CauseAnswer("yes", text, source, at)


def no(text: str = "", source: str = "") -> CauseAnswer:
    return CauseAnswer("no", text, source)


def not_looked(why: str) -> CauseAnswer:
    return CauseAnswer("not looked", why)


@dataclass(frozen=True)
class Question:
    """id: dotted. asks: in words, about {node}, {peer}, {rank} and {what}. command: what a person types to see it, in
    the form of verdict/commands.py; on a node, with the same names; "" where nothing can be typed."""

    id: str
    asks: str
    look: Callable[[LaunchCase, CausePlace], CauseAnswer]
    command: str | OnNode = ""


@dataclass(frozen=True)
class Cause:
    """says, fix, and a command on a node: with {node}, {peer}, {rank}, {what}, {address}, {port} (of the head node).
    symptoms: ids that make it a candidate. places: where it may be, for these symptoms. confirm: one yes proves it.
    support: two make it likely. refute: one yes rules it out. decisive: symptoms, among the last words, that alone make
    it likely. instead_of: causes that it explains, and is said in place of. separates: the question, by its id, whose
    answer would tell it from others; that of the first which was not looked at where there is none.
    """

    id: str
    group: Group
    scope: Scope
    says: str
    fix: str
    symptoms: tuple[str, ...]
    places: Places
    confirm: tuple[Question, ...]
    command: str | OnNode = ""
    support: tuple[Question, ...] = ()
    refute: tuple[Question, ...] = ()
    decisive: tuple[str, ...] = ()
    instead_of: tuple[str, ...] = ()
