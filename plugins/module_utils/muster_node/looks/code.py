"""Compute fingerprints of the code that a job runs. Equal fingerprints mean equal file names and contents."""

from __future__ import annotations

import hashlib
import os
import pwd
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..tools import files
from ..tools.as_user import SilentError, as_user

MOST_FILES = 5000
MOST_BYTES = 64_000_000
SECONDS = 3.0
# Folders that tools create and whose differences do not matter.
LEFT_OUT = (".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", ".venv", "venv")


def look(code: list[str], user: str) -> dict[str, Any]:
    """Return {path: {digest, files, why}}. The digest is missing if the path does not exist, cannot be read by the
    training user, or is too large.

    The training user reads, because this user may have written the code, and links in it could lead root anywhere. The
    work is done in a forked process, so no other thread must be running.
    """
    seen: dict[str, Any] = {}
    why = f"the user {user} does not exist"
    with suppress(KeyError):
        account = pwd.getpwnam(user)
        try:
            seen = as_user(account, lambda: _fingerprints(code)) if code else {}
        except SilentError as silent:
            why = str(silent.strerror)
    return {path: seen.get(path, {"digest": "", "files": 0, "why": why}) for path in code}


def _fingerprints(code: list[str]) -> dict[str, Any]:
    deadline = time.monotonic() + SECONDS
    found: dict[str, Any] = {}
    for path in code:
        try:
            found[path] = fingerprint(path, deadline)
        except OSError as error:
            found[path] = {"digest": "", "files": 0, "why": f"{error.filename}: {error.strerror}"}
    return found


def fingerprint(path: str, deadline: float) -> dict[str, Any]:
    top = Path(path)
    if not top.exists():
        return {"digest": "", "files": 0, "why": "not found"}
    total = hashlib.sha256()
    count = size = 0
    for file in files_below(top):
        content = files.part(str(file), 0, MOST_BYTES + 1, links=True) if file.is_file() else b""
        count += 1
        size += len(content)
        if count > MOST_FILES or size > MOST_BYTES or time.monotonic() > deadline:
            return {
                "digest": "",
                "files": count,
                "why": f"more than {MOST_FILES} files or {MOST_BYTES // 1_000_000} MB, or reading is too slow",
            }
        name = str(file.relative_to(top)) if file != top else file.name
        total.update(f"{name}\0{len(content)}\0".encode() + hashlib.sha256(content).digest())
    return {"digest": total.hexdigest()[:16], "files": count, "why": ""}


def files_below(top: Path) -> list[Path]:
    if not top.is_dir():
        return [top]
    found: list[Path] = []
    for folder, folders, names in os.walk(top, onerror=_raise):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        found += [Path(folder, name) for name in names if not name.endswith(".pyc")]
        if len(found) > MOST_FILES:
            break
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error
