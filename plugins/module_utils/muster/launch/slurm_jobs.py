"""Findings about jobs of Slurm on a node: a direct launch must not use resources that Slurm has given to a job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypedDict

from ..verdict.check import Check
from ..verdict.commands import on_node
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..verdict.finding import Finding

GPUS = re.compile(r"\b(?:gpu|shard|mps)(?::(?:\(null\)|[^:,()]*))?:(\d+)")
SLURM = Check(
    "launch.slurm",
    seen="sandbox",
    reads="`squeue` and `scontrol -d show node` for the node, if slurmd is running on it",
    fires="a job of Slurm is on the node: for a launch on GPUs, a job with GPUs, or any job if more GPUs are in use "
    "than squeue shows (fail; warn with launch_shared). The job in whose allocation the command runs (SLURM_JOB_ID) "
    "does not count. The jobs could not all be read (warn)",
    fix="Submit the launch to Slurm (muster export --to sbatch), run it in an allocation (salloc), or wait for the job",
)


class SlurmJob(TypedDict):
    """A job on a node. gres: its generic resources per node, as squeue prints them."""

    id: str
    user: str
    gres: str


class SlurmJobs(TypedDict):
    """The jobs on a node. used: generic resources in use (GresUsed of scontrol). why: why jobs could be missing."""

    jobs: list[SlurmJob]
    used: str
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
    used = _gpus(seen["used"])
    # squeue prints no GPUs for a job with --gpus: if the other jobs do not explain those in use, each may have them.
    known = sum(_gpus(job["gres"]) or (used if job["id"] == own_job else 0) for job in seen["jobs"])
    others = [job for job in seen["jobs"] if job["id"] != own_job]
    jobs = [job for job in others if "gpu" in job["gres"] or used > known or not gpus]
    if jobs or (gpus and used > known):
        named = few([f"{job['id']} of {job['user']}" for job in jobs])
        text = f"Slurm runs {'jobs' if len(jobs) > 1 else 'job'} {named} on this node"
        command = on_node(node, "scontrol show job {job}", job=jobs[0]["id"]) if jobs else on_node(node, "squeue")
        finding = SLURM.warn if shared else SLURM.fail
        fix = "Submit the launch with muster export --to sbatch, run it inside salloc, or wait. Show the job with"
        text = text if jobs else f"Slurm has given GPUs of this node to jobs: {seen['used']}"
        yield finding(node, text, fix, command, observed=jobs[0]["id"] if jobs else seen["used"])


def _gpus(gres: str) -> int:
    """Return the number of GPUs in a text such as gpu:h100:2(IDX:0-1) or gres/gpu:2."""
    return sum(int(number) for number in GPUS.findall(gres))
