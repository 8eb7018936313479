"""Makes first contact with a node: reads the host key without logging in, and then logs in through a shell.

`ssh -G` returns how ssh would connect (address, port, jump host, known_hosts files). The SSH server sends its host key
before authentication. The first login uses a shell because Python might be missing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paramiko
from ansible.errors import AnsibleError
from ansible.module_utils.common.text.converters import to_text

from muster.network import known_hosts, trust
from muster.network.known_hosts import HostKey
from muster.onboard import contact
from muster.verdict.foreign import quote
from muster_controller.playbook.node_error import NodeError, one_line
from muster_node.tools import files
from muster_node.tools.run import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ansible.plugins.connection import ConnectionBase

    from muster_controller.nodes.connection import NodeConnection

TIMEOUT = 12.0
# Signature algorithms of key types, if their names differ.
ALGORITHMS = {"ssh-rsa": ["rsa-sha2-512", "rsa-sha2-256"]}
AT_ONCE = 32
MOST = 20_000  # characters of a machine's output
MOST_RECEIVED = 256_000  # bytes that a machine can send before its host key; sshd sends about 3000
CHUNK = 16_384
# Prints the input of contact.read, and changes nothing. $1 is the interpreter.
LOOK = r"""
LC_ALL=C; export LC_ALL
echo "muster.user $(id -un)"; echo "muster.uid $(id -u)"
echo "muster.python $("$1" -I -S -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"
for other in /usr/bin/python3.[0-9]* /usr/local/bin/python3.[0-9]*; do
  case $other in *config*|*'*'*) ;; *) echo "muster.other $other" ;; esac
done
said=$(sudo -n true 2>&1); code=$?
echo "muster.sudo $code"; echo "muster.said $said" | head -n 1
"""


# The exceptions contain the messages that paramiko logs.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


@dataclass(frozen=True)
class Road:
    """A node, with the arguments of ssh, or None if the inventory does not use SSH for the node."""

    node: str
    host: str
    arguments: tuple[str, ...] | None
    wanted: str = ""


@dataclass(frozen=True)
class End:
    """The connection that ssh would make.

    name: the name under which known_hosts lists the key. files: the known_hosts files. through: the command that
    carries the connection, if any.
    jump, command: the user's ProxyJump hosts or ProxyCommand.
    """

    hostname: str = ""
    port: int = 22
    name: str = ""
    files: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    error: str = ""
    jump: tuple[str, ...] = ()
    command: str = ""

    @property
    def shown(self) -> str:
        return f"[{self.hostname}]:{self.port}" if ":" in self.hostname else f"{self.hostname}:{self.port}"


class NoKeyError(Exception):
    """The reason why no key was received."""


class LimitedSocket:
    """A socket for paramiko, which stores whatever an unknown machine sends, up to 4 GB."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._left = sock, MOST_RECEIVED

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv(self, size: int) -> bytes:
        if not self._left:
            raise paramiko.SSHException(f"more than {MOST_RECEIVED} bytes without a host key")
        received = self._sock.recv(min(size, CHUNK, self._left))
        self._left -= len(received)
        return received


def road_to(node: str, connection: ConnectionBase, wanted: str = "") -> Road:
    """Return the arguments with which Ansible would call ssh for a node."""
    if connection._load_name != "ssh":
        return Road(node=node, wanted=wanted, host=connection._load_name, arguments=None)
    arguments: list[str] = []
    for option in ("ssh_args", "ssh_common_args", "ssh_extra_args"):
        arguments += connection._split_ssh_args(connection.get_option(option) or "")
    port, user = connection.get_option("port"), connection.get_option("remote_user")
    arguments += ["-p", str(port)] if port else []
    arguments += ["-l", str(user)] if user else []
    return Road(node=node, wanted=wanted, host=str(connection.get_option("host")), arguments=tuple(arguments))


