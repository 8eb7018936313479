"""Read sshd's effective settings, its host keys and the algorithms that sshd offers."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

from ansible.module_utils.muster.network import sshd

from ..tools.result import RefusedError

SSHD = "/usr/sbin/sshd"
# State of an unconfirmed change of sshd; see plugin_utils/muster_controller/network/guard.py.
GUARD = Path("/var/lib/muster/guard/sshd/state.json")
TOOL_TIMEOUT = 30


def settings_in_force(user: str, address: str) -> sshd.Settings:
    """Return sshd's settings for this user and a peer's connection; {} if sshd does not report them."""
    if not Path(SSHD).exists():
        raise RefusedError("has no SSH server: run sudo apt-get install openssh-server")
    said = asked(user, address)
    broken = sshd.broken(said.returncode, said.stderr)
    if broken:
        raise RefusedError(broken)
    return sshd.parse(said.stdout) if said.returncode == 0 else {}


def asked(user: str, address: str) -> subprocess.CompletedProcess[str]:
    return run(SSHD, "-T", "-C", f"user={user},host={address},addr={address}")


def in_force(user: str, address: str) -> str:
    """Return all effective settings for this user as printed by sshd."""
    return asked(user, address).stdout


def host_keys(settings: sshd.Settings) -> list[str]:
    """Return sshd's public host keys, as type and key."""
    private = [Path(path) for path in settings.get("hostkey", [])]
    public = [path.with_name(f"{path.name}.pub") for path in private] or sorted(
        Path("/etc/ssh").glob("ssh_host_*_key.pub")
    )
    return [" ".join(path.read_text(encoding="utf-8").split()[:2]) for path in public if path.is_file()]


def offered(address: str, port: int) -> dict[str, list[str]]:
    """Return the algorithms that the running sshd offers. sshd might still use older settings."""
    try:
        with socket.create_connection((address, port), timeout=5) as sock, sock.makefile("rb") as stream:
            sock.sendall(b"SSH-2.0-muster_look\r\n")
            for _ in range(20):  # a server may greet before its version
                if stream.readline(256).startswith(b"SSH-"):
                    break
            length = int.from_bytes(stream.read(4), "big")
            packet = stream.read(min(length, 65536))
        offers: dict[str, list[str]] = sshd.offers_of(packet[1 : len(packet) - packet[0]])
    except (OSError, ValueError, IndexError):
        return {}
    return offers


def judge_sshd(params: dict[str, Any], settings: sshd.Settings, port: int) -> tuple[str, list[str]]:
    """Return the required action for sshd's settings, and the weak algorithms set by the site."""
    dropin = params["sshd_settings"]
    if not dropin or not settings:
        return "", []
    path = Path(params["sshd_path"])
    file = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    if GUARD.exists():
        return "settle", []
    return sshd.pending(dropin, file, settings, offered(params["address"], port)), sshd.overridden(
        dropin, file, settings
    )


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=TOOL_TIMEOUT
    )
