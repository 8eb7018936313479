"""Fetch files from peers over the SSH mesh (the part that runs on the node)."""

from __future__ import annotations

import hashlib
import os
import pwd
import random
import select
import subprocess
import tarfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.packages import peer_files as domain

from ..tools import files as safe
from ..tools.run import run
from ..tools.trust import foreign_writer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

KNOWN_HOSTS = ".ssh/muster_known_hosts"
# Enough when all nodes connect at once: sshd admits 10 unauthenticated connections (MaxStartups).
TRIES = 8
STALLED = 60  # seconds without a byte
LONGEST = 7200  # seconds for the whole transfer from one peer
CHUNK = 1 << 20
# The peer's login shell may send any output without end.
MOST_ASIDE = 64_000  # bytes of error output that are kept
MOST_BETWEEN = 64_000_000  # bytes between two files; tarfile would hold them all in memory
MOST_FILE = 8_000_000_000
LEFT_FREE = 500_000_000  # bytes of the disk that stay free
OPTIONS = (
    *("BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=10", "ServerAliveInterval=10"),
    # Override the user's settings for shared connections and verbose output.
    *("ControlMaster=no", "ControlPath=none", "ClearAllForwardings=yes", "LogLevel=ERROR"),
)


class OtherContentError(Exception):
    """Raised if the content of a file does not match its hash."""


class EndlessError(Exception):
    """Raised if the peer sends more data than requested."""


class SshStream:
    """Standard output of ssh as a stream. Reading raises an error after a timeout or if the stream exceeds a limit."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.left = b""
        self.count = 0
        self.most = 0
        self.until = time.monotonic() + LONGEST

    def allow(self, size: int) -> None:
        """Increase the limit by this number of bytes."""
        self.most = self.count + size

    def read(self, size: int) -> bytes:
        if not self.left:
            if self.count > self.most:
                raise EndlessError("the peer sent more data than requested")
            if not select.select([self.handle], [], [], max(0.0, min(STALLED, self.until - time.monotonic())))[0]:
                raise TimeoutError(f"no data received for {STALLED} s, or transfer incomplete after {LONGEST} s")
            self.left = os.read(self.handle, CHUNK)
            self.count += len(self.left)
        part, self.left = self.left[:size], self.left[size:]
        return part

    def skip_to(self, line: bytes) -> bool:
        """Skip everything up to this line, such as output of a login shell. Return whether the line arrived."""
        self.allow(CHUNK)
        before = b""
        while line not in before:
            part = self.read(CHUNK)
            if not part:
                return False
            before += part
        self.left = before.partition(line)[2] + self.left
        return True


class StderrReader(threading.Thread):
    """Reads an error stream to its end, so that the writer never blocks, and keeps part of the text."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self.stream = stream
        self.kept = bytearray()
        self.start()

    def run(self) -> None:
        while chunk := os.read(self.stream.fileno(), CHUNK):
            self.kept += chunk[: MOST_ASIDE - len(self.kept)]


class MeshUser:
    """The user of the SSH mesh."""

    def __init__(self, name: str) -> None:
        self.entry = pwd.getpwnam(name)
        self.known_hosts = f"{self.entry.pw_dir}/{KNOWN_HOSTS}"
        self.how: dict[str, Any] = {
            "cwd": "/",
            "env": {"PATH": os.defpath, "LC_ALL": "C", "HOME": self.entry.pw_dir, "USER": name, "LOGNAME": name},
        }
        if os.geteuid() == 0:
            self.how |= {
                "user": self.entry.pw_uid,
                "group": self.entry.pw_gid,
                "extra_groups": os.getgrouplist(name, self.entry.pw_gid),
            }

    def known_peers(self) -> frozenset[str]:
        # Read as the user, because many file servers deny root.
        known: frozenset[str] = domain.known_peers(run("cat", self.known_hosts, user=self.entry).text)
        return known

    def ssh(self, peer: str, command: str) -> Any:
        options = [f"-o{option}" for option in (*OPTIONS, f'UserKnownHostsFile="{self.known_hosts}"')]
        argv = ["ssh", "-n", "-T", *options, "--", peer, command]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **self.how)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def is_there(folder: Path, file: domain.WantedFile) -> bool:
    path = folder / file.name
    return path.is_file() and not path.is_symlink() and sha256_of(path) == file.sha256


