"""Build the plan of a launch from the inventory alone: the exact command and environment of every node.

Values that only the node knows (the interface with its address, its number of CPUs, the training user's home) are
listed in `from_node`. `complete` fills them in after the node was inspected.
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
from ..packages.mirrors import proxy_environment
from ..pytorch import environments
from . import caches, data, fetched, image, launchers
from .options import LaunchCluster, LaunchOptions
from .planned import USER, LaunchPlan, PlannedFetch, PlannedImage, PlannedNode
from .reservation import seats_of
from .unit import LAUNCH_MARK, LAUNCH_UNIT

MODULE = re.compile(r"^[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
# torchrun reads PET_* as defaults of its flags: a leftover variable would silently change the plan.
PROJECT = "project"  # in the launch's folder, as in muster_node/launch/project.py
FORBIDDEN_ENV = re.compile(r"^(PET_.*|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|MUSTER_.*)$")
PORTS = 50  # number of ports that attempts use in turn
FIRST_PORT = 1024  # the first unprivileged port


class PlanError(ValueError):
    """The inventory or the request is not valid for a launch. `problems` contains all problems as sentences."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class NodeSpec:
    """A node of the inventory. http_proxy, https_proxy, no_proxy: cluster_http_proxy and its companions."""

    name: str
    address: str
    torchrun: str
    interface: str = ""
    gpus: int = 0
    nproc: int = 1
    quarantined: bool = False
    quarantine: str = ""  # since when, by whom and why, if the inventory has it
    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, name: str, own: Mapping[str, Any], environment: str = "") -> NodeSpec:
        """Return the node.

        own: the node's variables of the role cluster. environment: name of its environment. Raises PlanError.
        """
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
            http_proxy=own["cluster_http_proxy"],
            https_proxy=own["cluster_https_proxy"],
            no_proxy=own["cluster_no_proxy"],
        )


@dataclass(frozen=True)
class LaunchRequest:
    """A request for a launch. In `options`, env includes the variables of env_file, and the nodes are resolved.

    sent: name of the script that is copied at the start; "" if the script is already on the nodes. attempt: number of
    the attempt, starting at 1. work_id: the launch whose working folder this launch continues to use; "" to create one.
    checkpoint: the newest complete checkpoint; "" if none is known.
    """

    options: LaunchOptions
    cluster: LaunchCluster
    launch_id: str
    sent: str = ""
    env_from: dict[str, str] = field(default_factory=dict)  # by variable, the option that set it
    manager: str = "system"  # or "user" in a user launch; see launch.manager.as_own
    more: dict[str, Any] = field(default_factory=dict)  # further values of the plan; see carried
    attempt: int = 1
    work_id: str = ""
    checkpoint: str = ""
    project: dict[str, Any] | None = None  # {source, digest, files, bytes}
    image: PlannedImage | None = None  # {source, id, folders}; id: "" until the nodes have reported it

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> LaunchRequest:
        """Restore a request from a mapping created by asdict."""
        options, cluster = LaunchOptions(**given["options"]), LaunchCluster(**given["cluster"])
        return cls(**{**given, "options": options, "cluster": cluster})

    @property
    def script(self) -> str:
        return self.sent or self.options.script


def participants(inventory: list[NodeSpec], chosen: list[str]) -> list[NodeSpec]:
    """Return the nodes of a launch in inventory order: the nodes in `chosen` or, if it is empty, all nodes that are not
    quarantined.
    """
    names = [node.name for node in inventory]
    problems = [
        f"cluster_launch_nodes contains {name!r}, which is not in gpu_nodes." for name in chosen if name not in names
    ]
    quarantined = {node.name: node.quarantine for node in inventory if node.quarantined}
    problems += [
        f"cluster_launch_nodes contains {name}, which is quarantined (cluster_quarantined){quarantined[name]}."
        for name in chosen
        if name in quarantined
    ]
    found = [node for node in inventory if not node.quarantined and (not chosen or node.name in chosen)]
    if not found and not problems:
        problems.append("No node can be used: gpu_nodes is empty or all its nodes are quarantined.")
    if problems:
        raise PlanError(problems)
    return found


