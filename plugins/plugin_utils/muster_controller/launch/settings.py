"""What a launch needs beside its plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .image import Image
    from .project import Project


@dataclass(frozen=True)
class Settings:
    """Times in seconds. Meanings: roles/launch/meta/argument_specs.yml. begun_here: launches with a plan here.

    probe: whether the participants call each other before the start.
    earlier: attempts of the same launch, which must have ended on a node before it starts.
    """

    user: str
    stop_timeout: int
    stall_timeout: float
    rendezvous_timeout: int
    min_free_bytes: int
    keep: int
    keep_bytes: int
    log_max: int
    detached: bool
    time_limit: int
    chdir: str
    script_name: str
    script_body: bytes
    wait: bool = False
    wait_timeout: float = 0.0
    shared: bool = False
    begun_here: frozenset[str] = frozenset()
    earlier: tuple[str, ...] = ()
    run_as: str = "cluster_user"
    failure_timeout: int = 5
    silence_timeout: float = 0.0
    probe: bool = False
    observe: bool = False
    notice_timeout: float = 0.0
    project: Project | None = None
    image: Image | None = None
