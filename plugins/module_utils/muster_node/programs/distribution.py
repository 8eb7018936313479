"""Content for several nodes, on one of them: kept by its sha256, taken from the controller or another node.

Run by Program (plugin_utils), with a verb as argument and a JSON payload on standard input; as root, or as the user
whose store it is.

    stored    keeps a manifest, and says what of it is missing here
    put       keeps what the controller sends
    serve     gives to other nodes what they lack, until they have it or the time is up
    fetch     takes what is missing from such a node
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

from ..distribution import store
from ..distribution.fetching import fetch
from ..distribution.serving import serve
from ..tools.program import answer
from ..tools.sockets import can_listen

Json = dict[str, Any]

MOST_SENT = 64_000_000  # bytes of one message, once it is decompressed


def main() -> None:
    answer({"stored": stored, "put": put, "serve": serve, "fetch": fetch})


def stored(request: Json) -> Json:
    """request: {store, manifest: base64, port}; return {missing: [sha256], room, port_free, error}."""
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


def put(request: Json) -> Json:
    """request: {store, digest, name, pieces: [[sha256, begin, size], ...], body: base64 of zlib}; return {error}."""
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
        return f"{problem.filename or request['store']}: {problem.strerror or problem}"
    return f"{type(problem).__name__}: {problem}"


if __name__ == "__main__":
    main()
