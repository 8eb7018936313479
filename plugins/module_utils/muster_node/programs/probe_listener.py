"""The listening side of the network probe on one node: listens on the ports of a launch and responds.

Run by NodeProgram (plugin_utils), with a verb as argument and a JSON payload on standard input. No verb needs root.
    serve   start a listening process and return its ports; the process ends after the last call
    count   return how many packets did not get through to this node's listeners
    end     end that process

A caller sends a token that only the nodes of the same probe know, and receives the name of the node. Other programs on
the port, or other machines with the address, cannot send this response. probe_caller.py is the calling side.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import os
import resource
import selectors
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

from ..tools import files, process
from ..tools.kernel_files import filtered
from ..tools.program import answer
from ..tools.run import run
from ..tools.sockets import HALF_OPEN, sockets

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

PROCESS_NAME = "muster-probe"  # name in `ss` and `ps`, by which a later probe recognizes an earlier one
FIRST_CALL = 45.0  # seconds that the listening process waits for its first call, while other nodes start
LIFETIME = 900.0  # maximum lifetime in seconds
PATIENCE = 3.0  # seconds to send a response
ENDING = 2.0  # seconds to wait for the end of the listening process, which frees its ports
CHUNK = 256 * 1024
# Limits of a caller's requests, far above those of probe_caller.py.
LONGEST_BULK = 10.0  # seconds
MOST_BULK = 8  # at a time
MOST_TAKEN = 16_000_000  # bytes
MOST_CALLERS = 4096
STRANGER = 10.0  # seconds until a connection without the token is closed


def main() -> None:
    answer({"serve": serve, "count": count, "end": end})


# ---------------------------------------------------------------- serve


def serve(request: Json) -> Json:
    """Listen on the master port and on some ephemeral ports.

    request: {token, node, port, samples, idle: the process ends after this number of seconds without a call}. port:
    None if only the ephemeral ports are needed. first_call: seconds to wait for the first call (at most FIRST_CALL).
    beats: the launch's heartbeat port, if any; other checks detect programs that use this port.
    """
    low, high = ephemeral_range()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # every node opens several connections
    wanted = request["port"]
    master, holder = patient_listener(wanted, request["idle"] + 2) if wanted else (None, "")
    second = request.get("beats")
    beats, _ = patient_listener(second, request["idle"] + 2) if second else (None, "")
    ephemeral = list(sampled(low, high, request["samples"]))
    every = [*filter(None, (master, beats)), *ephemeral]
    pid = leave_behind(request, every) if every else 0
    interfaces = interface_facts()
    return {
        "pid": pid,
        "started": seen.started if pid and (seen := process.status(pid)) else 0,
        "port": request["port"] if master else None,
        "beats": second if beats else None,
        "holder": holder,
        "ephemeral": [entry.getsockname()[1] for entry in ephemeral],
        "range": [low, high],
        "hostname": socket.gethostname(),
        "interfaces": interfaces,
        "physical": [name for name in interfaces or {} if os.path.exists("/sys/class/net/%s/device" % name)],
        "filtered": filtered(),
    }


def count(request: Json) -> Json:
    """Return the packets that were filtered since the kernel started, and the number of half-open connections to these
    ports, whose replies are lost. request: {ports}."""
    halves = sum(one.state == HALF_OPEN and one.port in request["ports"] for one in sockets())
    return {"filtered": filtered(), "half_open": halves}


def ephemeral_range() -> tuple[int, int]:
    try:
        low, high = (files.text("/proc/sys/net/ipv4/ip_local_port_range") or "").split()
        return int(low), int(high)
    except ValueError:
        return 32768, 60999


def listener(port: int) -> socket.socket:
    """Listen on all addresses (IPv4, and IPv6 if available), like the rendezvous store."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)


def sampled(low: int, high: int, count: int) -> Iterator[socket.socket]:
    """Listen on ports at the bottom, top and middle of the range. If a port is in use, take the next free port."""
    middle = [low + int.from_bytes(os.urandom(4), "big") % (high - low + 1) for _ in range(max(0, count - 2))]
    for number, wanted in enumerate([low, high, *middle][:count]):
        step = -1 if number == 1 else 1
        for port in range(wanted, wanted + 50 * step, step):
            if not low <= port <= high:
                break
            try:
                yield listener(port)
                break
            except OSError:
                continue  # in use: the next port tells the same about a firewall


