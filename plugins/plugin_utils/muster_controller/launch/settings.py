"""The settings of a launch in addition to its plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.launch.options import LaunchCluster, LaunchOptions

    from .image import Image
    from .project import Project


@dataclass(frozen=True)
class Settings:
    """options: detached is set when attaching to a launch. script_name, script_body: the script to send. begun_here:
    the launches of which this controller has the plan. earlier: previous attempts of this launch, which must have ended
    on a node before the attempt starts there.
    """

    options: LaunchOptions
    cluster: LaunchCluster
    script_name: str = ""
    script_body: bytes = b""
    begun_here: frozenset[str] = frozenset()
    earlier: tuple[str, ...] = ()
    project: Project | None = None
    image: Image | None = None

    def of_attempt(self, earlier: tuple[str, ...], time_limit: int) -> Settings:
        return replace(self, earlier=earlier, options=replace(self.options, time_limit=time_limit))
