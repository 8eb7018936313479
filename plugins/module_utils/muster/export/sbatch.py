"""A launch as a batch script for Slurm: one task per node runs the launcher, with the node rank that Slurm assigns."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from .job import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .job import ExportedJob

MARK = "# Written by Muster"
# The address of a node is the one that slurmctld uses, so that no name is resolved on the nodes.
ADDRESS = """scontrol -o show node "$1" | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p'"""
NO_IMAGE = (
    "launch_image is not exported to Slurm. Add the options of your site's container plugin to the script yourself, "
    "such as --container-image of pyxis"
)
PORTS = 100  # jobs on the same nodes at the same time get different ports


def sbatch(job: ExportedJob) -> str:
    """Return the text of the script. It needs nothing of Muster where it runs."""
    if job.image:
        raise ValueError(NO_IMAGE)
    return "\n".join([*_head(job), "", *_preparation(job), "", *_run(job), ""])


def _head(job: ExportedJob) -> Iterator[str]:
    yield "#!/bin/bash"
    yield f"{MARK}. Submit it with: sbatch FILE. Slurm assigns the nodes and their ranks."
    yield f"#SBATCH --job-name={job.name}"
    yield f"#SBATCH --nodes={job.nodes}"
    if job.nodes_named:
        yield f"#SBATCH --nodelist={','.join(job.nodes_named)}"
    yield "# One task per node: torchrun, which starts the ranks."
    yield "#SBATCH --ntasks-per-node=1"
    if job.gpus:
        yield f"#SBATCH --gres=gpu:{job.gpus}"
    else:
        yield f"#SBATCH --cpus-per-task={job.nproc}"
    yield "#SBATCH --output=%x-%j.out"
    yield "#SBATCH --open-mode=append"
    if job.time_limit:
        minutes = -(-job.time_limit // 60)
        yield f"#SBATCH --time={minutes}"
    yield "# SIGTERM before the time limit, so that a script can write a checkpoint (launch_stop_timeout)."
    yield f"#SBATCH --signal=TERM@{max(job.stop_timeout, 60)}"
    yield f"#SBATCH --{'requeue' if job.restarts else 'no-requeue'}"
    for sentence in job.left_out:
        yield f"# Not exported: {sentence}"


def _preparation(job: ExportedJob) -> Iterator[str]:
    yield "set -euo pipefail"
    yield f"address() {{ {ADDRESS}; }}"
    yield "export -f address"
    if job.restarts:
        yield "# The first attempt has no SLURM_RESTART_COUNT."
        yield f'if [ "${{SLURM_RESTART_COUNT:-0}}" -gt {job.restarts} ]; then'
        yield '    echo "no further attempt (launch_restarts)"; exit 1'
        yield "fi"
    if job.secrets:
        yield "# Secrets are not in this file. Export them before sbatch, which passes them on."
        for name in job.secrets:
            yield f': "${{{name}:?export {name} before you run sbatch}}"'
    yield 'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    yield 'MASTER_ADDR=$(address "$head")'
    yield f"MASTER_PORT=$(({job.port} + SLURM_JOB_ID % {PORTS}))"
    yield "NNODES=$SLURM_NNODES JOB_ID=$SLURM_JOB_ID"
    yield "LOG_DIR=$PWD/logs-$SLURM_JOB_ID"
    yield "export MASTER_ADDR MASTER_PORT NNODES JOB_ID LOG_DIR"
    for name, value in job.env.items():
        # Values with the rank of a node are set on the node.
        if not VARIABLE.search(value):
            yield f"export {name}={quoted(value)}"


def _run(job: ExportedJob) -> Iterator[str]:
    inside = [
        "set -eu",
        'export NODE_RANK=$SLURM_NODEID LOCAL_ADDR=$(address "$SLURMD_NODENAME")',
        "# NodeAddr may be a name.",
        """numeric=$(getent ahosts "$LOCAL_ADDR" | awk 'NR == 1 {print $1}')""",
        """interface=$(ip -o address show | awk -v a="$numeric" '{split($4, p, "/"); if (p[1] == a) print $2}')""",
        'if [ -n "$interface" ]; then',
        '    export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-$interface}"',
        '    export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-=$interface}"',
        "fi",
        f"threads=$(($(nproc) / {job.nproc}))",
        "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}",
    ]
    if job.bin_dir:
        inside.append(f"export PATH={quoted(job.bin_dir)}:$PATH")
    inside += [f"export {name}={quoted(value)}" for name, value in job.env.items() if VARIABLE.search(value)]
    if job.folder:
        inside.append(f"cd {quoted(job.folder)}")
    inside.append("exec " + " ".join(quoted(word) for word in job.words))
    yield "# The first rank that fails ends the job on all nodes."
    end = "MUSTER_TASK"
    while end in "\n".join(inside):  # an argument may have lines of its own
        end += "_"
    yield f"task=$(cat <<'{end}'"
    yield from inside
    yield end
    yield ")"
    yield 'srun --kill-on-bad-exit=1 --label bash -c "$task"'


def quoted(word: str) -> str:
    """Return one word of the shell. Marked variables are expanded, everything else is literal."""
    parts, at = [], 0
    for found in VARIABLE.finditer(word):
        literal = word[at : found.start()]
        parts += [shlex.quote(literal) if literal else "", f'"${found[1]}"']
        at = found.end()
    rest = word[at:]
    return "".join([*parts, shlex.quote(rest) if rest or not parts else ""])