def patient_listener(port: int, patience: float) -> tuple[socket.socket | None, str]:
    """Return the listener, or the program that uses the port. Wait if another probe uses the port."""
    until = time.monotonic() + patience
    while True:
        try:
            return listener(port), ""
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                return None, exc.strerror or str(exc)
            holder = other_probe() or launch_here() or exc.strerror or str(exc)
        if holder != PROCESS_NAME or time.monotonic() > until:
            return None, holder
        time.sleep(0.25)


def launch_here() -> str:
    """Return the unit of a running launch, or an empty string. A launch can use the port and must not be disturbed."""
    launch = next(filter(None, map(process.launch_at, process.ids())), None)
    return process.LAUNCH_UNIT.format(launch.id) if launch else ""


def other_probe() -> str:
    names = (process.read(pid, "comm").strip() for pid in process.ids())
    return PROCESS_NAME if PROCESS_NAME in names else ""


def leave_behind(request: Json, listeners: list[socket.socket]) -> int:
    """Start a process in its own session that outlives this call and shares no open files with it. Return the process's
    PID."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        try:
            os.setsid()
            child = os.fork()
            if child == 0:
                quiet = os.open(os.devnull, os.O_RDWR)
                for number in range(3):
                    os.dup2(quiet, number)
                os.close(read_end)
                os.close(write_end)
                with contextlib.suppress(OSError):
                    files.overwrite("/proc/self/comm", PROCESS_NAME.encode())
                Server(request, listeners).run()
            else:
                os.write(write_end, b"%d" % child)
        finally:
            os._exit(0)
    os.close(write_end)
    pid = int(os.read(read_end, 32) or b"0")
    os.wait()
    return pid


def interface_facts() -> Json | None:
    """Return {interface: {addresses, mac, mtu, state, speed}}, or None if the program ip is missing."""
    try:
        links = json.loads(run("ip", "-json", "address", "show").text)
    except ValueError:
        return None
    return {
        link["ifname"]: {
            "addresses": [entry["local"] for entry in link.get("addr_info", []) if "local" in entry],
            "mac": link.get("address", ""),
            "mtu": link.get("mtu"),
            "state": link.get("operstate", ""),
            "speed": speed_of(link["ifname"]),
        }
        for link in links
        if "ifname" in link
    }


def speed_of(interface: str) -> int | None:
    """Return the interface's speed in Mbit/s."""
    text = (files.text("/sys/class/net/%s/speed" % interface) or "").strip()
    return int(text) if text.isdigit() and int(text) > 0 else None


