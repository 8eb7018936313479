"""The launch that corresponds to a `docker run` line of an article. Pure functions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.commands import playbook_with
from ..verdict.masking import SECRET_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

ENGINES = ("docker", "podman", "nvidia-docker")
# Options of docker run without a value: https://docs.docker.com/reference/cli/docker/container/run/
FLAGS = (
    *("--detach", "--init", "--interactive", "--no-healthcheck", "--oom-kill-disable", "--privileged"),
    *("--publish-all", "--quiet", "--read-only", "--rm", "--sig-proxy", "--tty"),
)
SHORT_FLAGS = frozenset("diPtq")
LONG = {"-e": "--env", "-v": "--volume", "-w": "--workdir", "-p": "--publish", "-u": "--user"}
# Before the script: torchrun, its older names, or only Python.
TORCHRUN = re.compile(r"(\S*/)?(torchrun( .*)?|python[\d.]*( -m torch\.distributed\.\w+( .*)?)?)")
DROPPED = "--gpus, --ipc, --network, --shm-size and --ulimit are not needed"
RANKS = "Muster sets the options of torchrun; the number of ranks of a node is cluster_nproc_per_node"


class DockerLine(NamedTuple):
    """A parsed `docker run`. options: (long name, value). words: the command inside the container."""

    options: list[tuple[str, str]]
    image: str
    words: list[str]

    def all(self, name: str) -> list[str]:
        return [value for option, value in self.options if option == name]


def parsed(command: Sequence[str]) -> DockerLine | None:
    """Return the parsed line; None if the command is not `docker run` or has no image."""
    engine, *rest = command
    if rest[:1] == ["container"]:
        rest.pop(0)
    if engine.rpartition("/")[2] not in ENGINES or not rest or rest.pop(0) != "run":
        return None
    options = []
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if not option.startswith("--") and len(option) > 2 and not set(option[1:]) <= SHORT_FLAGS:
            option, equals, value = option[:2], "=", option[2:]  # as in -v/data:/data
        if not equals and option not in FLAGS and (option.startswith("--") or not set(option[1:]) <= SHORT_FLAGS):
            value = rest.pop(0) if rest else ""
        options.append((LONG.get(option, option), value))
    return DockerLine(options, rest[0], rest[1:]) if rest else None


def equivalent(command: Sequence[str]) -> str:
    """Return the sentences that replace a `docker run` line as a launch_command; "" if the command is another one."""
    line = parsed(command)
    if line is None:
        return ""
    options, notes = launch_options(line)
    shown = playbook_with("playbooks/launch.yml", options)
    why = "its processes belong to the container engine, so a launch cannot stop them"
    instead = f"Equivalent: {shown or 'launch_image with launch_script'}"
    return f"launch_command is {command[0]} run: {why}. {'. '.join([instead, *notes])}."


def launch_options(line: DockerLine) -> tuple[dict[str, Any], list[str]]:
    """Return the options of the launch, and notes about the parts of the line that have no option."""
    variables = {name: value for name, equals, value in (one.partition("=") for one in line.all("--env")) if equals}
    secret = [one.partition("=")[0] for one in line.all("--env") if "=" not in one or SECRET_NAME.search(one)]
    folders = [one.split(":") for one in line.all("--volume")]
    options: dict[str, Any] = {"launch_image": line.image, **program_of(line.words)}
    options["launch_env"] = {name: value for name, value in variables.items() if name not in secret}
    options["launch_image_folders"] = [source for source, target, *_ in folders if source == target]
    notes = [DROPPED]
    if "launch_script" in options:
        notes.append(RANKS)
    if secret:
        notes.append(f"Put {', '.join(secret)} into launch_env_file")
    if "@" not in line.image:
        notes.append("launch_image needs a digest (NAME@sha256:...) or an archive")
    if others := [":".join(one) for one in folders if len(one) < 2 or one[0] != one[1]]:
        notes.append(f"{', '.join(others)}: a folder has the same path in the image; launch_project copies your code")
    return {name: value for name, value in options.items() if value}, notes


def program_of(words: Sequence[str]) -> dict[str, Any]:
    """Return the options for the command inside the container. Options of torchrun are left out."""
    script = next((at for at, word in enumerate(words) if word.endswith(".py") and not word.startswith("-")), 0)
    if not TORCHRUN.fullmatch(" ".join(words[:script])):
        return {"launch_command": [*words]}
    return {"launch_script": words[script], "launch_args": [*words[script + 1 :]]}
