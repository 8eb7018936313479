"""The plan of a launch: every node's exact command and environment, from the inventory alone.

What only the node can say (the name of the interface that carries its address, its number of processors, the
training user's home) is marked in `from_node` and filled in by `complete` when the node has been looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..verdict.masking import masked_argv

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..verdict.redaction import Redaction
    from .messages import Facts

from ..members import quarantine
from ..pytorch import environments
from . import caches, data, fetched, image, launchers
from .options import LaunchCluster, LaunchOptions
from .planned import LaunchPlan, PlannedImage, PlannedNode
from .reservation import seats_of
from .unit import LAUNCH_MARK, LAUNCH_UNIT

MODULE = re.compile(r"^[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
# torchrun reads PET_* as defaults of its flags: one forgotten variable would silently change the plan.
PROJECT = "project"  # in the launch's folder: as muster_node/launch/project.py has it
FORBIDDEN_ENV = re.compile(r"^(PET_.*|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|MUSTER_.*)$")
PORTS = 50  # attempts take their ports in turn from as many
FIRST_PORT = 1024  # that is not root's alone


class PlanError(ValueError):
    """The inventory or the request cannot be launched; `problems` are sentences, all of them at once."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class NodeSpec:
    """One node as the inventory has it, in inventory order."""

    name: str
    address: str
    torchrun: str
    interface: str = ""
    gpus: int = 0
    nproc: int = 1
    quarantined: bool = False
    quarantine: str = ""  # since when, by whom and why, as far as the inventory says

    @classmethod
    def read(cls, name: str, own: Mapping[str, Any], environment: str = "") -> NodeSpec:
        """own: the node's variables of the role cluster. environment: by its name. Raises PlanError."""
        try:
            torchrun = environments.torchrun(own, environment)
        except KeyError:
            raise PlanError([environments.unknown(own, environment)]) from None
        return cls(
            name=name,
            address=own["cluster_address"],
            torchrun=torchrun,
            interface=own["cluster_interface"],
            gpus=own["cluster_gpus"],
            nproc=own["cluster_nproc_per_node"],
            quarantined=bool(own["cluster_quarantined"]),
            quarantine=quarantine.words(own["cluster_quarantined"]),
        )


@dataclass(frozen=True)
class LaunchRequest:
    """What is to be launched. In options, env has the variables of env_file too, and nodes are resolved.

    sent: the name of the script that is sent with the start, "" where the nodes have it. attempt: its number, from 1
    on. work_id: the launch whose work folder this one goes on in, "" for its own. checkpoint: the newest complete one,
    "" where none is known.
    """

    options: LaunchOptions
    cluster: LaunchCluster
    launch_id: str
    sent: str = ""
    env_from: dict[str, str] = field(default_factory=dict)  # the option that gave a variable, by its name
    manager: str = "system"  # or user: in that user's own, by launch.manager.as_own
    more: dict[str, Any] = field(default_factory=dict)  # what the plan carries for later: see carried
    attempt: int = 1
    work_id: str = ""
    checkpoint: str = ""
    project: dict[str, Any] | None = None  # {source, digest, files, bytes}
    image: PlannedImage | None = None  # {source, id, folders}; id: "" until the nodes have said

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> LaunchRequest:
        """Return the request that asdict made these of."""
        options, cluster = LaunchOptions(**given["options"]), LaunchCluster(**given["cluster"])
        return cls(**{**given, "options": options, "cluster": cluster})

    @property
    def script(self) -> str:
        return self.sent or self.options.script


def participants(inventory: list[NodeSpec], chosen: list[str]) -> list[NodeSpec]:
    """The nodes of a launch, in inventory order: all that are not quarantined, or the ones named."""
    names = [node.name for node in inventory]
    problems = [
        f"cluster_launch_nodes names {name!r}, which is not in gpu_nodes." for name in chosen if name not in names
    ]
    quarantined = {node.name: node.quarantine for node in inventory if node.quarantined}
    problems += [
        f"cluster_launch_nodes names {name}, which is quarantined (cluster_quarantined){quarantined[name]}."
        for name in chosen
        if name in quarantined
    ]
    found = [node for node in inventory if not node.quarantined and (not chosen or node.name in chosen)]
    if not found and not problems:
        problems.append("No node takes part: gpu_nodes is empty or every node in it is quarantined.")
    if problems:
        raise PlanError(problems)
    return found


def part_of(nodes: list[NodeSpec], first_nodes: int, nproc: int) -> list[NodeSpec]:
    """Only so many of the participants, with so many ranks each. 0 means all of them, and as many as each has."""
    return [replace(node, nproc=nproc or node.nproc) for node in nodes[: first_nodes or None]]


def chosen_backend(request: str, nodes: list[NodeSpec]) -> str:
    """gloo or nccl; 'auto' means nccl exactly when every participant has GPUs."""
    without = [node.name for node in nodes if node.gpus < 1]
    if request == "nccl" and without:
        raise PlanError([f"cluster_backend is nccl, but {', '.join(without)} has no GPUs (cluster_gpus)."])
    if request not in ("auto", "nccl", "gloo"):
        raise PlanError([f"cluster_backend is {request!r}; it is one of auto, nccl, gloo."])
    if request == "auto":
        return "gloo" if without else "nccl"
    return request


