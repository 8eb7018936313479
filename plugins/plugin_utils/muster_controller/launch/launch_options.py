"""What the options of torchrun_launch come to: what is to be launched, how it goes on, and what else it needs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.launch.attempts import Policy
from muster.launch.plan import LaunchRequest, PlanError, carried
from muster_controller.artifacts.record import operator
from muster_controller.artifacts.runs import launch_id

from .sent_script import sent_body, sent_name, unsendable
from .settings import Settings

if TYPE_CHECKING:
    from .given import Given
    from .image import Image
    from .project import Project


def cluster_folder(cluster: dict[str, Any]) -> Path:
    """Where the controller keeps the runs of the cluster."""
    return Path(cluster["cluster_artifacts_dir"], cluster["cluster_name"])


def request_of(
    given: Given,
    options: dict[str, Any],
    cluster: dict[str, Any],
    project: Project | None = None,
    image: Image | None = None,
) -> LaunchRequest:
    """What is to be launched. Raises PlanError."""
    source = options["script_src"]
    if source and (problem := unsendable(Path(source))):
        raise PlanError([problem])
    if project and not source and (problem := project.script_problem(options["script"])):
        raise PlanError([problem])
    return LaunchRequest(
        cluster=cluster["cluster_name"],
        launch_id=launch_id(cluster_folder(cluster)),
        user=cluster["cluster_user"],
        script=sent_name(Path(source)) if source else options["script"],
        script_is_sent=bool(source),
        args=given.args,
        env=given.env,
        env_from=given.env_from,
        backend=cluster["cluster_backend"],
        port=cluster["cluster_master_port"],
        nodes=options["nodes"] or cluster["cluster_launch_nodes"],
        first_nodes=options["first_nodes"],
        nproc=options["nproc_per_node"],
        chdir=options["chdir"],
        run_root=cluster["cluster_run_root"],
        work_root=cluster["cluster_work_root"],
        rendezvous_timeout=options["rendezvous_timeout"],
        spares=options["spares"],
        more=carried(
            options["fetch"],
            options["fetch_max_mb"] * 1_000_000,
            options["chdir"],
            Path(source or options["script"]).name,
            operator(),
            time.time(),
        ),
        module=options["module"],
        command=project.in_command(options["command"], chdir=bool(options["chdir"])) if project else options["command"],
        project=project.in_plan if project else None,
        data=options["data"],
        image=image.in_plan if image else None,
    )


def policy_of(options: dict[str, Any]) -> Policy:
    return Policy(options["restarts"], tuple(options["spares"]), options["min_nodes"], options["checkpoints"])


def settings_of(
    options: dict[str, Any], cluster: dict[str, Any], project: Project | None = None, image: Image | None = None
) -> Settings:
    source = Path(options["script_src"]) if options["script_src"] else None
    return Settings(
        user=cluster["cluster_user"],
        stop_timeout=options["stop_timeout"],
        stall_timeout=options["stall_timeout"],
        rendezvous_timeout=options["rendezvous_timeout"],
        min_free_bytes=options["min_free_mb"] * 1_000_000,
        keep=cluster["cluster_run_keep"],
        keep_bytes=cluster["cluster_run_keep_mb"] * 1_000_000,
        log_max=options["log_max_mb"] * 1_000_000,
        detached=options["detached"] or bool(options["attach"]),
        time_limit=options["time_limit"],
        chdir=options["chdir"],
        script_name=sent_name(source) if source else "",
        script_body=sent_body(source) if source else b"",
        wait=options["wait"],
        wait_timeout=options["wait_timeout"],
        shared=options["shared"],
        begun_here=frozenset(path.parent.name for path in cluster_folder(cluster).glob("2*/plan.json")),
        run_as=options["run_as"],
        failure_timeout=options["failure_timeout"],
        silence_timeout=options["silence_timeout"],
        probe=options["probe"],
        observe=options["observe"],
        notice_timeout=options["notice_timeout"],
        project=project,
        image=image,
    )
