"""Inspect, load and pull container images on a node, and determine their Python and PyTorch versions."""

from __future__ import annotations

import errno
import json
import os
import posixpath
import pwd
import shutil
import stat
import tarfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ..distribution import store
from ..tools import files, trust
from ..tools.run import failure, run
from . import container
from .facts import file_facts

if TYPE_CHECKING:
    from typing import BinaryIO

Json = dict[str, Any]
MOST_JSON = 4_000_000
# The keys that podman needs to find the image. All others are removed, since Go accepts a key in any case ("repotags").
IMAGE = ("Config", "Layers")  # manifest.json, of docker-archive
INDEX = ("schemaVersion", "mediaType", "manifests")  # index.json, of oci-archive
DESCRIPTOR = ("mediaType", "digest", "size")


# ---------------------------------------------------------------- archives

# Remove the image names from an archive before podman loads it.
#
# podman applies all names in an archive. A name such as ubuntu:24.04 would then refer to this image for all users of
# root's podman on the node. Muster refers to an image by its id.
#
# The names are overwritten in place, with spaces: nothing is copied, and podman never has the names, even if Muster is
# killed.


class Edit(NamedTuple):
    """A replacement at one position of the archive file. old and new have the same length."""

    begin: int
    old: bytes
    new: bytes


def plain_manifest(text: bytes) -> bytes:
    """Return manifest.json without image names. Raises ValueError, LookupError or TypeError."""
    return _dump([{key: each[key] for key in IMAGE} for each in json.loads(text)])


def plain_index(text: bytes) -> bytes:
    """Return index.json without image names. Raises ValueError, LookupError or TypeError."""
    index = json.loads(text)
    images = [{key: each[key] for key in DESCRIPTOR} for each in index["manifests"]]
    return _dump({**{key: index[key] for key in INDEX if key in index}, "manifests": images})


PLAIN = {"manifest.json": plain_manifest, "index.json": plain_index}


def edits(path: str) -> list[Edit]:
    """Return the edits that remove the image names from an archive. Raises UnsafePathError if podman could interpret
    the archive differently."""
    found: dict[str, Edit] = {}
    try:
        with files.opened(path) as handle, os.fdopen(os.dup(handle), "rb") as stream, _tar(stream) as tar:
            for member in tar:
                place = posixpath.normpath("/" + member.name)[1:]
                if posixpath.basename(place) in PLAIN:
                    if place not in PLAIN or place in found or not member.isreg() or member.issparse():
                        raise _refused(path, f"contains {place} more than once, or not as a regular file")
                    found[place] = _edit(path, handle, place, member)
            if tar.pax_headers:
                raise _refused(path, "has a global header, which podman ignores")
    except tarfile.TarError as problem:
        raise _refused(path, f"is not an archive: {problem}") from None
    if not found:
        raise _refused(path, f"has neither {' nor '.join(PLAIN)}")
    return list(found.values())


def write(path: str, wanted: list[Edit]) -> None:
    """Apply the edits to the archive."""
    with files.opened(path, written=True) as handle:
        for edit in wanted:
            os.pwrite(handle, edit.new, edit.begin)


def undo(path: str, done: list[Edit]) -> None:
    """Revert the edits in the archive."""
    write(path, [Edit(edit.begin, edit.new, edit.old) for edit in done])


def _tar(stream: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="r:")


def _edit(path: str, handle: int, name: str, member: tarfile.TarInfo) -> Edit:
    if member.size > MOST_JSON:
        raise _refused(path, f"has more than {MOST_JSON} bytes of {name}")
    old = os.pread(handle, member.size, member.offset_data)
    try:
        new = PLAIN[name](old)
    except (ValueError, LookupError, TypeError, RecursionError) as problem:
        raise _refused(path, f"has an unusable {name}: {problem!r}"[:200]) from None
    if len(new) > len(old):
        raise _refused(path, f"has a {name} in an unusual notation")
    return Edit(member.offset_data, old, new.ljust(len(old)))


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _refused(path: str, why: str) -> files.UnsafePathError:
    return files.UnsafePathError(errno.EBADMSG, why, path)


LOOK_SECONDS = 30.0
TRY_SECONDS = 60
WALK_SECONDS = 120.0
MOST_LINE = 400
NAME = "localhost/muster-image:{}"
SEEN = "/run/muster/images/seen"
HOOKS = "/run/muster/images/podman-{}"
CDI = ("/etc/cdi", "/var/run/cdi")
GPUS = "nvidia.com/gpu"
MOST_SPEC = 4_000_000
# Runs in the image with any Python. It only reads versions, because importing torch takes seconds.
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
    """Return ImageFacts and remove containers of old launches. request: {image: id or name, user, folders}."""
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
    """Return the id of an image, given its id or name; "" if the image does not exist."""
    said = run("podman", "image", "inspect", "--format={{.Id}}", image, seconds=LOOK_SECONDS)
    return said.text.strip().removeprefix("sha256:") if said.code == 0 else ""