def meet(road: Road, project: str, replace: Sequence[str]) -> trust.HostKeyDecision:
    """Read the host keys of a node, and decide whether to trust them."""
    if road.arguments is None:
        return trust.decide(trust.Contact(road.node, "", road.host, local=True), [], project, replace)
    end = where_it_ends(road, project)
    known = [entry for path in end.files for entry in known_hosts.entries(read(path), path) if entry.names(end.name)]
    keys: list[HostKey] = []
    error = end.error
    asked: list[list[str]] = []
    while not error:
        types = trust.types_to_ask(keys, known, road.wanted, asked)
        if not types:
            break
        asked.append(types)
        try:
            keys.append(show_key(end, types))
        except NoKeyError as exc:
            # A node may have only one key.
            error = "" if keys else str(exc)
    contact = trust.Contact(
        node=road.node,
        host=end.name,
        address=end.shown,
        keys=tuple(keys),
        error=error,
        wanted=road.wanted,
        reads=project in end.files,
    )
    return trust.decide(contact, known, project, replace)


def read(path: str) -> str:
    """Return the text of a file, or "" if the file is missing. Invalid UTF-8 is preserved (surrogateescape)."""
    try:
        return files.read(path, links=True).decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError, PermissionError, files.UnsafePathError):
        return ""


def where_it_ends(road: Road, project: str) -> End:
    """Return how ssh would connect to the node. The known_hosts file of the inventory need not exist."""
    said = run("ssh", *(road.arguments or ()), "-G", road.host, seconds=TIMEOUT, env=os.environ, cwd=".")
    if said.why:
        return End(road.host, error=f"ssh rejects the arguments: {said.said or said.why}")
    settings: dict[str, str] = {}
    for line in said.text.splitlines():
        keyword, _, value = line.partition(" ")
        settings.setdefault(keyword, value)
    hostname, port = settings.get("hostname", road.host), int(settings.get("port", "22"))
    files: list[str] = []
    for keyword in ("userknownhostsfile", "globalknownhostsfile"):
        value = settings.get(keyword, "")
        existing = {path for path in known_hosts.candidates(value) if Path(path).expanduser().exists()}
        paths = known_hosts.paths_of(value, {project, *existing})
        files += [str(Path(path).expanduser()) for path in paths]
    return End(
        hostname=hostname,
        port=port,
        name=known_hosts.host_name(hostname, port, settings.get("hostkeyalias", "")),
        files=tuple(os.path.realpath(path) for path in files),
        through=through(settings, road.arguments or (), hostname, port),
        jump=tuple(hop for hop in settings.get("proxyjump", "none").split(",") if hop != "none"),
        command="" if settings.get("proxycommand", "none") == "none" else settings["proxycommand"],
    )


def through(settings: dict[str, str], arguments: Sequence[str], hostname: str, port: int) -> tuple[str, ...]:
    """Return the command that carries the connection, or () for a direct connection."""
    jump = settings.get("proxyjump", "none")
    if jump != "none":
        *before, last = jump.split(",")
        user, _, place = last.rpartition("@")
        target = f"[{hostname}]:{port}" if ":" in hostname else f"{hostname}:{port}"
        # Like ssh itself, pass only the configuration file to the jump host's ssh.
        command = ["ssh", *settings_file(arguments), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]
        command += ["-J", ",".join(before)] if before else []
        command += ["-l", user] if user else []
        place, jump_port = split_port(place)
        command += ["-p", jump_port] if jump_port else []
        return (*command, "-W", target, place)
    command_line = settings.get("proxycommand", "none")
    if command_line != "none":
        tokens = {"%%": "%", "%h": hostname, "%p": str(port), "%r": settings.get("user", ""), "%n": hostname}
        for token, value in tokens.items():
            command_line = command_line.replace(token, value)
        return ("/bin/sh", "-c", f"exec {command_line}")
    return ()


def settings_file(arguments: Sequence[str]) -> list[str]:
    for place, argument in enumerate(arguments):
        if argument == "-F":
            return ["-F", arguments[place + 1]]
        if argument.startswith("-F"):
            return [argument]
    return []


def split_port(place: str) -> tuple[str, str]:
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        return host, port.removeprefix(":")
    host, _, port = place.partition(":")
    return host, port


