"""Facts about the program of a launch's ranks, read as the training user: argv, executables, versions, digests.

Nothing is imported or run. Environment variables are stored as names and keyed digests, never as values. Each launch
has its own key, and without the key nobody can guess a value from its digest.
"""

from __future__ import annotations

import glob
import hashlib
import hmac
import os
import re
import time
from typing import TYPE_CHECKING, Any

from ..tools import files
from .parts import UnseenError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Json = dict[str, Any]

DIGEST = 16  # hexadecimal digits of a stored digest
MOST_ARGV, MOST_WORD = 64, 300
MOST_VARIABLES = 400
MOST_NAME = 100  # characters of a variable's name
MOST_SCRIPT = 8 << 20  # bytes
MOST_CODE, MOST_FILES, MOST_DEPTH = 8 << 20, 400, 6  # of the files beside the script
HASHING = 0.15  # seconds
SHEBANG = re.compile(rb"#! ?(/\S+)")
VERSION = re.compile(r"^__version__ = '([^'\n]{1,60})'", re.MULTILINE)
PYTHON = re.compile(r"^version(?:_info)? *= *(\S{1,40})", re.MULTILINE)
NCCL = re.compile(r"nvidia_nccl_cu\d+-([\w.]{1,30})\.dist-info")


def environment(env: Mapping[str, str], key: str) -> dict[str, str]:
    names = sorted(name for name in env if len(name) <= MOST_NAME and name.isprintable())
    return {name: digest(key, env[name]) for name in names[:MOST_VARIABLES]}


def digest(key: str, value: str) -> str:
    """Return the keyed digest of a value. key: hexadecimal."""
    return hmac.new(bytes.fromhex(key), value.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:DIGEST]


def shortened(argv: list[str]) -> list[str]:
    return [word[:MOST_WORD] for word in argv[:MOST_ARGV]]


def behind(argv: list[str], env: Mapping[str, str]) -> tuple[str, str]:
    """Return the paths of the executable and its interpreter, with links resolved; "" for a missing one."""
    found = located(argv[0], env.get("PATH", os.defpath)) if argv else ""
    if not found:
        return "", ""
    try:
        head = SHEBANG.match(files.part(found, 0, 300, links=True))
    except OSError:
        head = None
    return os.path.realpath(found), os.path.realpath(os.fsdecode(head[1]) if head else found)


def located(name: str, path: str) -> str:
    if "/" in name:
        return name if os.path.exists(name) else ""
    places = (f"{folder}/{name}" for folder in path.split(":") if folder.startswith("/"))
    return next(filter(os.path.isfile, places), "")


def digests(script: str, cwd: str) -> tuple[dict[str, str], str]:
    """Return the digests of the script and of the code in its folder, and the reason if a digest is missing."""
    if not script:
        return {}, "the launch does not run a script file"
    path = os.path.join(cwd or "/", script)
    deadline = time.monotonic() + HASHING
    try:
        found = {"script": hashlib.sha256(files.read(path, most=MOST_SCRIPT, links=True)).hexdigest()}
    except OSError as problem:
        return {}, f"{script}: {problem.strerror}"
    try:
        return {**found, "code": code_digest(os.path.dirname(os.path.realpath(path)), deadline)}, ""
    except (OSError, UnseenError) as problem:
        return found, f"the code beside {script}: {getattr(problem, 'strerror', None) or problem}"


def code_digest(folder: str, deadline: float) -> str:
    whole = hashlib.sha256()
    left = MOST_CODE
    for number, path in enumerate(python_files(folder, MOST_DEPTH)):
        if number >= MOST_FILES or time.monotonic() > deadline:
            raise UnseenError("the files are too many or too large")
        content = files.read(path, most=left, links=True)
        left -= len(content)
        # The length separates the end of one file from the beginning of the next.
        whole.update(f"{os.path.relpath(path, folder)}\0{len(content)}\0".encode("utf-8", "surrogateescape") + content)
    return whole.hexdigest()


def python_files(folder: str, depth: int) -> Iterator[str]:
    """Yield the Python files in a folder and in the packages below it. Raises OSError."""
    for name in files.names(folder, links=True, most=10 * MOST_FILES):
        path = f"{folder}/{name}"
        if name.endswith(".py"):
            yield path
        elif depth and not os.path.islink(path) and os.path.isfile(f"{path}/__init__.py"):
            yield from python_files(path, depth - 1)


def versions(folder: str, interpreter: str) -> dict[str, str]:
    """Return the Python and package versions of the environment in a folder, read from files."""
    folder = folder or os.path.dirname(os.path.dirname(interpreter))
    found: dict[str, str] = {}
    told = PYTHON.search(files.text(f"{folder}/pyvenv.cfg", most=10_000, links=True) or "")
    libraries = sorted(glob.glob(f"{glob.escape(folder)}/lib/python3*/site-packages"))
    if told:
        found["python"] = told[1]
    elif libraries:
        found["python"] = libraries[0].split("/")[-2].removeprefix("python")
    for library in libraries[:1]:
        torch = VERSION.search(files.text(f"{library}/torch/version.py", most=10_000, links=True) or "")
        nccl = NCCL.search(" ".join(map(os.path.basename, glob.glob(f"{glob.escape(library)}/nvidia_nccl_cu*"))))
        found.update({name: match[1] for name, match in (("torch", torch), ("nccl", nccl)) if match})
    if os.path.isdir(folder):
        found["muster_environment"] = os.path.realpath(folder)
    return found
