"""The parts of a launch that a job file of another system needs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..launch.launchers import LaunchPlace, argv_of, environment_of
from ..launch.plan import PlanError, chosen_backend, folder_above, part_of, participants, problems_of
from ..verdict.masking import masked_env, secret_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..launch.plan import LaunchRequest, NodeSpec

LAUNCH_ENV_FILE = "launch_env_file"
# Marks a variable of the job in a word. Words of users that contain these private characters are rejected.
BEGIN, END = "\ue000", "\ue001"
VARIABLE = re.compile(f"{BEGIN}([A-Z_]+){END}")
REDIRECTS, TEE = "--redirects=3", "--tee=3"
CANNOT = ", which a job file cannot express"
# Options of a launch without effect in a job file, with what replaces them.
LEFT_OUT = {
    "data": "compare the data on the nodes yourself",
    "fetch": "the results stay in the working folder",
    "stall_timeout": "no replacement",
    "detached": "a job is always detached",
    "spares": "the queue chooses the nodes",
    "min_nodes": "the queue chooses the nodes",
    "checkpoints": "read the newest checkpoint in the script",
}


@dataclass(frozen=True)
class ExportedJob:
    """A launch, independent of the system that runs it.

    nproc: ranks of each node. gpus: GPUs of each node, 0 for a launch on CPUs. words: command of a node; a variable of
    the job is marked, see `marked`. bin_dir: folder of torchrun, "" in an image. folder: working folder, "" for none.
    env: variables without secrets. secrets: names of variables whose values are not exported. nodes_named: nodes that
    the user has chosen. exposed: options of the program whose values look like secrets. left_out: a sentence for each
    option without effect.
    """

    name: str
    nodes: int
    nproc: int
    gpus: int
    port: int
    words: list[str]
    bin_dir: str
    folder: str
    image: str
    time_limit: int
    stop_timeout: int
    restarts: int
    env: dict[str, str]
    secrets: list[str]
    nodes_named: list[str]
    exposed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def marked(name: str) -> str:
    return f"{BEGIN}{name}{END}"


def exported(request: LaunchRequest, inventory: Sequence[NodeSpec], folders: Mapping[str, str]) -> ExportedJob:
    """Return the job. folders: absolute paths on the controller of script_src and project, "" for none. Raises
    PlanError."""
    options, cluster = request.options, request.cluster
    nodes = part_of(participants(list(inventory), options.nodes), options.first_nodes, options.nproc_per_node)
    problems = problems_of(request)
    counts = {node.nproc for node in nodes}
    if len(counts) > 1:
        problems.append(f"The nodes have different numbers of ranks{CANNOT}: set cluster_nproc_per_node.")
    torchruns = {node.torchrun for node in nodes}
    if len(torchruns) > 1:
        problems.append(f"The nodes have different environments (cluster_torchrun){CANNOT}.")
    if BEGIN in "".join([*options.script_args, *options.command, *map(str, options.env.values())]):
        problems.append(f"An argument or variable contains the character {BEGIN!a}{CANNOT}.")
    if problems:
        raise PlanError(problems)
    nproc, torchrun = counts.pop(), torchruns.pop()
    backend = chosen_backend(cluster.backend, nodes)
    image = request.image["source"] if request.image else ""
    folder = options.chdir or folders["project"]
    place = LaunchPlace(
        nnodes=marked("NNODES"),
        node_rank=marked("NODE_RANK"),
        nproc=nproc,
        world_size=nproc * len(nodes),
        master_addr=marked("MASTER_ADDR"),
        master_port=marked("MASTER_PORT"),
        local_addr=marked("LOCAL_ADDR"),
        launch_id=marked("JOB_ID"),
        log_dir=marked("LOG_DIR"),
        timeout=options.rendezvous_timeout,
        project=folders["project"],
    )
    script = folders["script_src"] or options.script
    program = [script] if script else ["-m", options.module] if options.module else []
    first = options.command or ([torchrun] if not image else ["torchrun"])
    words = argv_of(options.command or ["torchrun"], program, options.script_args, place)
    words = [first[0], *words[1:]] if not options.command else words
    # The output of the ranks goes to the job's output as well, where its users look.
    words = [TEE if word == REDIRECTS else word for word in words]
    of_file = {name for name in options.env if request.env_from.get(name) == LAUNCH_ENV_FILE}
    secret = of_file | {name for name, value in masked_env(options.env).items() if value != options.env[name]}
    return ExportedJob(
        name=job_name(script or options.module or first[0]),
        nodes=len(nodes),
        nproc=nproc,
        gpus=nproc if backend == "nccl" else 0,
        port=cluster.master_port,
        words=words,
        bin_dir="" if image else folder_above(torchrun),
        folder=folder,
        image=image,
        time_limit=options.time_limit,
        stop_timeout=options.stop_timeout,
        restarts=options.restarts,
        env={
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            **environment_of(options.command, backend, place),
            **{name: value for name, value in options.env.items() if name not in secret},
        },
        secrets=sorted(secret),
        nodes_named=[node.name for node in nodes] if options.nodes else [],
        exposed=list(dict.fromkeys(secret_options([*options.command, *options.script_args]))),
        left_out=[f"launch_{name}: {why}" for name, why in LEFT_OUT.items() if getattr(options, name)],
    )


def job_name(program: str) -> str:
    """Return the name of a program in the form that all systems accept: letters, digits and hyphens."""
    stem = program.rpartition("/")[2].partition(".")[0]
    return re.sub(r"[^a-z0-9-]+", "-", stem.lower()).strip("-") or "launch"
