"""What the probe of the network does on one node: answer the other nodes, and call them.

plugins/action/net_probe.py pipes this file into the node's own Python (3.10+, standard library only), with a verb as
argument and a JSON payload behind it on standard input. Every verb prints one JSON object. None of them needs root.

    serve   leaves a process behind that listens where a launch would, and tells on which ports; it ends by itself
    probe   calls all other nodes at once: ports, round trips, clocks, packet sizes, losses, and how names resolve
    pair    sends as much as it can for a moment, to one node after the other
    end     ends that process

Whoever calls says a token that only the nodes of this one probe know, and hears in return which node answered: another
program on the port, or another machine with the address, cannot say that.
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
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]

PROCESS_NAME = "muster-probe"  # what `ss` and `ps` show, and by which a later probe knows an earlier one
IDLE = 30.0  # seconds without a call after which the listening process ends: nobody is there any more
LIFETIME = 900.0  # after which it ends in any case
AT_ONCE = 32  # links that are looked at together: more would measure this node's own processor
# A lost SYN is sent again after 1 s. Attempts side by side find a way through losses sooner than one that waits.
ATTEMPTS = (0.0, 0.4, 0.8)
CONNECT_TIMEOUT = 2.2
GREETING_TIMEOUT = 3.0
STEP_TIMEOUT = 3.0
# TCP sends what is lost again after 200 ms, then 400: what has not come through by then does not.
STALL = 1.3
BULK = 192 * 1024  # bytes: many full packets in a row
EXCHANGES = 6
BURST = 10  # packets, as many as TCP sends at once on a new connection
BURST_PAUSE = 0.015
ACK_WAIT = 0.8
NAMES_TIMEOUT = 2.5
LADDER = 16  # packet sizes that are tried at once
LADDER_ROUNDS = 3
SMALLEST_MTU = 576  # RFC 791: every host takes packets of this size
CHUNK = 256 * 1024
SLOT_TIMEOUT = 20.0
UNKNOWN = (0, 0xFFFFFFFF)  # what the kernel says where it has not measured


def main(verb: str, payload: Any) -> None:
    verbs: dict[str, Callable[[Any], Json]] = {"serve": serve, "probe": probe, "pair": pair, "end": end}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    json.dump(verbs[verb](payload), sys.stdout)
    sys.stdout.write("\n")
    sys.stdout.flush()
    # Threads may still wait for a name server that never answers.
    os._exit(0)


# ---------------------------------------------------------------- serve


def serve(wish: Json) -> Json:
    """Listen on the master port and on some of the ports that the kernel hands out.

    wish: {token, node, address, interface, port, samples}.
    """
    low, high = ephemeral_range()
    master, holder = None, ""
    try:
        master = listener(wish["port"])
    except OSError as exc:
        holder = exc.strerror or str(exc)
        if exc.errno == errno.EADDRINUSE and other_probe():
            holder = PROCESS_NAME
    ephemeral = list(sampled(low, high, wish["samples"]))
    every = [*([master] if master else []), *ephemeral]
    pid = leave_behind(wish, every) if every else 0
    interfaces = interface_facts()
    return {
        "pid": pid,
        "started": start_time(pid),
        "port": wish["port"] if master else None,
        "holder": holder,
        "ephemeral": [entry.getsockname()[1] for entry in ephemeral],
        "range": [low, high],
        "hostname": socket.gethostname(),
        "interfaces": interfaces,
        "physical": [name for name in interfaces or {} if os.path.exists("/sys/class/net/%s/device" % name)],
    }


def ephemeral_range() -> tuple[int, int]:
    try:
        low, high = read_text("/proc/sys/net/ipv4/ip_local_port_range").split()
        return int(low), int(high)
    except ValueError:
        return 32768, 60999


def listener(port: int) -> socket.socket:
    """Like the rendezvous store: on every address, of both kinds where there are both."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)


