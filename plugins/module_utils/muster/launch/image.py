"""Validate the options for the container image of a launch, and the reports of nodes about the image."""

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
# podman takes a mount as one argument with fields separated by commas.
FOLDER = re.compile(r"/[^,\"'\x00-\x1f\x7f]+\Z")
PYTHON_WANTED = (3, 10)
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}\Z")
PODMAN_FOR_GPUS = (4, 1)
TORCHRUN = ["python3", "-m", "torch.distributed.run"]  # works with any path of torchrun in the image
BASELINE = playbook("site.yml", tags="baseline")
CTK = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"

ENGINE = Check(
    "launch.container",
    seen="sandbox",
    reads="with launch_image: podman, crun and the CDI specification of GPUs on each participant, and the launch type",
    fires="podman, crun or the CDI specification is missing, or the launch is a user launch (fail)",
    fix=f"Set node_baseline_podman to true, and run {BASELINE}",
)
IMAGE = Check(
    "launch.image",
    seen="sandbox",
    reads="launch_image on each participant: whether the image is present, its id, and its Python and PyTorch",
    fires="the image is missing or differs between nodes, has no torch, Python before 3.10, or a device file (fail)",
    fix="Fix the error, then launch again; parts that are already downloaded are reused",
)
FOLDERS = Check(
    "launch.image_folders",
    seen="sandbox",
    reads="with launch_image: launch_chdir, launch_data and launch_image_folders, and all their parent folders",
    fires="a folder is missing, the training user has no access, or users other than root can replace it (fail)",
    fix="Make root the owner of all parent folders, and allow only root to write to them",
)


class ImageFacts(TypedDict):
    """podman: version of Podman, "" if it is not usable; why: the reason. id: image ID, "" if the image is missing.
    gpus: whether a CDI specification describes the GPUs. folders: by path, {path, exists, usable, foreign: other users
    who can change the folder}. removed: containers of earlier launches that were removed.
    """

    podman: str
    why: str
    crun: bool
    id: str
    gpus: bool
    folders: dict[str, dict[str, Any]]
    removed: list[str]


class Tried(TypedDict):
    """The result of running the image's Python.

    text: the last line of its output, which the image controls. error: why it failed. unsafe: why it was not run.
    """

    text: str
    error: str
    unsafe: str


class Versions(TypedDict):
    """The versions in an image.

    python: three numbers. torch: "" if the image has no PyTorch. nccl: "" if NCCL is not a separate package. error,
    unsafe: see Tried.
    """

    python: list[int]
    torch: str
    nccl: str
    error: str
    unsafe: str


def is_archive(image: str) -> bool:
    return image.startswith(PATHS) or image.endswith(ARCHIVE)


def problems_of(image: str, folders: Iterable[str], *, environment: str, script: str) -> list[str]:
    """Return the problems of the options that can be detected without facts about the nodes.

    script: path of a script that is not copied.
    """
    if not image:
        return [] if not list(folders) else ["launch_image_folders requires launch_image: set launch_image."]
    found = []
    if environment:
        found.append("launch_environment and launch_image are both set: set only one of them.")
    if is_archive(image):
        if not image.endswith(ARCHIVE):
            found.append(
                f"launch_image {image} does not end with {ARCHIVE}: use an uncompressed archive from podman save or"
                f" docker save, or a name with a digest."
            )
    elif not BY_DIGEST.match(image):
        found.append(no_digest(image))
    if script and not script.startswith("/"):
        found.append(f"launch_script {script} is relative: set its absolute path in the image, or use launch_project.")
    return [*found, *(f"launch_image_folders: {each!r} {why}." for each in folders if (why := unusable(each)))]


def no_digest(image: str) -> str:
    name = shlex.quote(image.partition("@")[0])
    return (
        f"launch_image {image} has no digest (NAME@sha256:...), so each node might get a different image. To get the"
        f" digest with podman: podman pull {name} && podman image inspect --format '{{{{.Digest}}}}' {name}"
    )


def unusable(folder: str) -> str:
    """Return why a folder cannot be mounted into a container; "" if it can."""
    parts = folder.split("/")[1:]
    if not FOLDER.match(folder) or any(part in {"", ".", ".."} for part in parts):
        return "is not an absolute path without commas, quotes, '.' and '..'"
    return ""


def shown(chdir: str, data: Iterable[str], folders: Iterable[str]) -> list[str]:
    """Return the folders of the node that are mounted at their own paths, in addition to the launch's own folders.

    Folders inside a mounted folder are left out.
    """
    wanted = sorted({each.rstrip("/") for each in (chdir, *data, *folders)} - {""})
    found: list[str] = []
    for each in wanted:
        if not any(each.startswith(f"{outer}/") for outer in found):
            found.append(each)
    return found