def show_key(end: End, types: Sequence[str]) -> HostKey:
    """Return the node's host key of the first available type. Raises NoKeyError."""
    with connected(end) as sock:
        try:
            transport = paramiko.Transport(LimitedSocket(sock))
        except (OSError, EOFError, paramiko.SSHException) as exc:
            raise NoKeyError(str(exc)) from exc
        transport.banner_timeout = TIMEOUT
        try:
            offered = [name for kind in types for name in ALGORITHMS.get(kind, [kind])]
            transport.get_security_options().key_types = offered
            transport.start_client(timeout=TIMEOUT)
            key = transport.get_remote_server_key()
        except paramiko.SSHException as exc:
            raise NoKeyError(_plain(str(exc))) from exc
        except (OSError, EOFError) as exc:
            raise NoKeyError(f"the connection was lost: {exc or 'no data'}") from exc
        finally:
            transport.close()
    return HostKey(key.get_name(), key.get_base64())


def _plain(reason: str) -> str:
    """Return why paramiko ended the connection. The reason can contain text of an unknown machine."""
    if "banner" in reason:
        return "the port is open, but the service is not an SSH server"
    return f"no valid SSH handshake: {quote(one_line(reason))}"


@contextlib.contextmanager
def connected(end: End) -> Iterator[socket.socket]:
    """Yield a socket to the node's sshd. Raises NoKeyError."""
    if not end.through:
        try:
            sock = socket.create_connection((end.hostname, end.port), timeout=TIMEOUT)
        except socket.gaierror as exc:
            raise NoKeyError(f"{end.hostname} cannot be resolved ({exc.strerror})") from exc
        except TimeoutError as exc:
            raise NoKeyError(f"no reply within {TIMEOUT:.0f} s") from exc
        except OSError as exc:
            raise NoKeyError((exc.strerror or str(exc)).lower()) from exc
        with sock:
            yield sock
        return
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        subprocess.Popen(
            end.through,
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process,
    ):
        theirs.close()
        try:
            yield ours
        except NoKeyError as exc:
            ours.close()
            said = _end_of(process)
            relay = f"through {shlex.join(end.through[:1])} ... {end.through[-1]}"
            raise NoKeyError(f"{relay}: {quote(said) if said else exc}") from exc
        finally:
            ours.close()
            _end_of(process)


def _end_of(process: subprocess.Popen[str]) -> str:
    """Return the error output of the command, which is terminated after 2 s."""
    try:
        _, said = process.communicate(timeout=2)
    except subprocess.TimeoutExpired:
        process.terminate()
        _, said = process.communicate()
    except ValueError:
        return ""  # already read
    return one_line(said or "")


def met(connections: Mapping[str, NodeConnection]) -> dict[str, str]:
    """Check these machines in parallel. Return for each why it cannot be onboarded, or ""."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # Ansible keeps the current task in a context variable, which threads do not inherit.
        looks = {name: pool.submit(copy_context().run, _meet, one) for name, one in connections.items()}
        return {name: look.result() for name, look in looks.items()}


def _meet(node: NodeConnection) -> str:
    user = str(node.connection._play_context.remote_user or "")
    command = f"/bin/sh -c {shlex.quote(LOOK)} sh {shlex.quote(node.interpreter)}"
    try:
        code, out, err = node.connection.exec_command(command, in_data=None, sudoable=False)
    except AnsibleError as problem:
        return contact.not_reached(one_line(str(problem)), user)
    login = contact.read(to_text(out)[:MOST], node.interpreter)
    if login is None:
        said = one_line(to_text(err)) or one_line(to_text(out)) or "nothing"
        return f"the login shell cannot run commands: exit code {code}, output: {said}"
    return contact.python_problem(login) or _root(node, login)


def _root(node: NodeConnection, login: contact.FirstLogin) -> str:
    """Check that Python runs as root with the inventory's settings, as all steps require."""
    try:
        code, out, err = node.python("-I -S -c 'import os; print(os.getuid())'", b"", privileged=True)
    except NodeError as problem:
        return contact.sudo_problem(login, str(problem))
    if code or out.strip() != "0":
        return contact.sudo_problem(login, one_line(err) or one_line(out) or f"exit code {code}")
    return ""