def sampled(low: int, high: int, count: int) -> Iterator[socket.socket]:
    """Listeners at the bottom, at the top and in the middle of the range, or beside where something listens already."""
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
                continue  # taken: its neighbour says the same about a firewall


def other_probe() -> bool:
    return any(
        read_text("/proc/%s/comm" % name).strip() == PROCESS_NAME for name in os.listdir("/proc") if name.isdigit()
    )


def leave_behind(wish: Json, listeners: list[socket.socket]) -> int:
    """A process of its own session that outlives this call, and holds none of its files. Returns its PID."""
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
                with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as comm:
                    comm.write(PROCESS_NAME)
                Server(wish["token"], wish["node"], listeners).run()
            else:
                os.write(write_end, b"%d" % child)
        finally:
            os._exit(0)
    os.close(write_end)
    pid = int(os.read(read_end, 32) or b"0")
    os.wait()
    return pid


def start_time(pid: int) -> str:
    """When this process began, in the kernel's own count: a PID may be another process's later on."""
    return read_text("/proc/%d/stat" % pid).rpartition(")")[2].split()[19] if pid else ""


def interface_facts() -> Json | None:
    """{interface: {addresses, mtu, state, speed}}, or None where nothing tells them."""
    try:
        done = subprocess.run(["ip", "-json", "address", "show"], capture_output=True, text=True, timeout=5, check=True)
        links = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return {
        link["ifname"]: {
            "addresses": [entry["local"] for entry in link.get("addr_info", []) if "local" in entry],
            "mtu": link.get("mtu"),
            "state": link.get("operstate", ""),
            "speed": speed_of(link["ifname"]),
        }
        for link in links
        if "ifname" in link
    }


def speed_of(interface: str) -> int | None:
    """Mbit/s that the interface says it has."""
    text = read_text("/sys/class/net/%s/speed" % interface).strip()
    return int(text) if text.isdigit() and int(text) > 0 else None


