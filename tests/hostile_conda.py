"""Build hostile conda packages. Tests define every archive member and every line of the file list."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muster.pytorch.conda import CondaPackage, CondaSection

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ZSTD_BLOCK = 1 << 17


@dataclass(frozen=True)
class Member:
    """An archive member. listed: entry of the member in info/paths.json; None omits the entry."""

    path: str
    content: bytes = b""
    type: bytes = tarfile.REGTYPE
    target: str = ""
    mode: int = 0o644
    listed: dict[str, Any] | None = field(default_factory=dict)

    @property
    def line(self) -> dict[str, Any]:
        if self.type == tarfile.SYMTYPE:
            return {"_path": self.path, "path_type": "softlink", **(self.listed or {})}
        told = {"sha256": hashlib.sha256(self.content).hexdigest(), "size_in_bytes": len(self.content)}
        return {"_path": self.path, "path_type": "hardlink", **told, **(self.listed or {})}


def file(path: str, content: bytes = b"content", **more: Any) -> Member:
    return Member(path, content, **more)


def link(path: str, target: str, **more: Any) -> Member:
    return Member(path, type=tarfile.SYMTYPE, target=target, **more)


def build(
    folder: Path,
    name: str,
    members: Sequence[Member],
    *,
    lines: Sequence[dict[str, Any]] = (),
    info: dict[str, str | None] | None = None,
    index: dict[str, Any] | None = None,
    ending: str = "tar.bz2",
) -> CondaPackage:
    """Write NAME-1.0-0.ENDING. lines: additional entries of paths.json without a member. info: files in info/; None
    omits a file."""
    said = {"name": name, "version": "1.0", "build": "0", "build_number": 0, "depends": [], "subdir": "linux-64"}
    paths = [member.line for member in members if member.listed is not None]
    texts: dict[str, str | None] = {
        "index.json": json.dumps({**said, **(index or {})}),
        "paths.json": json.dumps({"paths": [*paths, *lines], "paths_version": 1}),
        **(info or {}),
    }
    about = [file(f"info/{name}", text.encode()) for name, text in texts.items() if text is not None]
    path = folder / f"{name}-1.0-0.{ending}"
    if ending == "tar.bz2":
        with tarfile.open(path, "w:bz2") as archive:
            add(archive, [*members, *about])
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as parts:
            parts.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
            parts.writestr(f"info-{name}-1.0-0.tar.zst", zstd(tar_of(about)))
            parts.writestr(f"pkg-{name}-1.0-0.tar.zst", zstd(tar_of(members)))
    return CondaPackage(path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest())


def add(archive: tarfile.TarFile, members: Sequence[Member]) -> None:
    for member in members:
        info = tarfile.TarInfo(member.path)
        info.type, info.linkname, info.mode = member.type, member.target, member.mode
        info.size = len(member.content) if member.type == tarfile.REGTYPE else 0
        if member.type == tarfile.CHRTYPE:
            info.devmajor, info.devminor = 1, 3
        archive.addfile(info, io.BytesIO(member.content))


def tar_of(members: Sequence[Member]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        add(archive, members)
    return content.getvalue()


def zstd(data: bytes) -> bytes:
    """Return a Zstandard frame of uncompressed blocks (RFC 8878, 3.1.1)."""
    blocks = [data[begin : begin + ZSTD_BLOCK] for begin in range(0, len(data), ZSTD_BLOCK)] or [b""]
    frame = bytearray(b"\x28\xb5\x2f\xfd\x00\x50")
    for number, block in enumerate(blocks):
        last = number == len(blocks) - 1
        frame += struct.pack("<I", len(block) << 3 | last)[:3] + block
    return bytes(frame)


def section(*packages: CondaPackage) -> CondaSection:
    return CondaSection("linux-64", ("x",), packages)
