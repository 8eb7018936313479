"""Converts the options of torchrun_launch into a launch request and launch settings."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from muster.launch.plan import LaunchRequest, PlanError, carried
from muster_controller.artifacts.record import operator
from muster_controller.artifacts.runs import launch_id

from .sent_script import sent_body, sent_name, unsendable
from .settings import Settings

if TYPE_CHECKING:
    from muster.launch.options import LaunchCluster, LaunchOptions

    from .given import Given
    from .image import Image
    from .project import Project


def cluster_folder(cluster: LaunchCluster) -> Path:
    """Return the folder in which the controller keeps the runs of the cluster."""
    return Path(cluster.artifacts_dir, cluster.name)


def request_of(
    given: Given,
    options: LaunchOptions,
    cluster: LaunchCluster,
    project: Project | None = None,
    image: Image | None = None,
) -> LaunchRequest:
    """Return the launch request. Raises PlanError."""
    source = options.script_src
    if source and (problem := unsendable(Path(source))):
        raise PlanError([problem])
    if project and not source and (problem := project.script_problem(options.script)):
        raise PlanError([problem])
    command = project.in_command(options.command, chdir=bool(options.chdir)) if project else options.command
    what = Path(source or options.script).name
    return LaunchRequest(
        replace(options, env=given.env, nodes=options.nodes or cluster.launch_nodes, command=command),
        cluster,
        launch_id(cluster_folder(cluster)),
        sent=sent_name(Path(source)) if source else "",
        env_from=given.env_from,
        more=carried(options, what, operator(), time.time()),
        project=project.in_plan if project else None,
        image=image.in_plan if image else None,
    )


def settings_of(
    options: LaunchOptions, cluster: LaunchCluster, project: Project | None = None, image: Image | None = None
) -> Settings:
    source = Path(options.script_src) if options.script_src else None
    return Settings(
        replace(options, detached=options.detached or bool(options.attach)),
        cluster,
        script_name=sent_name(source) if source else "",
        script_body=sent_body(source) if source else b"",
        begun_here=frozenset(path.parent.name for path in cluster_folder(cluster).glob("2*/plan.json")),
        project=project,
        image=image,
    )