def prepare(folder: Path) -> None:
    """Create the folder, writable by root only, and remove leftovers of a killed run."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    refuse_foreign(folder)
    for leftover in folder.glob(f".*{safe.NEW}"):
        leftover.unlink(missing_ok=True)


def refuse_foreign(folder: Path) -> None:
    who = foreign_writer(str(folder))
    if who:
        raise domain.PeerFilesError(f"{folder} is not safe to use: {who}; only root may have write access")


def fetch(
    user: str, peers: Sequence[str], source: str, target: str, files: Sequence[domain.WantedFile]
) -> tuple[list[str], list[domain.FetchAttempt]]:
    """Fetch missing files from the peers in order. Return the names of files that are still missing, and the
    attempts."""
    folder = Path(target)
    refuse_foreign(folder)
    missing = [file for file in files if not is_there(folder, file)]
    attempts: list[domain.FetchAttempt] = []
    if not missing:
        return [], attempts
    prepare(folder)
    try:
        who = MeshUser(user)
        known = who.known_peers()
    except KeyError:
        known = frozenset()
    for peer in peers:
        if not missing:
            break
        if peer not in known:
            attempts.append(
                domain.FetchAttempt(
                    peer, why=f"{user} has no recorded host key of the peer: the SSH mesh is not set up"
                )
            )
            continue
        tried = _ask(who, peer, source, folder, missing)
        attempts.append(tried)
        missing = [file for file in missing if file.name not in tried.fetched]
    return [file.name for file in missing], attempts


def _ask(
    who: MeshUser, peer: str, source: str, folder: Path, files: Sequence[domain.WantedFile]
) -> domain.FetchAttempt:
    tried = _once(who, peer, source, folder, files)
    for number in range(1, TRIES):
        if tried.fetched or not domain.hung_up(tried.why):
            break
        time.sleep(number * random.SystemRandom().uniform(0.2, 1.0))
        tried = _once(who, peer, source, folder, files)
    return tried


def _once(
    who: MeshUser, peer: str, source: str, folder: Path, files: Sequence[domain.WantedFile]
) -> domain.FetchAttempt:
    expected = {file.name: file.sha256 for file in files}
    fetched: list[str] = []
    wrong = broke = ""
    ssh = who.ssh(peer, domain.remote_command(source, list(expected)))
    said = StderrReader(ssh.stderr)
    stream = SshStream(ssh.stdout.fileno())
    try:
        if stream.skip_to(domain.BEGIN):
            wrong = _unpack(stream, folder, expected, fetched)
    except tarfile.TarError as problem:
        broke = f"the transfer was interrupted ({problem})"
    except (TimeoutError, EndlessError) as problem:
        wrong = str(problem)
        ssh.kill()
    finally:
        # Closing standard output ends tar and ssh, but not a program that writes only to the error stream.
        ssh.stdout.close()
        code = _ended(ssh)
    said.join(STALLED)
    text = bytes(said.kept).decode(errors="replace")
    # Errors of ssh and tar explain more than a truncated archive.
    if broke and not text.strip():
        wrong = broke
    why = wrong or domain.why_not(code, text, fetched, list(expected))
    return domain.FetchAttempt(peer, tuple(fetched), stream.count, why)


def _ended(ssh: Any) -> int:
    try:
        return int(ssh.wait(STALLED))
    except subprocess.TimeoutExpired:
        ssh.kill()
        return int(ssh.wait())


def _unpack(stream: Any, folder: Path, expected: dict[str, str], fetched: list[str]) -> str:
    """Write the requested files whose hashes match. Return an error for other files. If a file arrives twice, the first
    copy counts."""
    wrong = ""
    left = dict(expected)
    stream.allow(MOST_BETWEEN)
    with tarfile.open(fileobj=stream, mode="r|", bufsize=CHUNK) as archive:
        for member in archive:
            # A sparse file claims any size in its header without sending the data.
            whole = member.isreg() and not member.issparse() and member.name in left
            content = archive.extractfile(member) if whole else None
            if content is None:
                continue
            stream.allow(MOST_FILE)
            try:
                _write(content, folder / member.name, left.pop(member.name))
                fetched.append(member.name)
            except OtherContentError:
                wrong = f"{member.name} does not match its sha256"
            stream.allow(MOST_BETWEEN)
    return wrong


def _write(content: IO[bytes], path: Path, sha256: str) -> None:
    """Write the file atomically. If the hash differs, write nothing and raise OtherContentError."""
    digest = hashlib.sha256()
    with safe.replacing(str(path), mode=0o644) as file:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            file.write(chunk)
            disk = os.fstatvfs(file.fileno())
            if disk.f_bavail * disk.f_frsize < LEFT_FREE:
                raise EndlessError("the disk is almost full")
        if digest.hexdigest() != sha256:
            raise OtherContentError
