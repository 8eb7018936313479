"""The container image of a launch: what its option may say, and what the nodes say of it. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any, TypedDict

from ..verdict.check import Check
from ..verdict.commands import playbook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..verdict.finding import Finding

ARCHIVE = ".tar"
PATHS = ("/", "./", "../", "~")
BY_DIGEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,400}@sha256:[0-9a-f]{64}\Z")
# A mount is one word of podman's, in which a comma parts what belongs to it.
FOLDER = re.compile(r"/[^,\"'\x00-\x1f\x7f]+\Z")
PYTHON_WANTED = (3, 10)
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}\Z")
PODMAN_FOR_GPUS = (4, 1)
TORCHRUN = ["python3", "-m", "torch.distributed.run"]  # of the image, wherever it has its programs
BASELINE = playbook("site.yml", tags="baseline")
CTK = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"

ENGINE = Check(
    "launch.container",
    seen="sandbox",
    reads="with launch_image: podman and crun on each participant, what describes GPUs to podman, whose launch it is",
    fires="one of them is missing, or the launch is somebody's own, without root (fail)",
    fix=f"Set node_baseline_podman to true, and run {BASELINE}",
)
IMAGE = Check(
    "launch.image",
    seen="sandbox",
    reads="launch_image on each participant: whether the image is there, its id, and its Python and PyTorch",
    fires="a node does not get it or has a different one; it has no torch, too old a Python, or a device file (fail)",
    fix="Fix that, then launch again: what has come stays",
)
FOLDERS = Check(
    "launch.image_folders",
    seen="sandbox",
    reads="with launch_image: launch_chdir, launch_data and launch_image_folders, and every folder above them",
    fires="one is not there, the training user may not use it, or others than root may put something else there (fail)",
    fix="Give the folders above it to root, writable by nobody else",
)


class ImageFacts(TypedDict):
    """podman: its version, "" without one; why: why not. id: of the image, "" where it is not there. gpus: whether
    something describes them to podman. folders: by path, {path, exists, usable, foreign: who else may change it}.
    removed: containers of earlier launches."""

    podman: str
    why: str
    crun: bool
    id: str
    gpus: bool
    folders: dict[str, dict[str, Any]]
    removed: list[str]


class Tried(TypedDict):
    """A run of the image's Python. text: the last line of its output, which the image controls. error: why it failed.
    unsafe: why it was not run."""

    text: str
    error: str
    unsafe: str


class Versions(TypedDict):
    """python: three numbers. torch: "" without one. nccl: "" where no package of its own says so. error, unsafe: see
    Tried."""

    python: list[int]
    torch: str
    nccl: str
    error: str
    unsafe: str


def is_archive(image: str) -> bool:
    return image.startswith(PATHS) or image.endswith(ARCHIVE)


def problems_of(image: str, folders: Iterable[str], *, environment: str, script: str) -> list[str]:
    """What is wrong with the options, whatever the nodes are. script: one that is not sent."""
    if not image:
        return [] if not list(folders) else ["launch_image_folders is set, and there is no image: set launch_image."]
    found = []
    if environment:
        found.append("launch_environment and launch_image are both set, and a launch runs in one of them.")
    if is_archive(image):
        if not image.endswith(ARCHIVE):
            found.append(
                f"launch_image {image} does not end with {ARCHIVE}: it is an archive as podman save and docker save"
                f" write it, not compressed, or a name with a digest."
            )
    elif not BY_DIGEST.match(image):
        found.append(no_digest(image))
    if script and not script.startswith("/"):
        found.append(f"launch_script {script} is relative: give its path in the image, or in launch_project.")
    return [*found, *(f"launch_image_folders: {each!r} {why}." for each in folders if (why := unusable(each)))]


def no_digest(image: str) -> str:
    name = shlex.quote(image.partition("@")[0])
    return (
        f"launch_image {image} has no digest (NAME@sha256:...), and may be another image on each node. Its digest, on a"
        f" machine with podman: podman pull {name} && podman image inspect --format '{{{{.Digest}}}}' {name}"
    )


def unusable(folder: str) -> str:
    """Why a folder cannot be shown to a container, by its path."""
    parts = folder.split("/")[1:]
    if not FOLDER.match(folder) or any(part in {"", ".", ".."} for part in parts):
        return "is no absolute path as it is written plainly, without commas, quotes and dots as parts"
    return ""


def shown(chdir: str, data: Iterable[str], folders: Iterable[str]) -> list[str]:
    """What of the node is seen in the container beside the launch's own folders, each at its own path; of one within
    another, the outer one."""
    wanted = sorted({each.rstrip("/") for each in (chdir, *data, *folders)} - {""})
    found: list[str] = []
    for each in wanted:
        if not any(each.startswith(f"{outer}/") for outer in found):
            found.append(each)
    return found


def own(nodes: Iterable[str], user: str) -> list[Finding]:
    """Nobody but an administrator launches in an image: what starts its containers is root's podman."""
    text = (
        f"launch_image is for administrators' launches, and this one is {user}'s own, without root: podman without"
        " root does not keep a launch in the control group of its unit"
    )
    fix = "Leave launch_image out, and name an environment of cluster_environments (launch_environment)"
    return [ENGINE.fail(node, text, fix=fix) for node in nodes]


