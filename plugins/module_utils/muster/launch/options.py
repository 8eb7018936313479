"""The typed options of a launch.

They are created once, when the launch is started or followed, and passed on as one object.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class LaunchOptions:
    """The options of torchrun_launch.

    Most of them are declared in roles/launch/meta/argument_specs.yml, from which the module documentation is generated.
    A test compares names, types and defaults.
    """

    script: str = ""
    script_src: str = ""
    environment: str = ""
    image: str = ""
    image_folders: list[str] = field(default_factory=list)
    project: str = ""
    project_max_mb: int = 100
    data: list[str] = field(default_factory=list)
    module: str = ""
    command: list[str] = field(default_factory=list)
    script_args: list[str] = field(default_factory=list)
    env: dict[str, Any] = field(default_factory=dict)
    env_file: str = ""
    nodes: list[str] = field(default_factory=list)
    first_nodes: int = 0
    nproc_per_node: int = 0
    chdir: str = ""
    stall_timeout: float = 0.0
    rendezvous_timeout: int = 120
    stop_timeout: int = 30
    failure_timeout: int = 5
    silence_timeout: float = 0.0
    min_free_mb: int = 64
    log_max_mb: int = 256
    show_rank: int = -1
    detached: bool = False
    time_limit: int = 0
    wait: bool = False
    wait_timeout: float = 0.0
    shared: bool = False
    restarts: int = 0
    spares: list[str] = field(default_factory=list)
    min_nodes: int = 0
    checkpoints: str = ""
    fetch: list[str] = field(default_factory=list)
    fetch_max_mb: int = 1000
    probe: bool = True
    diagnose: bool = True
    observe: bool = True
    notice_timeout: float = 180.0
    attach: str = ""
    stop: str = ""
    export_to: str = ""
    export_file: str = ""
    run_as: str = "cluster_user"

    @property
    def known(self) -> str:
        """Return the ID of the launch to attach to or to stop; "" for a new launch."""
        return self.attach or self.stop

    def with_local_script(self) -> LaunchOptions:
        """Return the options with a relative script as script_src, because no folder on the nodes contains it."""
        elsewhere = self.script_src or self.project or self.image or self.chdir or self.command
        if not self.script or self.script.startswith("/") or elsewhere:
            return self
        return replace(self, script="", script_src=self.script)

    @property
    def log_max(self) -> int:
        """Return the maximum number of bytes of each rank's output on a node; 0 for no limit."""
        return self.log_max_mb * 1_000_000


@dataclass(frozen=True)
class LaunchCluster:
    """The options of the role cluster that a launch needs. The names lack the prefix `cluster_`."""

    name: str
    user: str
    master_port: int
    run_root: str
    work_root: str
    users_root: str = ""
    artifacts_dir: str = ""
    backend: str = "auto"
    launch_nodes: list[str] = field(default_factory=list)
    run_keep: int = 0
    run_keep_mb: int = 0
    own_environments: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> LaunchCluster:
        return cls(**{one.name: variables[f"cluster_{one.name}"] for one in fields(cls)})