def part_of(nodes: list[NodeSpec], first_nodes: int, nproc: int) -> list[NodeSpec]:
    """Return the first participants, with the given number of ranks each.

    first_nodes: 0 for all participants. nproc: 0 to keep each node's number of ranks.
    """
    return [replace(node, nproc=nproc or node.nproc) for node in nodes[: first_nodes or None]]


def chosen_backend(request: str, nodes: list[NodeSpec]) -> str:
    """Return gloo or nccl. 'auto' selects nccl if all participants have GPUs."""
    without = [node.name for node in nodes if node.gpus < 1]
    if request == "nccl" and without:
        raise PlanError([f"cluster_backend is nccl, but there are no GPUs on {', '.join(without)} (cluster_gpus)."])
    if request not in ("auto", "nccl", "gloo"):
        raise PlanError([f"cluster_backend is {request!r}, but must be auto, nccl or gloo."])
    if request == "auto":
        return "gloo" if without else "nccl"
    return request


def build_plan(request: LaunchRequest, inventory: list[NodeSpec]) -> LaunchPlan:
    """Return the plan. Raises PlanError."""
    options, cluster = request.options, request.cluster
    problems = problems_of(request)
    if problems:
        raise PlanError(problems)
    there = [node for node in inventory if node.name not in options.spares or node.name in options.nodes]
    if request.manager == USER:
        there = [
            replace(node, torchrun=environments.of_login(node.torchrun, cluster.users_root, cluster.user))
            for node in there
        ]
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
        env = {**proxies(node, inventory, options.env), **env}
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
    """Return the plan values that are needed to list, follow and stop the launch.

    These are the files to fetch at the end (patterns, bytes, folder), and what was launched, by whom and when.
    """
    begun = {"what": what, "begun": {"by": by, "at": at}}
    return {**begun, "fetch": fetch_of(options)} if options.fetch else begun


def fetch_of(options: LaunchOptions) -> PlannedFetch:
    return {"patterns": options.fetch, "most": options.fetch_max_mb * 1_000_000, "folder": options.chdir}


def problems_of(request: LaunchRequest) -> list[str]:
    """Return the problems of the request that can be detected without contacting nodes."""
    options = request.options
    problems = [
        f"{source_of(request, name)} sets {name}, which is reserved for Muster and the launcher."
        for name in options.env
        if FORBIDDEN_ENV.match(name)
    ]
    problems += [
        f"{source_of(request, name)}: {name!r} is not a valid name of an environment variable."
        for name in options.env
        if not ENV_NAME.match(name)
    ]
    script, module = bool(request.script), bool(options.module)
    if not script and not module and not options.command:
        problems.append("Nothing to launch: set launch_script, launch_script_src, launch_module or launch_command.")
    if script and module:
        problems.append("A script and a module (launch_module) are both set: set only one of them.")
    if module and not MODULE.match(options.module):
        problems.append(f"launch_module is {options.module!r}, which is not a module name, such as project.train.")
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
    """Return the path of the script on all nodes; "" for none."""
    if request.sent:
        return f"{run_dir}/script/{request.script.rsplit('/', 1)[-1]}"
    of_project = request.project is not None and request.script and not request.script.startswith("/")
    return f"{run_dir}/{PROJECT}/{request.script}" if of_project else request.script


def in_project(entry: PlannedNode) -> bool:
    """Return whether the script is part of the project and therefore does not exist on the node before the start."""
    return (entry.script or "").startswith(f"{entry.run_dir}/{PROJECT}/")


