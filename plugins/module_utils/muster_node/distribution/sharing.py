"""One node's part in a distribution: send the present pieces, receive the missing pieces, and forward them.

Root verifies present files and passes them on as open file descriptors. An unprivileged child process (nobody, if this
is root) does the network transfer into an unnamed file. Root then verifies that file and stores its content.
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
from .fetching import PieceReceiver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .manifest import ManifestFile

Json = dict[str, Any]

NOBODY = "nobody"
SPARE = 5.0  # seconds for the child to respond


@contextmanager
def opened(request: Json) -> Iterator[tuple[store.Shelf, list[ManifestFile]]]:
    """Yield the open store and the files to distribute. request: {store, digest}, or {folder, manifest} for a plain
    folder."""
    if "store" in request:
        with store.opened(request["store"]) as there:
            yield there, store.read_manifest(there, request["digest"])
        return
    listed = manifest.parse(base64.b64decode(request["manifest"]))
    if any("/" in file.path for file in listed):
        raise ValueError("a plain folder must not contain subfolders")
    with store.opened_plain(request["folder"]) as there:
        yield there, listed


def offer(request: Json) -> Json:
    """Verify the files to send; return {pieces: [sha256], error}. request: as for `opened`, with {wanted: [sha256]}."""
    with opened(request) as (there, listed):
        layout = pieces.PieceLayout(listed, request["wanted"])
        with pieces.gathered(there, layout, ()) as whole:
            if whole.lacking:
                path = layout.files[whole.lacking[0]].path
                return {"pieces": [], "error": f"the content of {path} was changed on this node"}
            return {"pieces": pieces.digests_of(whole), "error": ""}


def share(request: Json) -> Json:
    """Send, receive and forward pieces; return {missing, came: {address: pieces}, error}.

    request: as for `opened`, with {wanted, pieces}: see `offer`; {address, port}: to listen on; {givers, peers,
    followed, token, seconds, calls_for}: see PieceReceiver and PieceServer.
    """
    with opened(request) as (there, listed):
        layout = pieces.PieceLayout(listed, request["wanted"])
        if len(request["pieces"]) != layout.count:
            raise ValueError("the offered pieces do not match the requested size")
        with pieces.gathered(there, layout, request["pieces"], compared=not request["givers"]) as whole:
            comes = sum(layout.files[at].size for at in whole.lacking)
            # Twice the size: in the unnamed file, and at its destination.
            if 2 * comes > store.room(there):
                return {
                    "missing": len(whole.lacking),
                    "came": {},
                    "error": f"not enough disk space for {2 * comes} bytes",
                }
            said = _alone(request, whole) if layout.count else {"came": {}, "error": ""}
            missing = 0
            for at in whole.lacking:
                file = layout.files[at]
                complete = all(map(whole.has, layout.of_file(at)))
                if complete and store.take(there, file, whole.scratch, layout.begins[at]):
                    continue
                missing += 1
                if complete:
                    said["error"] = f"the received {file.path} does not match its sha256"
            return {**said, "missing": missing}


def unprivileged() -> pwd.struct_passwd | None:
    """Return the user for the network process: nobody if this process is root, else None."""
    return pwd.getpwnam(NOBODY) if os.geteuid() == 0 else None


def _alone(request: Json, whole: pieces.PieceSet) -> Json:
    seconds, most = request["seconds"] + SPARE, whole.layout.size
    try:
        said: Json = as_user(unprivileged(), lambda: _share(request, whole), seconds=seconds, writes=most)
    except SilentError as silent:
        return {"came": {}, "error": f"the transfer process failed: {silent.strerror}"}
    return said


# ---------------------------------------------------------------- unprivileged


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
    receiver = PieceReceiver(request, whole, until)
    receiver.run()
    whole.state = pieces.ENDED
    sign = 0.0
    while not os.waitpid(pid, os.WNOHANG)[0]:
        # Nodes behind this one are still receiving; the source stays until all are complete.
        if time.monotonic() > sign:
            receiver.sign()
            sign = time.monotonic() + serving.SIGN
        time.sleep(0.02)
    receiver.change(receiver.at, None)
    return {"came": receiver.came, "error": receiver.why if whole.missing() else ""}