def describes_gpus() -> bool:
    """Return whether podman finds a CDI specification that describes GPUs."""
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
    """Return file_facts of a folder to mount, and the reason if mounting it as root is unsafe because other users can
    replace the folder."""
    why = trust.foreign_writer(os.path.dirname(path)) or ""
    if not why and os.path.islink(path):
        why = f"{path} is a link"
    return {**file_facts(path, user, os.X_OK if os.path.isdir(path) else os.R_OK), "foreign": why}


def load(request: Json) -> Json:
    """Load the distributed archive into podman, then remove the archive. Return {id, error}.

    request: {store, digest, id, seconds}
    """
    try:
        with store.opened(request["store"]) as there:
            archive = store.read_manifest(there, request["digest"])[0]
            store.copy(there, archive, lambda _chunk: None)
            content, apart = f"objects/{archive.sha256}", f"parts/{archive.sha256}.{os.urandom(6).hex()}"
            # While it is changed, and if this process is killed, it cannot be found under its digest.
            os.rename(content, apart, src_dir_fd=there.folder, dst_dir_fd=there.folder)
            try:
                error = load_nameless(f"{request['store']}/{apart}", request["seconds"])
            finally:
                os.rename(apart, content, src_dir_fd=there.folder, dst_dir_fd=there.folder)
            found = named(request["id"])
            if found:
                files.remove(content, within=there.folder)
                files.remove(f"manifests/{request['digest']}", within=there.folder)
            return {"id": found, "error": "" if found else error or "podman loaded a different image from the archive"}
    except (OSError, LookupError) as problem:
        return {"id": "", "error": str(problem)}


def load_nameless(path: str, seconds: float) -> str:
    """Load an archive without its image names. Return the error, or "" on success."""
    names = edits(path)
    write(path, names)
    try:
        argv = ("podman", "load", "--quiet", f"--input={path}")
        return failure(argv, run(*argv, seconds=seconds))
    finally:
        undo(path, names)


def named(image: str) -> str:
    """Name an image and return its id, or "" if the image does not exist. Without a name, `podman image prune` would
    remove the image."""
    found = inspected(image)
    if found:
        run("podman", "tag", found, NAME.format(found[:12]), seconds=LOOK_SECONDS)
    return found


def pull(request: Json) -> Json:
    """Pull an image. request: {image, seconds}. Return {id, error}."""
    argv = ("podman", "pull", "--quiet", request["image"])
    error = failure(argv, run(*argv, seconds=request["seconds"]))
    return {"id": named(request["image"]), "error": error}


def versions(request: Json) -> Json:
    """Run the image's Python as the user and return {text, error, unsafe}: the last line of the output, the reason for
    a failure, and the reason if Python was not run. The image controls the text; image.read_versions validates it.
    request: {id, user, name}"""
    why = unsafe(request["id"])
    if why:
        return {"text": "", "error": "", "unsafe": why}
    user = pwd.getpwnam(request["user"])
    # With a separate process namespace: all processes of the image end with the first one.
    argv = container.engine(HOOKS.format(user.pw_uid), user)
    argv += ["--network=none", "--ulimit=host", f"--timeout={TRY_SECONDS}", f"--name={request['name']}", "--workdir=/"]
    said = run(*argv, "--entrypoint=python3", request["id"], "-c", VERSIONS, seconds=TRY_SECONDS + LOOK_SECONDS)
    if said.late:  # podman's own time limit failed, and the container still exists
        run("podman", "rm", "--force", "--ignore", request["name"], seconds=LOOK_SECONDS)
    if said.code is None:
        return {"text": "", "error": said.why, "unsafe": ""}
    if said.code:
        return {"text": "", "error": f"exited with code {said.code}, output: {said.said[:MOST_LINE]!r}", "unsafe": ""}
    return {"text": said.text.strip().rpartition("\n")[2][:MOST_LINE], "error": "", "unsafe": ""}


def unsafe(image: str) -> str:
    """Return the reason why running programs of an image is unsafe (the image contains a device file), or "" if it is
    safe. A container without a separate control group can open device files, because crun mounts the root file system
    without nodev. An image that passed the check is not checked again until the next boot."""
    seen = f"{SEEN}/{image}"
    if os.path.exists(seen):
        return ""
    said = run("podman", "image", "mount", image, seconds=LOOK_SECONDS)
    if said.code != 0:
        return f"the check for device files failed: {said.why}"
    try:
        found = first_device(said.text.strip(), time.monotonic() + WALK_SECONDS)
    except OSError as problem:
        return f"the check for device files failed: {problem.strerror}"
    finally:
        run("podman", "image", "unmount", "--force", image, seconds=LOOK_SECONDS)
    if found:
        return f"the device file {found!r} would give access to the node's device"
    trust.make_folder(SEEN)
    files.replace(seen, b"", mode=0o644)
    return ""


def first_device(root: str, deadline: float) -> str:
    """Return the path of the first device file in a tree, or "". Raises OSError, also if the deadline passes."""
    folders = [root]
    while folders:
        folder = folders.pop()
        if time.monotonic() > deadline:
            raise OSError(errno.ETIMEDOUT, "the image has too many files")
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    mode = entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
                        return entry.path.removeprefix(root)
    return ""
