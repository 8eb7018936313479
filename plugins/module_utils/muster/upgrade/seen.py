"""What a node says of who is at work there and of its environments, as far as it can be used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from ..verdict.reading import Flag, Limit, read_one
from .busy import at_work
from .previous import Environments, environments

Text = Annotated[str, Limit(most=4000, raw=True)]
Words = Annotated[str, Limit(most=4000, raw=True, instead="")]


class WorkProcess(TypedDict):
    pid: int
    name: Words
    owner: Words
    cgroup: Words
    launch: Words
    command: Words
    started: Annotated[float | None, Limit(instead=None)]
    devices: Annotated[list[Text], Limit(instead=[])]
    runs_from: Flag
    people: Flag


class WorkAnswer(TypedDict):
    why: Text
    link: Text
    environments: Annotated[list[Text], Limit(most=200)]
    processes: Annotated[list[WorkProcess], Limit(most=200)]
    uptime: Words


@dataclass(frozen=True)
class WorkSeen:
    """Of one node. silent: why nothing is known."""

    busy: tuple[str, ...] = ()
    environments: Environments = field(default_factory=Environments)
    silent: str = ""


def read(answer: Any) -> WorkSeen:
    """What nobody could look at counts as somebody's work: nobody is disturbed for not being seen."""
    said: WorkAnswer | None = read_one(WorkAnswer, answer)
    if said is None:
        return WorkSeen(silent="its answer is of no use")
    busy = at_work(said["processes"], said["uptime"])
    return WorkSeen((*filter(None, [said["why"]]), *busy), environments(said["link"], said["environments"]))