def build_plan(request: LaunchRequest, inventory: list[NodeSpec]) -> LaunchPlan:
    """Return the plan; raises PlanError."""
    options, cluster = request.options, request.cluster
    problems = problems_of(request)
    if problems:
        raise PlanError(problems)
    there = [node for node in inventory if node.name not in options.spares or node.name in options.nodes]
    nodes = part_of(participants(there, options.nodes), options.first_nodes, options.nproc_per_node)
    if problems := launchers.uneven(options.command, {node.name: node.nproc for node in nodes}):
        raise PlanError(problems)
    backend = chosen_backend(cluster.backend, nodes)
    run_dir = f"{cluster.run_root}/{request.launch_id}"
    script = script_path(request, run_dir)
    entries = []
    first_rank = 0
    for node_rank, node in enumerate(nodes):
        place = place_of(request, nodes, node_rank, run_dir)
        env, from_node = environment(request, node, backend, place)
        entries.append(
            PlannedNode(
                node.name,
                node_rank,
                list(range(first_rank, first_rank + node.nproc)),
                node.nproc,
                node.address,
                node.interface or None,
                argv(request, node, script, place),
                env,
                from_node,
                LAUNCH_UNIT.format(request.launch_id),
                run_dir,
                work_dir(request),
                script or None,
                "" if request.image else folder_above(folder_above(node.torchrun)),
                cache_root(request),
            )
        )
        first_rank += node.nproc
    return LaunchPlan(
        request.launch_id,
        cluster.name,
        cluster.user,
        backend,
        nodes[0].address,
        cluster.master_port,
        first_rank,
        entries,
        request.manager,
        launchers.name_of(options.command),
        {name: source_of(request, name) for name in sorted(options.env)},
        request.attempt,
        request.project,
        options.data,
        request.image,
        **request.more,
    )


def carried(options: LaunchOptions, what: str, by: str, at: float) -> dict[str, Any]:
    """What a plan carries for whoever lists, follows or ends the launch, from wherever: what of it is fetched in the
    end (patterns, bytes, and from which folder), what was launched, by whom and when."""
    found: dict[str, Any] = {"what": what, "begun": {"by": by, "at": at}}
    if options.fetch:
        most = options.fetch_max_mb * 1_000_000
        found["fetch"] = {"patterns": options.fetch, "most": most, "folder": options.chdir}
    return found


def problems_of(request: LaunchRequest) -> list[str]:
    """What is wrong with the request itself, whatever the nodes are."""
    options = request.options
    problems = [
        f"{source_of(request, name)} sets {name}, which is the launcher's own."
        for name in options.env
        if FORBIDDEN_ENV.match(name)
    ]
    problems += [
        f"{source_of(request, name)}: {name!r} is no name of an environment variable."
        for name in options.env
        if not ENV_NAME.match(name)
    ]
    script, module = bool(request.script), bool(options.module)
    if not script and not module and not options.command:
        problems.append(
            "There is nothing to launch: set launch_script, launch_script_src, launch_module or launch_command."
        )
    if script and module:
        problems.append("There is a script and a module (launch_module): a launch runs one of them.")
    if module and not MODULE.match(options.module):
        problems.append(f"launch_module is {options.module!r}, which is no name of a module, such as project.train.")
    problems += launchers.problems_of(
        options.command, script=script, chdir=bool(options.chdir), project=request.project is not None
    )
    problems += fetched.problems_of(request.more.get("fetch", {}).get("patterns", []))
    return [*problems, *data.problems_of(options.data)]


def source_of(request: LaunchRequest, name: str) -> str:
    return request.env_from.get(name, "launch_env")


def place_of(request: LaunchRequest, nodes: list[NodeSpec], node_rank: int, run_dir: str) -> launchers.LaunchPlace:
    return launchers.LaunchPlace(
        nnodes=len(nodes),
        node_rank=node_rank,
        nproc=nodes[node_rank].nproc,
        world_size=sum(node.nproc for node in nodes),
        master_addr=nodes[0].address,
        master_port=request.cluster.master_port,
        local_addr=nodes[node_rank].address,
        launch_id=request.launch_id,
        log_dir=f"{run_dir}/logs/torchrun",
        timeout=request.options.rendezvous_timeout,
        project=f"{run_dir}/{PROJECT}" if request.project is not None else "",
    )


def script_path(request: LaunchRequest, run_dir: str) -> str:
    """Where the script is on every node; "" for none."""
    if request.sent:
        return f"{run_dir}/script/{request.script.rsplit('/', 1)[-1]}"
    of_project = request.project is not None and request.script and not request.script.startswith("/")
    return f"{run_dir}/{PROJECT}/{request.script}" if of_project else request.script


def in_project(entry: PlannedNode) -> bool:
    """Whether a node's script comes with the project, so that it is not there before."""
    return (entry.script or "").startswith(f"{entry.run_dir}/{PROJECT}/")


