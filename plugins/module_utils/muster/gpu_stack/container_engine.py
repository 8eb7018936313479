"""Plan the steps that make GPUs available to the containers of a container engine. Pure functions.

The plan compares the configuration that the engine has loaded, not only the configuration file. Therefore the next run
completes a run that was interrupted between writing the file and reloading the engine. No step stops running
containers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..verdict.commands import shell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RUNTIME = "nvidia-container-runtime"
DAEMON = "/etc/docker/daemon.json"
CONTAINERD = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
REFRESH = "nvidia-cdi-refresh.service"
SPEC = "/etc/cdi/nvidia.yaml"
# The second folder has precedence.
SPEC_FOLDERS = ("/etc/cdi", "/var/run/cdi")
KIND = "nvidia.com/gpu"
# Program names in messages
PROGRAMS = {"docker": "dockerd", "containerd": "containerd", "podman": "podman"}


@dataclass(frozen=True)
class ContainerEngineState:
    """The state of the container engine on a node.

    programs: installed programs of the engine. driver: version of the loaded driver; "" if none is loaded. files:
    content of each existing configuration file of the engine and of each CDI specification. answers: whether the
    engine's daemon responds. why: the error if it does not. runtimes: runtimes known to the daemon. snap: whether the
    engine is installed as a snap. containers: names of running containers. survive: whether they survive a restart of
    the daemon. behind: whether containerd was started before its configuration was changed. refresh: whether the
    toolkit's service that updates CDI specifications is installed.
    """

    engine: str
    programs: frozenset[str] = frozenset()
    driver: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    answers: bool = False
    why: str = ""
    runtimes: frozenset[str] = frozenset()
    snap: bool = False
    containers: tuple[str, ...] = ()
    survive: bool = False
    behind: bool = False
    refresh: bool = False


@dataclass(frozen=True)
class ContainerEngineStep:
    """A command and its purpose."""

    name: str
    argv: tuple[str, ...]


@dataclass
class ContainerEnginePlan:
    """The steps. problems: errors that make the node fail. notes: information, or manual steps for the user."""

    steps: list[ContainerEngineStep] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def do(self, difference: str, *steps: ContainerEngineStep) -> None:
        self.differences.append(difference)
        self.steps += [step for step in steps if step not in self.steps]


def make_plan(seen: ContainerEngineState) -> ContainerEnginePlan:
    plan = ContainerEnginePlan()
    program = PROGRAMS[seen.engine]
    if program not in seen.programs:
        here = (
            ". Set node_baseline_podman to true and run site.yml --tags baseline"
            if seen.engine == "podman"
            else f". Muster installs only podman. Install {seen.engine} on the node"
        )
        plan.problems.append(
            f"{program} is not installed{here}, or set container_toolkit_engine to an installed engine or to none"
        )
        return plan
    {"docker": _docker, "containerd": _containerd, "podman": _podman}[seen.engine](plan, seen)
    return plan


def _configure(engine: str) -> ContainerEngineStep:
    return ContainerEngineStep(
        f"Register the runtime with {engine}", ("nvidia-ctk", "runtime", "configure", f"--runtime={engine}")
    )


def _docker(plan: ContainerEnginePlan, seen: ContainerEngineState) -> None:
    if seen.snap:
        plan.problems.append(
            f"docker was installed as a snap, so it does not read {DAEMON} and might not be able to use the driver. "
            "Install docker from a deb package, or set container_toolkit_engine to none"
        )
        return
    if "nvidia" in seen.runtimes:
        return  # from its file or from its command line
    reload = ContainerEngineStep("Reload the docker configuration", ("systemctl", "reload", "docker.service"))
    steps = [reload] if seen.answers else []
    try:
        known = _runtimes(seen.files.get(DAEMON, ""))
    except ValueError as error:
        plan.problems.append(f"{DAEMON} {error}, so docker cannot start. Correct the file")
        return
    if "nvidia" not in known:
        plan.do(f"{DAEMON} does not configure the nvidia runtime", _configure("docker"), *steps)
    elif seen.answers:
        # A reload of docker activates new runtimes (moby, daemon/reload.go), without effect on running containers.
        plan.do(f"docker has not loaded the nvidia runtime that {DAEMON} configures", *steps)
    if not seen.answers:
        plan.notes.append(
            f"docker did not respond ({seen.why}). It will load the nvidia runtime when it is next started"
        )


def _runtimes(text: str) -> Mapping[str, Any]:
    if not text.strip():
        return {}
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON (line {error.lineno})") from None
    runtimes = config.get("runtimes", {}) if isinstance(config, dict) else None
    if not isinstance(runtimes, dict):
        raise ValueError("does not contain a mapping of runtimes")
    return runtimes


def after_reload(seen: ContainerEngineState) -> str:
    """Return the manual step that is needed if Docker does not know the runtime after a reload; "" if it does."""
    if seen.engine != "docker" or not seen.answers or "nvidia" in seen.runtimes:
        return ""
    ends = "" if seen.survive or not seen.containers else f" (this stops the containers {', '.join(seen.containers)})"
    return (
        "docker reloaded its configuration but did not load the nvidia runtime. "
        f"Restart docker: sudo systemctl restart docker{ends}"
    )


def _containerd(plan: ContainerEnginePlan, seen: ContainerEngineState) -> None:
    main = _without_comments(seen.files.get(CONTAINERD, ""))
    drop_in = _without_comments(seen.files.get(DROP_IN, "")) if "/etc/containerd/conf.d" in main else ""
    restart = ContainerEngineStep("Restart containerd", ("systemctl", "restart", "containerd.service"))
    may = seen.survive or not seen.containers
    steps = [restart] if seen.answers and may else []
    if RUNTIME not in main + drop_in:
        plan.do(f"neither {CONTAINERD} nor its drop-in configures {RUNTIME}", _configure("containerd"), *steps)
    elif seen.answers and seen.behind and may:
        plan.do("the containerd configuration was changed after containerd was started", *steps)
    elif not (seen.answers and seen.behind):
        return
    if not may:
        plan.notes.append(
            "containerd must be restarted to load the runtime, but a restart stops its containers: "
            f"{', '.join(seen.containers)}. When they can be stopped, run: sudo systemctl restart containerd"
        )


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _podman(plan: ContainerEnginePlan, seen: ContainerEngineState) -> None:
    if not seen.driver:
        plan.notes.append("no NVIDIA driver is loaded, so podman cannot use the GPUs yet")
        return
    for folder in reversed(SPEC_FOLDERS):
        specs = {path: text for path, text in seen.files.items() if path.startswith(f"{folder}/") and KIND in text}
        if specs:
            break
    old = [path for path, text in specs.items() if f".{seen.driver}" not in text]
    if specs and not old:
        return
    foreign = [path for path in old if path not in (SPEC, f"{SPEC_FOLDERS[1]}/nvidia.yaml")]
    if foreign:
        renew = shell("sudo nvidia-ctk cdi generate --output={path}", path=foreign[0])
        plan.problems.append(
            f"{', '.join(foreign)} was not created by Muster and does not match the loaded driver {seen.driver}. "
            f"Regenerate the file: {renew}; or remove it"
        )
        return
    why = (
        f"{old[0]} was generated for a driver other than {seen.driver}"
        if old
        else f"podman has no CDI specification for the GPUs ({KIND})"
    )
    plan.do(why, *_renewals(seen))


def _renewals(seen: ContainerEngineState) -> Iterator[ContainerEngineStep]:
    if seen.refresh:
        yield ContainerEngineStep("Refresh the CDI specification for the GPUs", ("systemctl", "restart", REFRESH))
    else:
        argv = ("nvidia-ctk", "cdi", "generate", f"--output={SPEC}")
        yield ContainerEngineStep("Create the CDI specification for the GPUs", argv)