class Server:
    """Answers the calls of all nodes in one thread; what lasts longer is left to a child process."""

    def __init__(self, token: str, node: str, listeners: list[socket.socket]) -> None:
        self.token = token
        self.node = node
        self.selector = selectors.DefaultSelector()
        self.slot: socket.socket | None = None  # whoever holds this connection may send in bulk, nobody else
        self.waiting: collections.deque[socket.socket] = collections.deque()
        self.ends = time.monotonic() + LIFETIME
        self.heard = time.monotonic()
        for entry in listeners:
            entry.setblocking(False)
            self.selector.register(entry, selectors.EVENT_READ, None)

    def run(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the kernel
        while time.monotonic() < min(self.ends, self.heard + IDLE):
            for key, _ in self.selector.select(1.0):
                if key.data is None:
                    self.accept(key.fileobj)
                else:
                    self.read(key.data)

    def accept(self, entry: Any) -> None:
        try:
            peer, _ = entry.accept()
        except OSError:
            return  # gone again
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.settimeout(STEP_TIMEOUT)
        self.selector.register(peer, selectors.EVENT_READ, Caller(peer))

    def read(self, caller: Caller) -> None:
        try:
            data = caller.peer.recv(CHUNK)
            now = time.time()
            caller.feed(data)
            going_on = bool(data) and all(self.answer(caller, line, now) for line in caller.lines())
        except (OSError, ValueError):
            going_on = False
        if not going_on:
            self.drop(caller.peer)

    def answer(self, caller: Caller, line: str, now: float) -> bool:
        """Whether the connection goes on here."""
        verb, *arguments = line.split()
        if not caller.known:
            # Nothing is said to strangers: not even that a probe is under way.
            if verb != self.token:
                return False
            caller.known = True
            verb, *arguments = arguments
        self.heard = time.monotonic()
        if verb == "hello":
            caller.peer.sendall(b"%s %s\n" % (PROCESS_NAME.encode(), self.node.encode()))
        elif verb == "time":
            caller.peer.sendall(b"%.6f %.6f\n" % (now, time.time()))
        elif verb == "take":
            caller.expected = int(arguments[0])
            caller.feed(b"")
        elif verb == "slot":
            self.waiting.append(caller.peer)
            self.grant()
        elif verb in ("sink", "source"):
            if os.fork() == 0:
                in_bulk(caller.peer, verb, float(arguments[0]))
            return False
        return True

    def grant(self) -> None:
        while self.slot is None and self.waiting:
            self.slot = self.waiting.popleft()
            try:
                self.slot.sendall(b"go\n")
            except OSError:
                self.slot = None

    def drop(self, peer: socket.socket) -> None:
        self.selector.unregister(peer)
        peer.close()
        if peer in self.waiting:
            self.waiting.remove(peer)
        if peer is self.slot:
            self.slot = None
            self.grant()


class Caller:
    """One connection to the server: lines, and in between as many bytes as `take` has named."""

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
            raise ValueError("not one of ours")


def in_bulk(peer: socket.socket, verb: str, seconds: float) -> None:
    """In a child process of the server: take, or send, as much as goes in this time."""
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
        return  # the other end has what it wanted to know
    finally:
        os._exit(0)


# ---------------------------------------------------------------- probe


def probe(wish: Json) -> Json:
    """Call every peer. wish: {token, node, own_names, packets, peers: [{node, address, names, ports}]}."""
    results: dict[str, Json] = {}
    names: Json = {}
    turns = threading.Semaphore(AT_ONCE)
    wanted = sorted({socket.gethostname(), *(name for peer in wish["peers"] for name in peer["names"])})
    namer = threading.Thread(target=resolve_all, args=(wanted, names), daemon=True)
    namer.start()
    began = time.monotonic()

    def look(peer: Json) -> None:
        with turns:
            results[peer["node"]] = Link(wish["token"], peer, wish["packets"]).look()

    threads = [threading.Thread(target=look, args=(peer,)) for peer in wish["peers"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    namer.join(max(0.0, began + NAMES_TIMEOUT - time.monotonic()))
    return {"links": results, "names": dict(names), "asked": wanted}


def resolve_all(names: list[str], found: Json) -> None:
    """{name: {addresses, seconds}}; a name that the name servers let wait for stays out, with all behind it."""
    for name in names:
        began = time.monotonic()
        try:
            entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            addresses = sorted({str(entry[4][0]) for entry in entries})
        except OSError:
            addresses = []
        found[name] = {"addresses": addresses, "seconds": round(time.monotonic() - began, 3)}


class Link:
    """The way from this node to one other."""

    def __init__(self, token: str, peer: Json, packets: int) -> None:
        self.token = token
        self.address = peer["address"]
        self.node = peer["node"]
        self.ports: list[int] = peer["ports"]
        self.packets = packets
        self.family = socket.AF_INET6 if ":" in self.address else socket.AF_INET

    def look(self) -> Json:
        result: Json = {"ports": {}, **self.route()}
        streams: list[Stream] = []
        good: Stream | None = None
        try:
            for port, entry, connected in self.call(self.ports):
                result["ports"][str(port)] = entry
                if connected is not None:
                    streams.append(Stream(connected, self.token))
                    entry["greeting"] = streams[-1].greeting()
                    if entry["greeting"] == self.node and good is None:
                        good = streams[-1]
            result["neighbour"] = neighbour(self.address)
            if good is not None:
                result.update(self.measure(good))
        except OSError as exc:
            result["error"] = exc.strerror or str(exc)
        finally:
            for stream in streams:
                stream.sock.close()
        return result

    def route(self) -> Json:
        """The source address that the kernel takes, without a packet; or why there is no way."""
        with socket.socket(self.family, socket.SOCK_DGRAM) as sock:
            try:
                sock.connect((self.address, 9))
                return {"source": sock.getsockname()[0], "route_error": ""}
            except OSError as exc:
                return {"source": None, "route_error": errno.errorcode.get(exc.errno or 0, str(exc))}

    def call(self, ports: list[int]) -> Iterator[tuple[int, Json, socket.socket | None]]:
        """Connect to all of these ports at once, each with several attempts: yields what came of it."""
        began = time.monotonic()
        selector = selectors.DefaultSelector()
        attempts: dict[int, list[socket.socket]] = {port: [] for port in ports}
        starts = [(began + delay, port) for delay in ATTEMPTS for port in ports]
        found: dict[int, tuple[Json, socket.socket | None]] = {}
        while len(found) < len(ports) and time.monotonic() < began + CONNECT_TIMEOUT:
            while starts and starts[0][0] <= time.monotonic():
                port = starts.pop(0)[1]
                if port in found:
                    continue
                code = self.begin(port, attempts, selector)
                if code:
                    found[port] = (ended(code, began), None)
            due = starts[0][0] if starts else began + CONNECT_TIMEOUT
            for key, _ in selector.select(max(0.0, min(due, began + CONNECT_TIMEOUT) - time.monotonic())):
                sock, port = key.data
                selector.unregister(sock)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if port not in found:
                    found[port] = (ended(code, began), None if code else sock)
        selector.close()
        for port in ports:
            entry, connected = found.get(port, (ended(errno.ETIMEDOUT, began), None))
            for sock in attempts[port]:
                if sock is not connected:
                    sock.close()
            yield port, entry, connected

    def begin(self, port: int, attempts: dict[int, list[socket.socket]], selector: selectors.BaseSelector) -> int:
        sock = socket.socket(self.family, socket.SOCK_STREAM)
        sock.setblocking(False)
        attempts[port].append(sock)
        code = sock.connect_ex((self.address, port))
        if code not in (0, errno.EINPROGRESS):
            return code
        selector.register(sock, selectors.EVENT_WRITE, (sock, port))
        return 0

    def measure(self, stream: Stream) -> Json:
        """Round trip and clock first; then packets of full size; then, where they pass, how many are lost."""
        result: Json = {"clock": stream.exchanges()}
        full = stream.tcp_info()
        result["mss"], result["pmtu"] = full["snd_mss"], full["pmtu"]
        result["full_size"] = stream.sends(full["snd_mss"]) and stream.sends(BULK)
        port = stream.sock.getpeername()[1]
        if not result["full_size"]:
            # On this connection the lost packet stands before all others: a new one for each size.
            result["sizes"] = self.ladder(port, full["snd_mss"], full["pmtu"])
            _, entry, connected = next(self.call([port]))
            if connected is None:
                return {**result, "again": entry}
            with connected:
                stream = Stream(connected, self.token)
                if stream.greeting() == self.node:
                    result.update(stream.losses(self.packets))
            return result
        result.update(stream.losses(self.packets))
        return result

    def ladder(self, port: int, mss: int, pmtu: int) -> list[Json]:
        """Packets of many sizes, each on a connection of its own: [{mtu, passes}], until the edge is found."""
        overhead = pmtu - mss
        passes, fails = SMALLEST_MTU - 1, pmtu + 1
        tried: list[Json] = []
        for _ in range(LADDER_ROUNDS):
            step = max(1, (fails - passes) // (LADDER + 1))
            sizes = list(range(passes + step, fails, step))[: LADDER + 2]
            if not sizes:
                break
            outcomes = self.rungs(port, [size - overhead for size in sizes])
            tried += [{"mtu": size, "passes": outcome} for size, outcome in zip(sizes, outcomes, strict=True)]
            good = [size for size, outcome in zip(sizes, outcomes, strict=True) if outcome]
            passes = max([passes, *good])
            fails = min(
                [fails, *(size for size, outcome in zip(sizes, outcomes, strict=True) if not outcome and size > passes)]
            )
        return tried

    def rungs(self, port: int, sizes: list[int]) -> list[bool]:
        """Whether one packet of each size comes through."""
        outcomes = [False] * len(sizes)

        def climb(number: int, size: int) -> None:
            with contextlib.suppress(OSError):
                _, _, connected = next(self.call([port]))
                if connected is not None:
                    with connected:
                        stream = Stream(connected, self.token)
                        outcomes[number] = stream.greeting() == self.node and stream.sends(size)

        threads = [threading.Thread(target=climb, args=entry) for entry in enumerate(sizes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return outcomes


def ended(code: int, began: float) -> Json:
    """How a connection attempt ended: the name of the error ("" for none), and after how many seconds."""
    return {
        "error": errno.errorcode.get(code, str(code)) if code else "",
        "seconds": round(time.monotonic() - began, 3),
    }


def neighbour(address: str) -> str:
    """What the kernel knows of the link to a neighbour: "failed" when nobody there has the address."""
    for line in read_text("/proc/net/arp").splitlines()[1:]:
        fields = line.split()
        if fields and fields[0] == address:
            return "known" if int(fields[2], 16) & 2 else "failed"
    return ""


class Stream:
    """The caller's end of a connection to the server on another node."""

    def __init__(self, sock: socket.socket, token: str) -> None:
        self.sock = sock
        self.token = token
        self.rest = b""
        sock.setblocking(True)
        sock.settimeout(GREETING_TIMEOUT)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def line(self) -> str:
        while b"\n" not in self.rest:
            data = self.sock.recv(4096)
            if not data or len(self.rest) > 65536:
                raise OSError("it was closed" if not data else "it talks without end")
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode(errors="replace")

    def greeting(self) -> str | None:
        """The name of the node that answers; None when something else does."""
        try:
            self.sock.sendall(b"%s hello\n" % self.token.encode())
            words = self.line().split()
        except OSError:
            return None
        return words[1] if len(words) == 2 and words[0] == PROCESS_NAME else None

    def exchanges(self) -> list[list[float]]:
        """Times of some questions and answers: [sent, heard there, answered there, received]."""
        found = []
        self.sock.settimeout(STEP_TIMEOUT)
        try:
            for _ in range(EXCHANGES):
                sent = time.time()
                self.sock.sendall(b"time\n")
                heard, answered = (float(word) for word in self.line().split())
                found.append([sent, heard, answered, time.time()])
        except (OSError, ValueError):
            return found
        return found

    def sends(self, size: int) -> bool:
        """Whether this many bytes, in packets as large as the connection allows, come through."""
        self.sock.settimeout(STALL)
        try:
            self.sock.sendall(b"take %d\n" % size)
            self.sock.sendall(bytes(size))
            return self.line() == "got"
        except OSError:
            return False

    def losses(self, packets: int) -> Json:
        """Send small packets at a steady pace; the kernel counts which of them it had to send again."""
        before = self.tcp_info()
        self.sock.settimeout(STEP_TIMEOUT)
        small = b" " * 63 + b"\n"
        sent = 0
        try:
            while sent < packets:
                for _ in range(BURST):
                    self.sock.send(small)
                sent += BURST
                time.sleep(BURST_PAUSE)
            until = time.monotonic() + ACK_WAIT
            while self.tcp_info()["unacked"] and time.monotonic() < until:
                time.sleep(0.02)
        except OSError:
            return {"sent": None, "lost": None, "rtt_us": None}
        after = self.tcp_info()
        again = after["total_retrans"] - before["total_retrans"] - (after["dsack_dups"] - before["dsack_dups"])
        first = after["data_segs_out"] - before["data_segs_out"] - (after["total_retrans"] - before["total_retrans"])
        return {
            "sent": max(first, 1),
            "lost": max(0, again),
            "rtt_us": after["rtt"] if after["min_rtt"] in UNKNOWN else after["min_rtt"],
        }

    def tcp_info(self) -> dict[str, int]:
        return tcp_info(self.sock)


def tcp_info(sock: socket.socket) -> dict[str, int]:
    """What the kernel knows of a connection (struct tcp_info of linux/tcp.h; an older kernel fills less of it)."""
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256).ljust(256, b"\0")

    def number(offset: int, kind: str = "I") -> int:
        return int(struct.unpack_from("=" + kind, raw, offset)[0])

    return {
        "snd_mss": number(16),
        "unacked": number(24),
        "pmtu": number(60),
        "rtt": number(68),
        "total_retrans": number(100),
        "bytes_acked": number(120, "Q"),
        "min_rtt": number(148),
        "data_segs_out": number(156),
        "dsack_dups": number(216),
    }


# ---------------------------------------------------------------- pair


def pair(wish: Json) -> Json:
    """Send to one peer after the other, and let each send back. wish: {token, node, port, seconds, peers}.

    Both nodes of a pair give their slot first, so that no node takes part in two measurements at a time. The slot of
    the node that comes first by name is taken first, so that no two wait for each other.
    """
    found: dict[str, Json] = {}
    for peer in wish["peers"]:
        try:
            found[peer["node"]] = one_pair(wish, peer)
        except OSError as exc:
            found[peer["node"]] = {"error": exc.strerror or str(exc)}
    return {"pairs": found}


def one_pair(wish: Json, peer: Json) -> Json:
    own = ("::1" if ":" in peer["address"] and not socket.has_dualstack_ipv6() else "127.0.0.1", wish["port"])
    slots = sorted([(wish["node"], own), (peer["node"], (peer["address"], peer["port"]))])
    with contextlib.ExitStack() as held:
        for _, address in slots:
            stream = opened(address, wish["token"], held)
            stream.sock.settimeout(SLOT_TIMEOUT)
            stream.sock.sendall(b"%s slot\n" % wish["token"].encode())
            if stream.line() != "go":
                raise OSError("no turn was given")
        address = (peer["address"], peer["port"])
        with contextlib.ExitStack() as one:
            there = upload(opened(address, wish["token"], one), wish["token"], wish["seconds"])
        with contextlib.ExitStack() as one:
            back = download(opened(address, wish["token"], one), wish["token"], wish["seconds"])
        return {"there": there, "back": back}


def opened(address: tuple[str, int], token: str, held: contextlib.ExitStack) -> Stream:
    sock = held.enter_context(socket.create_connection(address, timeout=CONNECT_TIMEOUT))
    return Stream(sock, token)


def upload(stream: Stream, token: str, seconds: float) -> float | None:
    """Bits per second that the other end has acknowledged."""
    stream.sock.sendall(b"%s sink %.3f\n" % (token.encode(), seconds))
    data = memoryview(bytes(CHUNK))
    stream.sock.settimeout(seconds)
    began = time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() < began + seconds:
            stream.sock.send(data)
    took = time.monotonic() - began
    acked = stream.tcp_info()["bytes_acked"]
    # What still waits to be sent is of no use to anybody: a reset instead of an end.
    stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return acked * 8 / took


def download(stream: Stream, token: str, seconds: float) -> float | None:
    """Bits per second that came from the other end."""
    stream.sock.sendall(b"%s source %.3f\n" % (token.encode(), seconds))
    data = memoryview(bytearray(CHUNK))
    stream.sock.settimeout(seconds + STALL)
    received = stream.sock.recv_into(data)  # it takes a moment until the other end begins
    began = time.monotonic()
    stream.sock.settimeout(seconds)
    with contextlib.suppress(OSError):
        while received and time.monotonic() < began + seconds:
            got = stream.sock.recv_into(data)
            if not got:
                break
            received += got
    took = time.monotonic() - began
    stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return received * 8 / took if received else None


# ---------------------------------------------------------------- end


def end(wish: Json) -> Json:
    """End the process that `serve` left behind, and only that one. wish: {pid, started}."""
    if wish["pid"] and wish["started"] and start_time_or_none(wish["pid"]) == wish["started"]:
        os.kill(wish["pid"], signal.SIGTERM)
    return {"ended": True}


def start_time_or_none(pid: int) -> str:
    try:
        return start_time(pid)
    except IndexError:
        return ""  # it has ended by itself


def read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


if __name__ == "__main__":
    main(sys.argv[1], json.load(sys.stdin))
