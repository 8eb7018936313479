"""Pass the plan to a custom launch command: through the launcher's own options if Muster knows the launcher, otherwise
through placeholders such as {node_rank} and environment variables.

The options are those of torch 2.13 (torch/distributed/run.py) and accelerate 1.15 (accelerate/commands/launch.py). Both
read environment variables PET_NAME as the defaults of their agent's options --name. accelerate has no command line
option for some of them.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from . import docker_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
PYTHON = re.compile(r"python[\d.]*")
SCRIPT, PROJECT = "{script}", "{project}"
MODULE = ("-m", "--module")
OTHERS = "command"  # the name of all unknown launchers
# A script or module: options after it are its own.
PROGRAM = re.compile(r".*\.(?:py|pyz|sh)|-m|--module|\{script\}")


class LaunchPlace(NamedTuple):
    """The placeholder values for one node. Texts are variables of an exported job.

    timeout: seconds for the rendezvous. project: folder with the launch's copy of the project, "" for none.
    """

    nnodes: int | str
    node_rank: int | str
    nproc: int
    world_size: int
    master_addr: str
    master_port: int | str
    local_addr: str
    launch_id: str
    log_dir: str
    timeout: int
    project: str = ""


@dataclass(frozen=True)
class Launcher:
    """A launcher that takes the plan through its own options, which directly follow its command.

    commands: the words of its command. options: its options, with placeholders. own: options that users must not set.
    useless: options that prevent the planned ranks, with the reason. even: whether the launcher requires the same
    number of ranks on all nodes. modes: options of which one is required; `mode` is the default. with_it: an additional
    option that an option requires.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    options: tuple[str, ...]
    own: frozenset[str]
    env: Mapping[str, str] = field(default_factory=dict)
    env_on_cpus: Mapping[str, str] = field(default_factory=dict)
    useless: Mapping[str, str] = field(default_factory=dict)
    even: bool = False
    mode: str = ""
    modes: frozenset[str] = frozenset()
    with_it: Mapping[str, str] = field(default_factory=dict)


# Static rendezvous: Muster assigns the ranks, and node rank 0 hosts the store without guessing from host names
# (pytorch#107021, #137402). No restarts by the agent: a second attempt would read stale keys of the first.
TORCHRUN = Launcher(
    name="torchrun",
    commands=(("torchrun",), ("python", "-m", "torch.distributed.run")),
    options=(
        "--nnodes={nnodes}",
        "--node-rank={node_rank}",
        "--nproc-per-node={nproc}",
        "--master-addr={master_addr}",
        "--master-port={master_port}",
        "--local-addr={local_addr}",
        "--rdzv-id={launch_id}",
        "--rdzv-conf=timeout={timeout}",
        "--max-restarts=0",
        "--log-dir={log_dir}",
        "--redirects=3",
    ),
    own=frozenset(
        {
            *("nnodes", "node_rank", "nproc_per_node", "master_addr", "master_port", "local_addr", "max_restarts"),
            *("rdzv_id", "rdzv_conf", "rdzv_backend", "rdzv_endpoint", "standalone", "log_dir", "redirects", "r"),
        }
    ),
)
ONE_PROCESS = "with this option, accelerate starts one process on each node and no ranks"
ACCELERATE = Launcher(
    name="accelerate",
    commands=(("accelerate", "launch"), ("accelerate-launch",), ("python", "-m", "accelerate.commands.launch")),
    options=(
        "--num_machines={nnodes}",
        "--machine_rank={node_rank}",
        "--num_processes={world_size}",
        "--main_process_ip={master_addr}",
        "--main_process_port={master_port}",
        "--same_network",
        "--rdzv_backend=static",
        "--rdzv_conf=timeout={timeout}",
        "--max_restarts=0",
        "--log_dir={log_dir}",
    ),
    own=frozenset(
        {
            *("num_machines", "machine_rank", "num_processes", "main_process_ip", "main_process_port"),
            *("same_network", "rdzv_backend", "rdzv_conf", "max_restarts", "log_dir"),
        }
    ),
    # accelerate passes its options to torch's agent, which reads the others from these variables.
    env={"PET_REDIRECTS": "3", "PET_LOCAL_ADDR": "{local_addr}", "PET_RDZV_ID": "{launch_id}"},
    env_on_cpus={"ACCELERATE_USE_CPU": "true"},  # otherwise the ranks use all visible GPUs
    useless={
        "cpu": f"{ONE_PROCESS}; with cluster_backend gloo, ranks use CPUs",
        "tpu": ONE_PROCESS,
        "tpu_cluster": ONE_PROCESS,
        "mpirun_hostfile": "with this option, accelerate starts the launch with mpirun",
    },
    even=True,  # accelerate divides the number of processes by the number of machines
    mode="--multi_gpu",  # also on CPUs: only with this option does torch's agent start the ranks
    modes=frozenset(("multi_gpu", "use_fsdp", "use_deepspeed", "use_megatron_lm", "config_file")),
    # Otherwise accelerate logs in to the other nodes (pdsh).
    with_it={"use_deepspeed": "--deepspeed_multinode_launcher=standard"},
)
KNOWN = (TORCHRUN, ACCELERATE)
# For unknown commands: variables for a torchrun that a shell script calls, and for the script itself.
PLAN_IN_ENVIRONMENT = {
    "PET_NNODES": "{nnodes}",
    "PET_NODE_RANK": "{node_rank}",
    "PET_NPROC_PER_NODE": "{nproc}",
    "PET_MASTER_ADDR": "{master_addr}",
    "PET_MASTER_PORT": "{master_port}",
    "PET_LOCAL_ADDR": "{local_addr}",
    "PET_RDZV_ID": "{launch_id}",
    "PET_RDZV_CONF": "timeout={timeout}",
    "PET_MAX_RESTARTS": "0",
    "PET_LOG_DIR": "{log_dir}",
    "PET_REDIRECTS": "3",
    "MUSTER_NNODES": "{nnodes}",
    "MUSTER_NODE_RANK": "{node_rank}",
    "MUSTER_NPROC": "{nproc}",
    "MUSTER_WORLD_SIZE": "{world_size}",
    "MUSTER_MASTER_ADDR": "{master_addr}",
    "MUSTER_MASTER_PORT": "{master_port}",
    "MUSTER_LOCAL_ADDR": "{local_addr}",
}


