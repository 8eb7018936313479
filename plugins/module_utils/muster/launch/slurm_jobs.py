"""Findings about jobs of Slurm on a node: a direct launch must not use resources that Slurm has given to a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ..verdict.check import Check
from ..verdict.commands import on_node
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..verdict.finding import Finding

SLURM = Check(
    "launch.slurm",
    seen="sandbox",
    reads="`squeue` for the node, if slurmd is running on it",
    fires="a job of Slurm is on the node: for a launch on GPUs, a job with GPUs (fail; warn with launch_shared). The "
    "job in whose allocation the command runs (SLURM_JOB_ID) does not count. squeue fails (warn)",
    fix="Submit the launch to Slurm (muster export --to sbatch), run it in an allocation (salloc), or wait for the job",
)


class SlurmJob(TypedDict):
    """A job on a node. gres: its generic resources per node, as squeue prints them."""

    id: str
    user: str
    gres: str
    name: str


class SlurmJobs(TypedDict):
    """The jobs on a node. why: why squeue failed; "" if it did not."""

    jobs: list[SlurmJob]
    why: str


def on_the_node(
    node: str, seen: SlurmJobs | None, *, gpus: bool, own_job: str = "", shared: bool = False
) -> Iterator[Finding]:
    """Yield the findings. seen: None without slurmd. gpus: whether the launch uses GPUs. own_job: the ID of the job in
    whose allocation the command runs."""
    if seen is None:
        return
    if seen["why"]:
        text = f"the jobs of Slurm on this node are unknown: {seen['why']}"
        yield SLURM.warn(node, text, "Check with", on_node(node, "squeue"))
    jobs = [job for job in seen["jobs"] if job["id"] != own_job and ("gpu" in job["gres"] or not gpus)]
    if jobs:
        named = few([f"{job['id']} ({job['name']}) of {job['user']}" for job in jobs])
        text = f"Slurm runs {'jobs' if len(jobs) > 1 else 'job'} {named} on this node"
        command = on_node(node, "scontrol show job {job}", job=jobs[0]["id"])
        finding = SLURM.warn if shared else SLURM.fail
        fix = "Submit the launch with muster export --to sbatch, run it inside salloc, or wait. Show the job with"
        yield finding(node, text, fix, command, observed=jobs[0]["id"])