def argv(request: LaunchRequest, node: NodeSpec, script: str, place: launchers.LaunchPlace) -> list[str]:
    """Return the command line of a node: torchrun or launch_command."""
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
    """Return the user's folder for compiled files.

    It is with the logs, on a local disk and outside the home folder. No folder of the site has this name.
    """
    return f"{request.cluster.run_root}/.muster-cache/{request.cluster.user}"


def environment(
    request: LaunchRequest, node: NodeSpec, backend: str, place: launchers.LaunchPlace
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environment variables whose values are known, and a description of those that the
    node must determine.
    """
    options, cluster = request.options, request.cluster
    bin_dir = node.torchrun.rsplit("/", 1)[0]
    env = {
        "PATH": f"{bin_dir}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "USER": cluster.user,
        "LOGNAME": cluster.user,
        "PYTHONUNBUFFERED": "1",  # so that the last output of a failing rank reaches its log
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
        # The image has its own PATH, and its programs must not see the home folder on the node.
        del env["PATH"]
        env["HOME"] = options.chdir or work_dir(request)
        from_node = {}
    if node.interface:
        env["GLOO_SOCKET_IFNAME"] = node.interface
        env["NCCL_SOCKET_IFNAME"] = f"={node.interface}"  # "=": NCCL uses exactly this name, not a prefix
    else:
        how = f"interface with the address {node.address}"
        from_node["GLOO_SOCKET_IFNAME"] = how
        from_node["NCCL_SOCKET_IFNAME"] = f"={how}"
    # With several ranks, torchrun defaults to 1, which wastes most of a CPU node.
    from_node["OMP_NUM_THREADS"] = f"number of CPUs / {node.nproc}"
    from_node.update(dict.fromkeys(caches.FOLDERS, f"folder of the environment in {cache_root(request)}"))
    env.update(options.env)
    if request.project is not None:
        env["MUSTER_PROJECT"] = f"{cluster.run_root}/{request.launch_id}/{PROJECT}"
        env["PYTHONPATH"] = ":".join(filter(None, (env["MUSTER_PROJECT"], options.env.get("PYTHONPATH"))))
    return env, {name: how for name, how in from_node.items() if name not in options.env}


def proxies(node: NodeSpec, inventory: list[NodeSpec], given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the cluster's proxy, for downloads of the ranks. A proxy that the user sets in either
    spelling takes precedence. Connections to nodes never use the proxy."""
    direct = ["localhost", "127.0.0.1", "::1", *(one.name for one in inventory), *(one.address for one in inventory)]
    found = proxy_environment(node.http_proxy, node.https_proxy, list(dict.fromkeys([*direct, *node.no_proxy])))
    return {} if found.keys() & {name.lower() for name in given} else found


def seats(entry: PlannedNode, facts: Facts, backend: str) -> list[str]:
    """Return the slots that the launch locks on the node."""
    return seats_of(backend, entry.nproc, entry.env, facts["gpus"], facts["occupied"]["uuids"])


def complete(entry: PlannedNode, facts: Facts, backend: str, image: str = "") -> PlannedNode:
    """Return a node's entry with its slots and with the `from_node` variables filled in from the answer to `prepare`.

    image: name of the container image, if any. Each image has its own folders for compiled files.
    """
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
    """Return the heartbeat port on the head node of a detached launch.

    It is below the ports of the attempts if possible.
    """
    return master_port - PORTS if master_port - PORTS >= FIRST_PORT else master_port + PORTS


def masked(plan: LaunchPlan, redaction: Redaction) -> LaunchPlan:
    """Return the plan for display and storage, without the values of variables that users set (`given`).

    The plan of an earlier release has no `given`. In this case, all variables are left out.
    """

    def shown(entry: PlannedNode) -> PlannedNode:
        hidden = entry.env if plan.given is None else plan.given
        env = {name: value for name, value in entry.env.items() if name not in hidden}
        return replace(entry, env=env, argv=[redaction.text(word) for word in masked_argv(entry.argv)])

    return replace(plan, nodes=[shown(entry) for entry in plan.nodes])