def launcher_of(command: Sequence[str]) -> tuple[Launcher | None, int]:
    """Return the known launcher that a command calls, and the number of words in this call."""
    for launcher in KNOWN:
        for words in launcher.commands:
            if len(command) >= len(words) and all(map(_is_called, command, words)):
                return launcher, len(words)
    return None, 0


def name_of(command: Sequence[str]) -> str:
    """Return the launcher's name in the plan. Without a command, the launcher is torchrun."""
    launcher, _ = launcher_of(command)
    return launcher.name if launcher else OTHERS if command else TORCHRUN.name


def spoken(name: str) -> str:
    """Return the launcher's name for use in messages. The name might be from an untrusted plan."""
    return name if name in {launcher.name for launcher in KNOWN} else "the command"


def log_name(name: str) -> str:
    """Return the name of the launcher's own log, without its extension."""
    return name if name in {launcher.name for launcher in KNOWN} else OTHERS


def argv_of(command: Sequence[str], program: Sequence[str], args: Sequence[str], place: LaunchPlace) -> list[str]:
    """Return the command line for one node.

    program: the script, or -m and a module. It replaces {script}, or is appended to the command.
    """
    launcher, called = launcher_of(command)
    words = [filled(word, place) for word in command]
    options = [filled(word, place) for word in options_of(launcher, command[called:], place)] if launcher else []
    begun = [*words[:called], *options, *words[called:]]
    if any(SCRIPT in word for word in begun):
        path = program[0] if program else ""
        return [*(word.replace(SCRIPT, path) for word in begun), *args]
    return [*begun, *program, *args]


def script_at(command: Sequence[str]) -> int:
    """Return the index of the script in a command; 0 if there is no script, or if the command runs a module or has
    {script}.
    """
    _, called = launcher_of(command)
    for at, word in enumerate(command):
        if at >= max(1, called) and PROGRAM.fullmatch(word) and (word in MODULE or not word.startswith("-")):
            return 0 if word in (*MODULE, SCRIPT) else at
    return 0


def of_project(command: Sequence[str], problem: Callable[[str], str], *, chdir: bool) -> tuple[list[str], str]:
    """Return the command with the path of its script inside the project, and the problem if the script is missing.

    problem: function that returns why a path is not in the project; "" if it is. chdir: whether a relative path may be
    outside the project.
    """
    at = script_at(command)
    script = command[at] if at else ""
    if not script or script.startswith(("/", PROJECT)):
        return list(command), ""
    why = problem(script)
    if why:
        # For an unknown command, the word may be any file.
        return list(command), "" if chdir or launcher_of(command)[0] is None else why
    return [*command[:at], f"{PROJECT}/{script}", *command[at + 1 :]], ""