def own(nodes: Iterable[str], user: str) -> list[Finding]:
    """Reject images for user launches, because Muster starts containers with root's Podman."""
    text = (
        f"launch_image requires an administrator launch, but this is a user launch of {user}: without root, podman"
        " does not keep the containers of a launch in the control group of its unit"
    )
    fix = "Remove launch_image, and set launch_environment to an environment of cluster_environments"
    return [ENGINE.fail(node, text, fix=fix) for node in nodes]


def judge(node: str, seen: ImageFacts, *, gpus: bool) -> list[Finding]:
    """Return the problems that prevent a container on this node. gpus: whether the launch uses GPUs."""
    found = []
    # Without a runtime, podman itself fails.
    if not seen["crun"]:
        text = "crun is missing; without crun, podman creates a separate control group for every container"
        found.append(ENGINE.fail(node, text))
    elif not seen["podman"]:
        found.append(ENGINE.fail(node, f"podman failed: {seen['why']}"))
    elif gpus and numbers(seen["podman"]) < PODMAN_FOR_GPUS:
        text = f"podman {seen['podman']} is too old for GPUs in containers (CDI requires podman 4.1)"
        found.append(ENGINE.fail(node, text, fix="Leave the node out, or upgrade its operating system"))
    elif gpus and not seen["gpus"]:
        text = "podman has no CDI specification for the GPUs: no nvidia.com/gpu in /etc/cdi or /var/run/cdi"
        fix = "Set container_toolkit_engine to podman and run site.yml --tags gpu_stack, or install on the node"
        found.append(ENGINE.fail(node, text, fix=f"{fix} nvidia-container-toolkit and then run", command=CTK))
    for path, one in sorted(seen["folders"].items()):
        if one["foreign"]:
            text = f"{path} is not safe to mount as root, because other users can replace it: {one['foreign']}"
            found.append(FOLDERS.fail(node, text))
        elif not one["exists"]:
            found.append(FOLDERS.fail(node, f"{path} does not exist", fix="Create it on every node, or omit it"))
        elif not one["usable"]:
            text = f"the training user has no access to {path}"
            found.append(FOLDERS.fail(node, text, fix="Give the training user read and search permission"))
    return found


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def missing(failures: Mapping[str, str]) -> list[Finding]:
    """Return the findings for nodes without the image. failures: the reason for each node."""
    return [IMAGE.fail(node, f"the image is missing: {why}") for node, why in failures.items()]


def differing(ids: Mapping[str, str]) -> list[Finding]:
    """Return the findings for image IDs that differ between nodes.

    One name can refer to a different image for each architecture.
    """
    common, count = Counter(ids.values()).most_common(1)[0]
    where = next(name for name, each in ids.items() if each == common)
    most = f"{where} has {common[:12]}" if count > 1 or len(ids) == 2 else f"{len(set(ids.values()))} images are in use"
    fix = "Set launch_image to the digest of a single-architecture image, or to an archive; then launch again"
    return [
        IMAGE.fail(node, f"the image is {each[:12]}, but {most}", fix=fix, observed=each, expected=common)
        for node, each in ids.items()
        if each != common
    ]


def read_versions(said: Tried) -> Versions:
    """Return the versions in the output of the image's Python.

    Unexpected output is returned as an error that quotes the output.
    """
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
        return {**found, "error": f"unexpected output of Python: {said['text']!r}"}
    return {**found, "python": python, "torch": torch, "nccl": nccl}


def judge_versions(node: str, seen: Versions, *, torch: bool) -> list[Finding]:
    """Return the findings about versions.

    torch: whether the launch needs PyTorch in the image; a launch_command might not need it.
    """
    if seen["unsafe"]:
        fix = "Use an image without device files; podman provides /dev"
        return [IMAGE.fail(node, f"the image is not safe to run: {seen['unsafe']}", fix=fix)]
    if seen["error"]:
        text = f"Python does not run in the image: {seen['error']}"
        return [IMAGE.fail(node, text, fix="Use an image with python3 in its PATH")]
    if tuple(seen["python"][:2]) < PYTHON_WANTED:
        text = f"the image's Python is {'.'.join(map(str, seen['python']))}, but a launch requires 3.10 or newer"
        return [IMAGE.fail(node, text, fix="Use an image with a newer Python")]
    if torch and not seen["torch"]:
        text = "the image's python3 has no torch"
        return [IMAGE.fail(node, text, fix="Use an image in which this command succeeds: python3 -c 'import torch'")]
    return []


def sentence(source: str, image: str, seen: Versions) -> str:
    nccl = f", NCCL {seen['nccl']}" if seen["nccl"] else ""
    python = ".".join(map(str, seen["python"]))
    return f"image {source}: {image[:12]}, Python {python}, torch {seen['torch'] or 'none'}{nccl}, same on all nodes"