def judge(node: str, seen: ImageFacts, *, gpus: bool) -> list[Finding]:
    """What stands against a container on this node. gpus: whether the launch uses any."""
    found = []
    # Without any runtime, podman itself does not answer.
    if not seen["crun"]:
        text = "crun is not there, without which podman gives every container a control group of its own"
        found.append(ENGINE.fail(node, text))
    elif not seen["podman"]:
        found.append(ENGINE.fail(node, f"podman does not answer: {seen['why']}"))
    elif gpus and numbers(seen["podman"]) < PODMAN_FOR_GPUS:
        text = f"its podman {seen['podman']} is too old to give GPUs to containers (CDI needs 4.1)"
        found.append(ENGINE.fail(node, text, fix="Leave the node out, or run it with a newer release of its system"))
    elif gpus and not seen["gpus"]:
        text = "nothing describes the GPUs to podman: there is no nvidia.com/gpu in /etc/cdi or /var/run/cdi"
        fix = "Set container_toolkit_engine to podman and run site.yml --tags gpu_stack, or there, with the package"
        found.append(ENGINE.fail(node, text, fix=f"{fix} nvidia-container-toolkit:", command=CTK))
    for path, one in sorted(seen["folders"].items()):
        if one["foreign"]:
            text = f"root would show {path} to the container, where others may put something else: {one['foreign']}"
            found.append(FOLDERS.fail(node, text))
        elif not one["exists"]:
            found.append(FOLDERS.fail(node, f"{path} is not there", fix="Make it on every node, or leave it out"))
        elif not one["usable"]:
            text = f"the training user may not use {path}"
            found.append(FOLDERS.fail(node, text, fix="Let that user enter it"))
    return found


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def missing(failures: Mapping[str, str]) -> list[Finding]:
    """failures: why a node has not got the image."""
    return [IMAGE.fail(node, f"it does not have the image: {why}") for node, why in failures.items()]


def differing(ids: Mapping[str, str]) -> list[Finding]:
    """ids: what the image's name leads to on each node. One name may be an image for each architecture."""
    common, count = Counter(ids.values()).most_common(1)[0]
    where = next(name for name, each in ids.items() if each == common)
    told = f"{where} has {common[:12]}" if count > 1 or len(ids) == 2 else f"the nodes have {len(set(ids.values()))}"
    fix = "Give launch_image the digest of one image for one architecture, or an archive; then launch again"
    return [
        IMAGE.fail(node, f"its image is {each[:12]}, and {told}", fix=fix, observed=each, expected=common)
        for node, each in ids.items()
        if each != common
    ]


def read_versions(said: Tried) -> Versions:
    """Return the versions in the output of the image's Python. Anything else in it becomes an error that quotes it."""
    found: Versions = {"python": [], "torch": "", "nccl": "", "error": said["error"], "unsafe": said["unsafe"]}
    if said["error"] or said["unsafe"]:
        return found
    try:
        printed = json.loads(said["text"])
        python, torch, nccl = printed["python"], printed["torch"], printed["nccl"]
        right = all(type(part) is int and 0 <= part < 1000 for part in python) and len(python) == 3
        right = right and all(VERSION.match(each) for each in (torch, nccl) if each != "")
    except (ValueError, LookupError, TypeError, RecursionError):
        right = False
    if not right:
        return {**found, "error": f"its Python says {said['text']!r}"}
    return {**found, "python": python, "torch": torch, "nccl": nccl}


def judge_versions(node: str, seen: Versions, *, torch: bool) -> list[Finding]:
    """torch: whether the launch needs PyTorch of the image; a command that somebody brings may not."""
    if seen["unsafe"]:
        fix = "Use an image without device files; podman provides /dev"
        return [IMAGE.fail(node, f"the image is not safe to run: {seen['unsafe']}", fix=fix)]
    if seen["error"]:
        text = f"Python does not run in the image: {seen['error']}"
        return [IMAGE.fail(node, text, fix="Take an image with python3 in its PATH")]
    if tuple(seen["python"][:2]) < PYTHON_WANTED:
        text = f"the image's Python is {'.'.join(map(str, seen['python']))}, and a launch needs 3.10 or newer"
        return [IMAGE.fail(node, text, fix="Take an image with a newer one")]
    if torch and not seen["torch"]:
        text = "there is no torch in the image, for its python3"
        return [IMAGE.fail(node, text, fix="Take an image in which this prints its path: python3 -c 'import torch'")]
    return []


def sentence(source: str, image: str, seen: Versions) -> str:
    nccl = f", NCCL {seen['nccl']}" if seen["nccl"] else ""
    python = ".".join(map(str, seen["python"]))
    return f"image {source}: {image[:12]}, Python {python}, torch {seen['torch'] or 'none'}{nccl}, the same everywhere"
