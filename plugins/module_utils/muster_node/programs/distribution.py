"""Stores content that the controller distributes to several nodes. Content is identified by its sha256 and comes from
the controller or another node.

Run by NodeProgram (plugin_utils) as root or as the owner of the store, with a verb as argument and a JSON payload on
standard input.
    stored    keep a manifest, and return the files that are missing here
    kept      return the files in a plain folder
    put       store data from the controller
    offer     verify the files to send, and return the sha256 of each piece
    share     send files to other nodes, receive missing files, and forward them
"""

from __future__ import annotations

import base64
import os
import zlib
from typing import Any

from ..distribution import manifest, sharing, store
from ..tools.program import answer
from ..tools.sockets import can_listen

Json = dict[str, Any]

MOST_SENT = 64_000_000  # bytes of one message after decompression


def main() -> None:
    answer({"stored": stored, "kept": kept, "put": put, "offer": offer, "share": share})


def stored(request: Json) -> Json:
    """Store a manifest. request: {store, manifest: base64, port}; return {missing: [sha256], room, port_free,
    error}."""
    try:
        with store.opened(request["store"]) as there:
            wanted = store.keep_manifest(there, base64.b64decode(request["manifest"]))
            store.tidy(there)
            missing = [file.sha256 for file in store.missing(there, wanted)]
            return {
                "missing": missing,
                "room": store.room(there),
                "port_free": can_listen(request["port"]),
                "error": "",
            }
    except (OSError, ValueError) as problem:
        return {"missing": [], "room": 0, "port_free": False, "error": _said(problem, request)}


def kept(request: Json) -> Json:
    """Find valid files in a plain folder. request: {folder, files: [[name, sha256]], port}; return {sizes: {name:
    bytes} of the valid files, room, port_free, error}."""
    sizes: dict[str, int] = {}
    free = {"room": store.room_at(request["folder"]), "port_free": can_listen(request["port"])}
    if not os.path.lexists(request["folder"]):
        return {"sizes": {}, **free, "error": ""}
    try:
        with store.opened_plain(request["folder"]) as there:
            for name, sha256 in request["files"]:
                try:
                    size = os.stat(name, dir_fd=there.content, follow_symlinks=False).st_size
                except OSError:
                    continue
                file = manifest.ManifestFile(name, executable=False, size=size, sha256=sha256)
                if store.is_there(there, file):
                    sizes[name] = size
    except OSError as problem:
        return {"sizes": {}, **free, "error": _said(problem, request)}
    return {"sizes": sizes, **free, "error": ""}


def offer(request: Json) -> Json:
    try:
        return sharing.offer(request)
    except (OSError, ValueError) as problem:
        return {"pieces": [], "error": _said(problem, request)}


def share(request: Json) -> Json:
    try:
        return sharing.share(request)
    except (OSError, ValueError) as problem:
        return {"missing": 1, "came": {}, "error": _said(problem, request)}


def put(request: Json) -> Json:
    """Store data from the controller. request: {store, digest, name, pieces: [[sha256, begin, size], ...], body: base64
    of zlib}; return {error}."""
    try:
        body = zlib.decompressobj().decompress(base64.b64decode(request["body"]), MOST_SENT)
        with store.opened(request["store"]) as there:
            wanted = {file.sha256: file for file in store.read_manifest(there, request["digest"])}
            at = 0
            for digest, begin, size in request["pieces"]:
                error = store.add_part(there, request["name"], wanted[digest], begin, body[at : at + size])
                if error:
                    return {"error": error}
                at += size
    except (OSError, ValueError, KeyError, zlib.error) as problem:
        return {"error": _said(problem, request)}
    return {"error": ""}


def _said(problem: Exception, request: Json) -> str:
    if isinstance(problem, OSError):
        return f"{problem.filename or request.get('store') or request['folder']}: {problem.strerror or problem}"
    return f"{type(problem).__name__}: {problem}"


if __name__ == "__main__":
    main()