class Server:
    """Responds to the calls of all nodes in one thread. Longer transfers run in a child process."""

    def __init__(self, request: Json, listeners: list[socket.socket]) -> None:
        self.token = request["token"]
        self.node = request["node"]
        self.idle = request["idle"]
        self.selector = selectors.DefaultSelector()
        self.slot: socket.socket | None = None  # only the node with this connection may send in bulk
        self.waiting: collections.deque[socket.socket] = collections.deque()
        self.bulk: set[int] = set()
        self.strangers: dict[Caller, float] = {}  # times of connection, the oldest first
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.room = min(MOST_CALLERS, soft - 2 * len(listeners) - 32)
        self.ends = time.monotonic() + LIFETIME
        self.until = time.monotonic() + min(FIRST_CALL, request.get("first_call", FIRST_CALL))
        for entry in listeners:
            entry.setblocking(False)
            self.selector.register(entry, selectors.EVENT_READ, None)

    def run(self) -> None:
        while time.monotonic() < min(self.ends, self.until):
            self.send_away(time.monotonic() - STRANGER)
            for key, _ in self.selector.select(1.0):
                if key.data is None:
                    self.accept(key.fileobj)
                else:
                    self.read(key.data)

    def accept(self, entry: Any) -> None:
        try:
            peer, _ = entry.accept()
        except OSError:
            return  # already closed
        if len(self.selector.get_map()) > self.room:
            peer.close()
            return
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.settimeout(PATIENCE)
        caller = Caller(peer)
        self.strangers[caller] = time.monotonic()
        self.selector.register(peer, selectors.EVENT_READ, caller)

    def send_away(self, since: float) -> None:
        """Close connections that were opened before a time and have not sent the token."""
        for caller in [caller for caller, came in self.strangers.items() if came <= since]:
            self.drop(caller)

    def read(self, caller: Caller) -> None:
        try:
            data = caller.peer.recv(CHUNK)
            now = time.time()
            caller.feed(data)
            going_on = bool(data) and all(self.answer(caller, line, now) for line in caller.lines())
        except (OSError, ValueError):
            going_on = False
        if not going_on:
            self.drop(caller)

    def answer(self, caller: Caller, line: str, now: float) -> bool:
        """Handle one line of a caller. Return whether this process continues to serve the connection."""
        verb, *arguments = line.split()
        if not caller.known:
            # Connections without the token get no response at all.
            if verb != self.token:
                return False
            caller.known = True
            self.strangers.pop(caller, None)
            verb, *arguments = arguments
        self.until = time.monotonic() + self.idle
        if verb == "hello":
            caller.peer.sendall(b"%s %s\n" % (PROCESS_NAME.encode(), self.node.encode()))
        elif verb == "time":
            caller.peer.sendall(b"%.6f %.6f\n" % (now, time.time()))
        elif verb == "take":
            caller.expected = int(arguments[0])
            if not 0 < caller.expected <= MOST_TAKEN:
                return False
            caller.feed(b"")
        elif verb == "slot":
            self.waiting.append(caller.peer)
            self.grant()
        elif verb in ("sink", "source"):
            self.send_in_bulk(caller.peer, verb, float(arguments[0]))
            return False
        return True

    def send_in_bulk(self, peer: socket.socket, verb: str, seconds: float) -> None:
        self.bulk = {pid for pid in self.bulk if os.waitpid(pid, os.WNOHANG) == (0, 0)}
        if 0 < seconds <= LONGEST_BULK and len(self.bulk) < MOST_BULK:
            pid = os.fork()
            if pid == 0:
                in_bulk(peer, verb, seconds)
            self.bulk.add(pid)

    def grant(self) -> None:
        while self.slot is None and self.waiting:
            self.slot = self.waiting.popleft()
            try:
                self.slot.sendall(b"go\n")
            except OSError:
                self.slot = None

    def drop(self, caller: Caller) -> None:
        peer = caller.peer
        self.strangers.pop(caller, None)
        self.selector.unregister(peer)
        peer.close()
        if peer in self.waiting:
            self.waiting.remove(peer)
        if peer is self.slot:
            self.slot = None
            self.grant()


class Caller:
    """One connection to the server. Splits the input into lines, and counts the bytes that `take` announced."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.known = False
        self.expected = 0
        self.text = b""

    def feed(self, data: bytes) -> None:
        self.text += data
        if self.expected:
            taken = min(self.expected, len(self.text))
            self.text = self.text[taken:]
            self.expected -= taken
            if not self.expected:
                self.peer.sendall(b"got\n")

    def lines(self) -> Iterator[str]:
        while not self.expected and b"\n" in self.text:
            line, _, self.text = self.text.partition(b"\n")
            if line.strip():
                yield line.decode(errors="replace")
        if not self.expected and len(self.text) > 4096:
            raise ValueError("line too long")


def in_bulk(peer: socket.socket, verb: str, seconds: float) -> None:
    """Receive or send as much data as possible in this time, in a child process of the server."""
    try:
        peer.settimeout(seconds + 2.0)
        until = time.monotonic() + seconds + 2.0
        data = memoryview(bytearray(CHUNK))
        while time.monotonic() < until:
            if verb == "sink":
                if not peer.recv_into(data):
                    break
            else:
                peer.send(data)
    except OSError:
        return  # the other end is done
    finally:
        os._exit(0)


# ---------------------------------------------------------------- end


def end(request: Json) -> Json:
    """End the process that `serve` started, and no other process. request: {pid, started}."""
    if process.runs(request["pid"], request["started"]):
        os.kill(request["pid"], signal.SIGTERM)
    until = time.monotonic() + ENDING
    while (runs := process.runs(request["pid"], request["started"])) and time.monotonic() < until:
        time.sleep(0.01)
    return {"ended": not runs}


if __name__ == "__main__":
    main()