def argv(request: LaunchRequest, node: NodeSpec, script: str, place: launchers.LaunchPlace) -> list[str]:
    """The command of a node: torchrun's, or the one that somebody brings."""
    options = request.options
    program = [script] if script else ["-m", options.module] if options.module else []
    if options.command:
        return launchers.argv_of(options.command, program, options.script_args, place)
    if request.image:
        return launchers.argv_of(image.TORCHRUN, program, options.script_args, place)
    return [node.torchrun, *launchers.argv_of(["torchrun"], program, options.script_args, place)[1:]]


def work_dir(request: LaunchRequest) -> str:
    return f"{request.cluster.work_root}/{request.work_id or request.launch_id}"


def folder_above(path: str) -> str:
    return path.rpartition("/")[0]


def cache_root(request: LaunchRequest) -> str:
    """The user's folder for what is compiled: beside the logs' folder, which is on a disk of the node, and no home."""
    return f"{folder_above(request.cluster.run_root)}/cache/{request.cluster.user}"


def environment(
    request: LaunchRequest, node: NodeSpec, backend: str, place: launchers.LaunchPlace
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environment as far as it is known now, and what is looked up on the node (name -> how)."""
    options, cluster = request.options, request.cluster
    bin_dir = node.torchrun.rsplit("/", 1)[0]
    env = {
        "PATH": f"{bin_dir}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "USER": cluster.user,
        "LOGNAME": cluster.user,
        "PYTHONUNBUFFERED": "1",  # the last words of a dying rank reach its log
        "PYTHONFAULTHANDLER": "1",
        LAUNCH_MARK: request.launch_id,
        "MUSTER_NODE": node.name,
        "MUSTER_BACKEND": backend,
        "MUSTER_ATTEMPT": str(request.attempt),
        **launchers.environment_of(options.command, backend, place),
    }
    if request.checkpoint:
        env["MUSTER_CHECKPOINT"] = request.checkpoint
    from_node = {"HOME": f"home directory of {cluster.user}"}
    if request.image:
        # Its PATH is the image's own, and what a home on the node holds is none of its programs' business.
        del env["PATH"]
        env["HOME"] = options.chdir or work_dir(request)
        from_node = {}
    if node.interface:
        env["GLOO_SOCKET_IFNAME"] = node.interface
        env["NCCL_SOCKET_IFNAME"] = f"={node.interface}"  # "=" asks NCCL for exactly this name, not a prefix
    else:
        how = f"interface that carries {node.address}"
        from_node["GLOO_SOCKET_IFNAME"] = how
        from_node["NCCL_SOCKET_IFNAME"] = f"={how}"
    # torchrun sets 1 where nothing is set and there are several ranks, which wastes most of a CPU node.
    from_node["OMP_NUM_THREADS"] = f"processors / {node.nproc}"
    from_node.update(dict.fromkeys(caches.FOLDERS, f"folder of the environment in {cache_root(request)}"))
    env.update(options.env)
    if request.project is not None:
        env["MUSTER_PROJECT"] = f"{cluster.run_root}/{request.launch_id}/{PROJECT}"
        env["PYTHONPATH"] = ":".join(filter(None, (env["MUSTER_PROJECT"], options.env.get("PYTHONPATH"))))
    return env, {name: how for name, how in from_node.items() if name not in options.env}


def seats(entry: PlannedNode, facts: Facts, backend: str) -> list[str]:
    """What of the node is the launch's alone."""
    return seats_of(backend, entry.nproc, entry.env, facts["gpus"], facts["occupied"]["uuids"])


def complete(entry: PlannedNode, facts: Facts, backend: str, image: str = "") -> PlannedNode:
    """A node's entry with `from_node` filled in from what `prepare` saw on it, and its seats. image: what names the one
    that it runs in, which has folders of its own for what is compiled."""
    interface = entry.interface or facts["interface_of_address"] or ""
    known = {
        "HOME": facts["user"]["home"] if facts["user"] else "",
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": f"={interface}",
        "OMP_NUM_THREADS": str(max(1, facts["cpus"] // entry.nproc)),
        **caches.folders(entry.cache_root, image or facts["environment"]),
    }
    env = {**entry.env, **{name: known[name] for name in entry.from_node}}
    return replace(entry, interface=interface, env=env, from_node={}, seats=seats(entry, facts, backend))


def beat_port(master_port: int) -> int:
    """On which the head node of a detached launch hears of the others: below those that attempts take in turn."""
    return master_port - PORTS if master_port - PORTS >= FIRST_PORT else master_port + PORTS


def masked(plan: LaunchPlan, redaction: Redaction) -> LaunchPlan:
    """The plan as it may be shown and kept: of variables that somebody gave, only what `given` says.

    A plan that an earlier release kept says nothing of them.
    """

    def shown(entry: PlannedNode) -> PlannedNode:
        hidden = entry.env if plan.given is None else plan.given
        env = {name: value for name, value in entry.env.items() if name not in hidden}
        return replace(entry, env=env, argv=[redaction.text(word) for word in masked_argv(entry.argv)])

    return replace(plan, nodes=[shown(entry) for entry in plan.nodes])
