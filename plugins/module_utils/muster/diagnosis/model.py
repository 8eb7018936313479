"""Data model of a diagnosis: symptoms, questions and causes.

A cause is data. A symptom makes it a candidate. A question answered with yes for the same place confirms it. It is
ruled out by a question that refutes it, or if every question that could confirm it is answered with no:

    OUT_OF_MEMORY = Cause(
        "process.memory.unit",
        scope="node",
        says="the kernel killed rank {rank} on {node}: the launch's memory limit was reached",
        fix="Increase memory_max of the launch, or use less memory",
        symptoms=("rank.signal",),
        places=ranks_that_ended,
        confirm=(OOM_KILLS_GREW,),
        refute=(),
    )

The answer "not looked" does not count as "no": a cause stays a candidate if its questions could not be checked. In a
log alone, an answer "no" without a source, such as a line that nobody printed, does not rule out a cause either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..verdict.commands import OnNode
    from .case import LaunchCase

    # Returns the possible places of a cause for the symptoms that make it a candidate.
    Places = Callable[[LaunchCase, Sequence["Symptom"]], Iterable["CausePlace"]]

Scope = Literal["process", "node", "link", "pair", "config", "code", "unknown"]
Group = Literal[
    "head",  # the head node cannot be reached
    "agreement",  # launch parameters differ between nodes
    "absent",  # a node is absent or late
    "address",  # a node announces a wrong address
    "network",  # other ports, packets, loss, a temporary link failure
    "process",  # a process ended, crashed, was killed, stopped or frozen
    "program",  # the ranks' computations do not match
    "resources",  # disk, shm, files, tasks, CPU time
    "drift",  # versions, code, data or clocks differ
    "access",  # a node or its ssh is down, or the controller has no connection
    "gpu",  # GPUs and their fabric
    "interference",  # proxies, container networks, service meshes
    "before",  # what failed before the launch: driver modules, packages, logins
]
# Of causes that explain equally many symptoms, the one nearest to a process comes first.
NEAREST: tuple[Scope, ...] = ("process", "node", "link", "pair", "config", "code", "unknown")


@dataclass(frozen=True)
class Symptom:
    """A symptom of a rank, a launcher or a node. id: the id of a Text, or one of symptoms.OTHERS. rank: None for a
    symptom of the node or its launcher. when: controller time, 0 if unknown. line: as printed. about: the values of the
    pattern's named groups.

    victim: the symptom appears to be a consequence of another failure. final: the symptom is in the last output;
    earlier lines may report errors that the program handled.
    """

    id: str
    node: str
    rank: int | None = None
    when: float = 0.0
    line: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    victim: bool = False
    final: bool = True

    @property
    def counts(self) -> bool:
        """Return whether the symptom can explain the end of its rank: it is in the last output, or a warning of NCCL,
        whose exceptions do not name the reason."""
        return self.final or self.id.startswith("nccl.")


class CausePlace(NamedTuple):
    """A place where a cause can apply. what: a detail, such as a path, a port, a variable or an exception."""

    node: str = ""
    peer: str = ""
    rank: int | None = None
    what: str = ""


class CauseAnswer(NamedTuple):
    """The answer to a question. word: yes, no or not looked. text, source: the observation and its source; for not
    looked, text is the reason. at: controller time when the observed state began, 0 if unknown."""

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
    """A question whose answer confirms a cause or rules it out. id: dotted. asks: the question as text, with {node},
    {peer}, {rank} and {what}. command: a command that shows the answer, in the form of verdict/commands.py, with the
    same placeholders; "" if there is none. by_hand: a command for nodes that are in no inventory, if it differs.
    by_words: the answer is taken from printed lines alone, so that "yes" makes a cause likely and does not confirm
    it."""

    id: str
    asks: str
    look: Callable[[LaunchCase, CausePlace], CauseAnswer]
    command: str | OnNode = ""
    by_hand: str | OnNode = ""
    by_words: bool = False


@dataclass(frozen=True)
class Cause:
    """A cause of a failed or hanging launch. says, fix, command on a node: with placeholders {node}, {peer}, {rank},
    {what}, {address}, {port} (of the head node). symptoms: ids of symptoms that make the cause a candidate. places:
    returns the possible places of the cause for these symptoms. confirm: one answer "yes" confirms the cause. support:
    two answers "yes" make it likely. refute: one answer "yes" rules it out. decisive: symptoms in the last output that
    alone make the cause likely. instead_of: causes that this cause explains and replaces. restates: the cause only
    describes how a rank or launcher ended, so that any cause of a known line in its output comes first. group: by
    default, the first part of the id."""

    id: str
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
    restates: bool = False
    group: Group | Literal[""] = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", self.group or self.id.partition(".")[0])
