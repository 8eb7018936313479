"""One node's part in bringing content to many: it gives what it has, takes what it lacks, and gives that on.

Root compares what is here with its sha256 and hands it over open. A child process, which is nobody (where this is
root) and can open nothing, speaks with the network and fills a file without a name. Root then reads that file, and
keeps of it what is right.
"""

from __future__ import annotations

import base64
import os
import pwd
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..tools.as_user import SilentError, as_user
from . import manifest, pieces, serving, store
from .fetching import Taker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .manifest import ManifestFile

Json = dict[str, Any]

NOBODY = "nobody"
SPARE = 5.0  # seconds for the child to answer


@contextmanager
def opened(request: Json) -> Iterator[tuple[store.Shelf, list[ManifestFile]]]:
    """Yield the place, and the files of the manifest: {store, digest} or, for a plain folder, {folder, manifest}."""
    if "store" in request:
        with store.opened(request["store"]) as there:
            yield there, store.read_manifest(there, request["digest"])
        return
    listed = manifest.parse(base64.b64decode(request["manifest"]))
    if any("/" in file.path for file in listed):
        raise ValueError("a plain folder has no folders in it")
    with store.opened_plain(request["folder"]) as there:
        yield there, listed


def offer(request: Json) -> Json:
    """Compare what is to be given; return {pieces: [sha256], error}. request: the place, {wanted: [sha256]}."""
    with opened(request) as (there, listed):
        layout = pieces.PieceLayout(listed, request["wanted"])
        with pieces.gathered(there, layout, ()) as whole:
            if whole.lacking:
                path = layout.files[whole.lacking[0]].path
                return {"pieces": [], "error": f"{path} is not what it was: its content was changed on this node"}
            return {"pieces": pieces.digests_of(whole), "error": ""}


def share(request: Json) -> Json:
    """Return {missing, came: {address: pieces}, error}.

    request: the place; {wanted, pieces}, as offered; {address, port}, where it listens; {givers, peers, followed,
    token, seconds, calls_for}: see Taker and Listener.
    """
    with opened(request) as (there, listed):
        layout = pieces.PieceLayout(listed, request["wanted"])
        if len(request["pieces"]) != layout.count:
            raise ValueError("what is offered has another size than what is wanted")
        with pieces.gathered(there, layout, request["pieces"], compared=not request["givers"]) as whole:
            comes = sum(layout.files[at].size for at in whole.lacking)
            # Twice: as it comes, and in its place.
            if 2 * comes > store.room(there):
                return {"missing": len(whole.lacking), "came": {}, "error": f"there is no room for {2 * comes} bytes"}
            said = _alone(request, whole) if layout.count else {"came": {}, "error": ""}
            missing = 0
            for at in whole.lacking:
                file = layout.files[at]
                complete = all(map(whole.has, layout.of_file(at)))
                if complete and store.take(there, file, whole.scratch, layout.begins[at]):
                    continue
                missing += 1
                if complete:
                    said["error"] = f"what came as {file.path} is not what was asked for (sha256)"
            return {**said, "missing": missing}


def unprivileged() -> pwd.struct_passwd | None:
    """Return who speaks with the network: nobody, where this is root."""
    return pwd.getpwnam(NOBODY) if os.geteuid() == 0 else None


def _alone(request: Json, whole: pieces.PieceSet) -> Json:
    seconds, most = request["seconds"] + SPARE, whole.layout.size
    try:
        said: Json = as_user(unprivileged(), lambda: _share(request, whole), seconds=seconds, writes=most)
    except SilentError as silent:
        return {"came": {}, "error": f"the process that shares it ended: {silent.strerror}"}
    return said


# ---------------------------------------------------------------- without any rights


def _share(request: Json, whole: pieces.PieceSet) -> Json:
    until = time.monotonic() + request["seconds"]
    try:
        listener = serving.listen(request["address"], request["port"])
    except OSError as problem:
        place = f"{request['address']} port {request['port']}"
        return {"came": {}, "error": f"cannot listen on {place}: {problem.strerror}"}
    with listener:
        pid = os.fork()
        if pid == 0:
            try:
                signal.setitimer(signal.ITIMER_REAL, request["seconds"])
                serving.PieceServer(request, whole, listener, until).run()
                os._exit(0)
            finally:
                os._exit(1)
    taker = Taker(request, whole, until)
    taker.run()
    whole.state = pieces.ENDED
    sign = 0.0
    while not os.waitpid(pid, os.WNOHANG)[0]:
        # Whoever is behind this node still takes; the giver stays for them, until all have it.
        if time.monotonic() > sign:
            taker.sign()
            sign = time.monotonic() + serving.SIGN
        time.sleep(0.02)
    taker.change(taker.at, None)
    return {"came": taker.came, "error": taker.why if whole.missing() else ""}
