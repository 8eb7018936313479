"""Container images on a node: what is there, what comes to be there, and what Python and PyTorch one has."""

from __future__ import annotations

import json
import os
import pwd
import shutil
from typing import Any

from ..distribution import store
from ..tools import files, trust
from ..tools.run import failure, run
from . import container
from .facts import file_facts

Json = dict[str, Any]

LOOK_SECONDS = 30.0
TRY_SECONDS = 60
CDI = ("/etc/cdi", "/var/run/cdi")
GPUS = "nvidia.com/gpu"
MOST_SPEC = 4_000_000
# In the image, whatever its Python is: the versions alone, since to import torch takes seconds.
VERSIONS = """
import importlib.metadata, importlib.util, json, sys
def version(*names):
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return ""
there = importlib.util.find_spec("torch") is not None
nccl = version("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
torch = version("torch") or "unknown" if there else ""
print(json.dumps({"python": sys.version_info[:3], "torch": torch, "nccl": nccl}))
"""


def look(request: Json) -> Json:
    """request: {image: its id or name, user, folders}. See ImageFacts; what is left of old launches is removed."""
    podman = run("podman", "version", "--format={{.Client.Version}}", seconds=LOOK_SECONDS)
    there = podman.code == 0
    found = inspected(request["image"]) if there and request["image"] else ""
    return {
        "podman": podman.text.strip() if there else "",
        "why": "" if there else podman.why,
        "crun": shutil.which("crun") is not None,
        "id": found,
        "gpus": describes_gpus(),
        "folders": {path: folder_facts(path, request["user"]) for path in request["folders"]},
        "removed": container.remove_old() if there else [],
    }


def inspected(image: str) -> str:
    """The id of an image, by its id or name; "" where it is not there."""
    said = run("podman", "image", "inspect", "--format={{.Id}}", image, seconds=LOOK_SECONDS)
    return said.text.strip().removeprefix("sha256:") if said.code == 0 else ""


def describes_gpus() -> bool:
    """Whether a specification of devices (CDI) tells podman of GPUs."""
    for folder in CDI:
        try:
            names = files.names(folder, links=True)
        except OSError:
            continue
        paths = (f"{folder}/{name}" for name in names if name.endswith((".yaml", ".json")))
        if any(GPUS in (files.text(path, most=MOST_SPEC, links=True) or "") for path in paths):
            return True
    return False


def folder_facts(path: str, user: str) -> Json:
    """As file_facts, and why root should not hand on what has this name: others may put something else there."""
    why = trust.foreign_writer(os.path.dirname(path)) or ""
    if not why and os.path.islink(path):
        why = f"{path} is a link"
    return {**file_facts(path, user, os.X_OK if os.path.isdir(path) else os.R_OK), "foreign": why}


def load(request: Json) -> Json:
    """request: {store, digest, id, seconds}: of the archive that was distributed, which is removed behind it. Return
    {id, error}."""
    try:
        with store.opened(request["store"]) as there:
            archive = store.read_manifest(there, request["digest"])[0]
            store.copy(there, archive, lambda _chunk: None)
            path = f"{request['store']}/objects/{archive.sha256}"
            argv = ("podman", "load", "--quiet", f"--input={path}")
            error = failure(argv, run(*argv, seconds=request["seconds"]))
            found = inspected(request["id"])
            if found:
                files.remove(f"objects/{archive.sha256}", within=there.folder)
                files.remove(f"manifests/{request['digest']}", within=there.folder)
            return {"id": found, "error": "" if found else error or "podman loaded another image from it"}
    except (OSError, LookupError) as problem:
        return {"id": "", "error": str(problem)}


def pull(request: Json) -> Json:
    """request: {image, seconds}; return {id, error}."""
    argv = ("podman", "pull", "--quiet", request["image"])
    error = failure(argv, run(*argv, seconds=request["seconds"]))
    return {"id": inspected(request["image"]), "error": error}


def versions(request: Json) -> Json:
    """request: {id, user, name}; return {python, torch, nccl, error}, of what runs in it as that user."""
    user = pwd.getpwnam(request["user"])
    argv = [
        "podman",
        container.RUNTIME,
        "run",
        *container.CLOSED,
        "--network=none",
        "--ulimit=host",
        f"--timeout={TRY_SECONDS}",
    ]
    argv += [f"--name={request['name']}", *container.as_user(user), "--workdir=/", "--entrypoint=python3"]
    said = run(*argv, request["id"], "-c", VERSIONS, seconds=TRY_SECONDS + LOOK_SECONDS)
    if said.late:  # podman's own limit has not helped: what it started is still there
        run("podman", "rm", "--force", "--ignore", request["name"], seconds=LOOK_SECONDS)
    nothing: Json = {"python": [], "torch": "", "nccl": ""}
    if said.code != 0:
        return {**nothing, "error": said.said[:400] or said.why}
    try:
        found = json.loads(said.text.strip().splitlines()[-1])
        return {**{name: found[name] for name in nothing}, "error": ""}
    except (ValueError, LookupError, TypeError):
        return {**nothing, "error": f"its Python says {said.text[:200]!r}"}
