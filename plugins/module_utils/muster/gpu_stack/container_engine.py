"""Whether a container engine gives GPUs to its containers, and what is to be done for that. Pure.

Looked at is what the engine goes by, and not only its file: a run that was cut off between the file and the engine's
reading it is finished by the next one. Nothing that runs in a container is ended for it.
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
# What the second one says counts.
SPEC_FOLDERS = ("/etc/cdi", "/var/run/cdi")
KIND = "nvidia.com/gpu"
# What takes the engine's place in sentences.
PROGRAMS = {"docker": "dockerd", "containerd": "containerd", "podman": "podman"}


@dataclass(frozen=True)
class ContainerEngineState:
    """The node.

    programs: those of the engine that are there. driver: version of the one that is loaded; empty for none.
    files: text of each of the engine's files, and of each specification of devices; what is missing is left out.
    answers: whether the engine's daemon answers, and why: why not. runtimes: those that it knows. snap: whether it is
    the snap's. containers: names of those that run, and survive: whether they outlive a restart of the daemon.
    behind: whether containerd was started before its files were changed. refresh: whether the toolkit's own service for
    specifications is there.
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
    """A command, and the sentence that says what it is for."""

    name: str
    argv: tuple[str, ...]


@dataclass
class ContainerEnginePlan:
    """What is to be done. problems fail the node always; notes: what the user has to know or to do."""

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
            else f", and Muster installs no container engine but podman. Install {seen.engine} on the node"
        )
        plan.problems.append(
            f"{program} is not there{here}, or set container_toolkit_engine to what is there, or to none"
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
            f"its docker is the snap's, which reads another file than {DAEMON} and may not reach the driver. Install "
            "docker from a package, or set container_toolkit_engine to none"
        )
        return
    if "nvidia" in seen.runtimes:
        return  # be it by its file or by the arguments that it was started with
    reload = ContainerEngineStep("Have docker read its file", ("systemctl", "reload", "docker.service"))
    steps = [reload] if seen.answers else []
    try:
        known = _runtimes(seen.files.get(DAEMON, ""))
    except ValueError as error:
        plan.problems.append(f"{DAEMON} {error}, and docker would not start with it. Correct it")
        return
    if "nvidia" not in known:
        plan.do(f"{DAEMON} does not name the runtime nvidia", _configure("docker"), *steps)
    elif seen.answers:
        # docker takes runtimes over when it reloads (moby, daemon/reload.go), and nothing that runs in it notices.
        plan.do("docker does not know the runtime nvidia, which its file names", *steps)
    if not seen.answers:
        plan.notes.append(f"docker does not answer ({seen.why}), and will know the runtime when it is started")


def _runtimes(text: str) -> Mapping[str, Any]:
    if not text.strip():
        return {}
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON (line {error.lineno})") from None
    runtimes = config.get("runtimes", {}) if isinstance(config, dict) else None
    if not isinstance(runtimes, dict):
        raise ValueError("does not hold a mapping with runtimes")
    return runtimes


def after_reload(seen: ContainerEngineState) -> str:
    """Say what the user has to do where docker still does not know the runtime; empty where it does."""
    if seen.engine != "docker" or not seen.answers or "nvidia" in seen.runtimes:
        return ""
    ends = "" if seen.survive or not seen.containers else f", which ends {', '.join(seen.containers)}"
    return (
        "docker has read its file, and still does not know the runtime nvidia. "
        f"Restart it: sudo systemctl restart docker{ends}"
    )


def _containerd(plan: ContainerEnginePlan, seen: ContainerEngineState) -> None:
    main = _without_comments(seen.files.get(CONTAINERD, ""))
    drop_in = _without_comments(seen.files.get(DROP_IN, "")) if "/etc/containerd/conf.d" in main else ""
    restart = ContainerEngineStep("Have containerd read its files", ("systemctl", "restart", "containerd.service"))
    may = seen.survive or not seen.containers
    steps = [restart] if seen.answers and may else []
    if RUNTIME not in main + drop_in:
        plan.do(f"{CONTAINERD} and its drop-in do not name {RUNTIME}", _configure("containerd"), *steps)
    elif seen.answers and seen.behind and may:
        plan.do("containerd has not read its files since they were changed", *steps)
    elif not (seen.answers and seen.behind):
        return
    if not may:
        plan.notes.append(
            "containerd has to be restarted to know the runtime, and that would end what runs in it: "
            f"{', '.join(seen.containers)}. When it may: sudo systemctl restart containerd"
        )


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _podman(plan: ContainerEnginePlan, seen: ContainerEngineState) -> None:
    if not seen.driver:
        plan.notes.append("no driver is loaded, so there are no devices yet that podman could be given")
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
            f"{', '.join(foreign)} describes the GPUs for another driver than {seen.driver}, which is loaded, and is "
            f"not Muster's. Renew it: {renew}; or remove it"
        )
        return
    why = (
        f"{old[0]} is for another driver than {seen.driver}"
        if old
        else f"nothing describes the GPUs ({KIND}) to podman"
    )
    plan.do(why, *_renewals(seen))


def _renewals(seen: ContainerEngineState) -> Iterator[ContainerEngineStep]:
    if seen.refresh:
        yield ContainerEngineStep("Have the GPUs described", ("systemctl", "restart", REFRESH))
    else:
        yield ContainerEngineStep("Describe the GPUs", ("nvidia-ctk", "cdi", "generate", f"--output={SPEC}"))