def options_of(launcher: Launcher, rest: Sequence[str], place: LaunchPlace) -> list[str]:
    given = names(rest)
    found = list(launcher.options)
    # accelerate rejects a distributed launch with a single process.
    if launcher.mode and place.world_size > 1 and not given & launcher.modes:
        found.append(launcher.mode)
    for name, option in launcher.with_it.items():
        if name in given and not names([option]) & given:
            found.append(option)
    return found


def environment_of(command: Sequence[str], backend: str, place: LaunchPlace) -> dict[str, str]:
    """Return the environment variables through which a command receives the plan."""
    if not command:
        return {}
    launcher, _ = launcher_of(command)
    found = dict(launcher.env if launcher else PLAN_IN_ENVIRONMENT)
    if launcher and backend == "gloo":
        found.update(launcher.env_on_cpus)
    return {name: filled(value, place) for name, value in found.items()}


def filled(text: str, place: LaunchPlace) -> str:
    """Return the text with its placeholders replaced. Other braces stay unchanged."""
    known = place._asdict()
    return PLACEHOLDER.sub(lambda found: str(known.get(found[1], found[0])), text)


def names(words: Sequence[str]) -> set[str]:
    """Return the launcher's options that occur in the arguments. Both launchers accept hyphens and underscores."""
    found = set()
    for word in words:
        if PROGRAM.fullmatch(word):
            break
        if word.startswith("-"):
            found.add(word.partition("=")[0].lstrip("-").replace("-", "_"))
    return found


def problems_of(command: Sequence[str], *, script: bool, chdir: bool, project: bool) -> list[str]:
    """Return the problems of a command that can be detected without facts about the nodes.

    script, chdir, project: whether the corresponding option is set.
    """
    if not command:
        return []
    if instead := docker_line.equivalent(command):
        return [instead]
    found = []
    first, has_place = command[0], any(SCRIPT in word for word in command)
    if not first:
        found.append("launch_command begins with an empty word: the first word must be the program.")
    elif "/" in first and not first.startswith("/") and not chdir:
        found.append(
            f"launch_command begins with {first}, which is a relative path: use its absolute path, or set launch_chdir"
            " to its folder."
        )
    if has_place and not script:
        found.append("launch_command contains {script}, but no script is set: set launch_script or launch_script_src.")
    if not project and any(PROJECT in word for word in command):
        found.append("launch_command contains {project}, but no project is set: set launch_project.")
    for word in command:
        found += [_unknown(name) for name in PLACEHOLDER.findall(word) if _unknown(name)]
    launcher, called = launcher_of(command)
    if launcher:
        given = names(command[called:])
        own = sorted(given & launcher.own)
        if own:
            text = ", ".join(_as_option(name) for name in own)
            found.append(f"launch_command sets {text}, which Muster sets for {launcher.name}. Remove it.")
        found += [
            f"launch_command contains {_as_option(name)}: {why}. Remove it."
            for name, why in launcher.useless.items()
            if name in given
        ]
    return found


def uneven(command: Sequence[str], ranks: Mapping[str, int]) -> list[str]:
    """Return a problem if the nodes have different numbers of ranks."""
    launcher, _ = launcher_of(command)
    if launcher is None or not launcher.even or len(set(ranks.values())) < 2:
        return []
    text = ", ".join(f"{node} {number}" for node, number in ranks.items())
    said = (
        f"{launcher.name} needs the same number of ranks on all nodes, but they differ ({text}): set"
        " cluster_nproc_per_node to one number, or set cluster_launch_nodes to nodes with equal numbers of ranks."
    )
    return [said]


def warnings_of(command: Sequence[str], nodes: int) -> list[str]:
    """Return warnings for a command that does not call a known launcher."""
    if not command or launcher_of(command)[0] or nodes < 2:
        return []
    if any(
        name in LaunchPlace._fields and f"{{{name}}}" != PROJECT
        for word in command
        for name in PLACEHOLDER.findall(word)
    ):
        return []
    said = (
        f"launch_command: {command[0]} is not a known launcher and has no placeholder such as {{node_rank}}. All nodes"
        " run the same command, with the plan in variables such as MUSTER_NODE_RANK (for torchrun: PET_NODE_RANK)"
    )
    return [said]


def _is_called(given: str, word: str) -> bool:
    base = given.rpartition("/")[2]
    return PYTHON.fullmatch(base) is not None if word == "python" else base == word


def _as_option(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name}"


def _unknown(name: str) -> str:
    known = (*LaunchPlace._fields, "script")
    meant = difflib.get_close_matches(name, known, 1, 0.75)
    if name in known or not meant:
        return ""
    return f"launch_command contains {{{name}}}, which is not a placeholder; did you mean {{{meant[0]}}}?"
