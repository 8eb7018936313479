"""Build a local channel of small but real conda packages.

The package python is a stub: a script that runs the node's own Python with the environment's packages. Tests check how
environments are solved, locked, installed, copied and switched, and that their files contain the final path.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

# Placeholder path in built files. The installer replaces it with the real prefix.
BUILT_AT = "/built/" + "at/" * 60
PYTHON = f"""#!/bin/sh
case $1 in -I) exec /usr/bin/python3 "$@" ;; esac
PYTHONPATH={BUILT_AT}/lib/python3.11/site-packages exec /usr/bin/python3 "$@"
"""
GREET = """
import sys, where

def main():
    print("greetings", VERSION, "from", where.PLACE, flush=True)
"""


def package(folder: Path, name: str, version: str, files: dict[str, bytes], **more: Any) -> None:
    """Write a package. more: additional fields of index.json. The content b"->x" creates a symbolic link to x."""
    index = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": [], "subdir": folder.name}
    paths = []
    for path, content in files.items():
        link = content.startswith(b"->")
        entry: dict[str, Any] = {"_path": path, "path_type": "softlink" if link else "hardlink"}
        if not link:
            entry |= {"sha256": hashlib.sha256(content).hexdigest(), "size_in_bytes": len(content)}
        if BUILT_AT.encode() in content:
            entry |= {"prefix_placeholder": BUILT_AT, "file_mode": "binary" if b"\0" in content else "text"}
        paths.append(entry)
    link_json = more.pop("link", None)
    said: dict[str, Any] = {"index": {**index, **more}, "paths": {"paths": paths, "paths_version": 1}}
    if link_json:
        said["link"] = link_json
    about = {f"info/{what}.json": json.dumps(text).encode() for what, text in said.items()}
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / f"{name}-{version}-0.tar.bz2", "w:bz2") as archive:
        for path, data in {**files, **about}.items():
            member = tarfile.TarInfo(path)
            member.mode = 0o755 if path.startswith("bin/") else 0o644
            if data.startswith(b"->"):
                member.type, member.linkname = tarfile.SYMTYPE, data[2:].decode()
                archive.addfile(member)
            else:
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def greet(channel: Path, version: str) -> None:
    code = GREET.replace("VERSION", repr(version)).encode()
    entry = {"noarch": {"type": "python", "entry_points": ["greet = greet:main"]}, "package_metadata_version": 1}
    more = {"noarch": "python", "depends": ["python >=3.11,<3.12", "where"], "link": entry}
    package(channel / "noarch", "greet", version, {"site-packages/greet.py": code}, **more)


def make_channel(channel: Path) -> None:
    bin_of = {"bin/python3.11": PYTHON.encode(), "bin/python": b"->python3.11"}
    for subdir in ("linux-64", "linux-aarch64"):
        package(channel / subdir, "python", "3.11.2", bin_of)
        places = {
            "lib/python3.11/site-packages/where.py": f"PLACE = '{BUILT_AT}'\n".encode(),
            "share/where.bin": f"\0{BUILT_AT}/lib\0rest".encode(),
        }
        package(channel / subdir, "where", "1.0", places, depends=["python"])
    greet(channel, "1.0")
    index(channel)


def index(channel: Path) -> None:
    """Write the index of the channel."""
    rattler: Any = importlib.import_module("rattler.index")
    asyncio.run(rattler.index_fs(channel))
