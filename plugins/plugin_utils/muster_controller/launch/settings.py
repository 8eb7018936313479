"""What a launch needs beside its plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.launch.options import LaunchCluster, LaunchOptions

    from .image import Image
    from .project import Project


@dataclass(frozen=True)
class Settings:
    """options: detached where the launch is attached to. script_name, script_body: of the script that is sent.

    begun_here: launches with a plan here. earlier: attempts of the same launch, which must have ended on a node before
    it starts.
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
