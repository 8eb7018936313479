"""The calling side of the network probe on one node: connects to the listeners of all other nodes (probe_listener.py).

Run by NodeProgram (plugin_utils), with a verb as argument and a JSON payload on standard input. No verb needs root.

    probe   probe all other nodes in parallel: ports, round trips, clocks, packet sizes, losses and name resolution
    links   the same without name resolution, right before a launch
    pair    measure the throughput to each node, one after the other
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import selectors
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

from ..tools import resolvers, routes
from ..tools.kernel_files import whole
from ..tools.program import answer

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

PROCESS_NAME = "muster-probe"  # name that the listener sends
AT_ONCE = 32  # links probed in parallel; with more, this node's CPU would be the limit
# A lost SYN is sent again after 1 s. Overlapping attempts succeed sooner than a single one if packets are lost.
ATTEMPTS = (0.0, 0.4, 0.8)
CONNECT_TIMEOUT = 2.2
GREETING_TIMEOUT = 3.0
STEP_TIMEOUT = 3.0
# TCP retransmits after 200 ms and 400 ms. Data that is missing after both will not arrive.
STALL = 1.3
BULK = 192 * 1024  # bytes; many full-size packets in a row
EXCHANGES = 6
BURST = 10  # packets; TCP's initial congestion window
BURST_PAUSE = 0.015
ACK_WAIT = 0.8
NAMES_TIMEOUT = 2.5
# Further attempts on a port that does not respond, so many that the counters of both nodes show where the packets stay.
KNOCKS = 300
MOST_KNOCKED = 8  # links
KNOCKED = 0.1  # seconds until the counters have settled
LADDER = 16  # packet sizes tried in parallel
LADDER_ROUNDS = 4  # enough to find the exact size below 9000
SMALLEST_MTU = 576  # RFC 791: every host accepts packets of this size
CHUNK = 256 * 1024
SLOT_TIMEOUT = 20.0
UNKNOWN = (0, 0xFFFFFFFF)  # values of the kernel before a measurement


def main() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    answer({"probe": probe, "links": only_links, "pair": pair})
    # Threads may still wait for a name server that does not respond.
    os._exit(0)


# ---------------------------------------------------------------- probe


def probe(request: Json) -> Json:
    """Probe every peer. request: {token, address, packets, peers: [{node, address, names, ports}]}."""
    names: Json = {}
    wanted = sorted({socket.gethostname(), *(name for peer in request["peers"] for name in peer["names"])})
    namer = threading.Thread(target=resolve_all, args=(wanted, names), daemon=True)
    namer.start()
    servers: Json = {}
    asker = threading.Thread(target=lambda: servers.update(resolvers.ask_all(request["address"])), daemon=True)
    asker.start()
    began = time.monotonic()
    found = only_links(request)
    namer.join(max(0.0, began + NAMES_TIMEOUT - time.monotonic()))
    asker.join(resolvers.SECONDS + NAMES_TIMEOUT)
    return {**found, "names": dict(names), "asked": wanted, "resolvers": dict(servers)}


def only_links(request: Json) -> Json:
    """Probe every peer. request: {token, packets, peers: [{node, address, ports}]}. packets: number of packets for
    measuring losses; 0 skips this measurement."""
    results: dict[str, Json] = {}
    turns = threading.Semaphore(AT_ONCE)
    links = [CalledLink(request["token"], peer, request["packets"]) for peer in request["peers"]]

    def look(link: CalledLink) -> None:
        with turns:
            results[link.node] = link.look()

    threads = [threading.Thread(target=look, args=(link,)) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for link in [link for link in links if link.silent][:MOST_KNOCKED]:
        results[link.node].update(link.knock())
    return {"links": results}


def resolve_all(names: list[str], found: Json) -> None:
    """Resolve names and add {name: {addresses, seconds}} to found. After a name server timeout, the remaining names are
    skipped."""
    for name in names:
        began = time.monotonic()
        try:
            entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            addresses = sorted({str(entry[4][0]) for entry in entries})
        except OSError:
            addresses = []
        found[name] = {"addresses": addresses, "seconds": round(time.monotonic() - began, 3)}


class CalledLink:
    """The link from this node to another node."""

    def __init__(self, token: str, peer: Json, packets: int) -> None:
        self.token = token
        self.address = peer["address"]
        self.node = peer["node"]
        self.ports: list[int] = peer["ports"]
        self.packets = packets
        self.silent: list[int] = []  # ports that did not respond
        self.way = {"way": "", "gateway": ""}
        self.family = socket.AF_INET6 if ":" in self.address else socket.AF_INET

    def look(self) -> Json:
        self.way = routes.route(self.address)
        result: Json = {"ports": {}, **self.route(), **self.way}
        streams: list[Stream] = []
        good: Stream | None = None
        try:
            for port, entry, connected in self.call(self.ports):
                result["ports"][str(port)] = entry
                self.silent += [port] if entry["error"] == "ETIMEDOUT" else []
                if connected is not None:
                    streams.append(Stream(connected, self.token))
                    entry["greeting"] = streams[-1].greeting()
                    entry["spoke"] = streams[-1].spoke
                    if entry["greeting"] == self.node and good is None:
                        good = streams[-1]
            result.update(routes.neighbour(self.way["gateway"] or self.address))
            if good is not None:
                result.update(self.measure(good))
        except OSError as exc:
            result["error"] = exc.strerror or str(exc)
        finally:
            for stream in streams:
                stream.sock.close()
        return result

    def route(self) -> Json:
        """Return the source address that the kernel selects, or the error. No packet is sent."""
        with socket.socket(self.family, socket.SOCK_DGRAM) as sock:
            try:
                sock.connect((self.address, 9))
                return {"source": sock.getsockname()[0], "route_error": ""}
            except OSError as exc:
                return {"source": None, "route_error": errno.errorcode.get(exc.errno or 0, str(exc))}

    def knock(self) -> Json:
        """Begin many connections to a port that does not respond. Return {knocks, left}: their number, and how many
        packets the interface sent meanwhile. The interface counts no packets that a filter of this node dropped."""
        counter = "/sys/class/net/%s/statistics/tx_packets" % self.way["way"]
        before = whole(counter)
        with contextlib.ExitStack() as held:
            for _ in range(KNOCKS):
                sock = held.enter_context(socket.socket(self.family, socket.SOCK_STREAM))
                sock.setblocking(False)
                sock.connect_ex((self.address, self.silent[0]))
            time.sleep(KNOCKED)
            after = whole(counter)
        return {"knocks": KNOCKS, "left": KNOCKS if before is None or after is None else after - before}

    def call(self, ports: list[int]) -> Iterator[tuple[int, Json, socket.socket | None]]:
        """Connect to these ports in parallel, each with several attempts. Yield the results."""
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
        """Measure round-trip time and clock difference, then test full-size packets. If these packets pass, measure
        packet losses."""
        result: Json = {"clock": stream.exchanges()}
        full = stream.tcp_info()
        result["mss"], result["pmtu"] = full["snd_mss"], full["pmtu"]
        port = stream.sock.getpeername()[1]
        # A single packet, because a slow link drops some of many packets of any size.
        result["full_size"] = stream.sends(full["snd_mss"]) or self.rungs(port, [full["snd_mss"]])[0]
        if result["full_size"]:
            result["bulk"] = [stream.bulk()]
            if result["bulk"][0]["whole"]:
                if self.packets:
                    result.update(stream.losses(self.packets))
                return result
        else:
            result["sizes"] = self.ladder(port, full["snd_mss"], full["pmtu"])
        # Lost or waiting data on this connection would block further tests: use a new one.
        _, entry, connected = next(self.call([port]))
        if connected is None:
            return {**result, "again": entry}
        with connected:
            stream = Stream(connected, self.token)
            if stream.greeting() == self.node:
                if self.packets:
                    result.update(stream.losses(self.packets))
                if result["full_size"]:
                    result["bulk"].append(stream.bulk())
        return result

    def ladder(self, port: int, mss: int, pmtu: int) -> list[Json]:
        """Find the largest packet size that passes by trying many sizes, each on a separate connection. Return [{mtu,
        passes}]."""
        overhead = pmtu - mss
        passes, fails = SMALLEST_MTU - 1, pmtu + 1
        tried: list[Json] = []
        while fails - passes > 1 and len(tried) < LADDER_ROUNDS * LADDER:
            step = -(-(fails - passes) // (LADDER + 1))
            sizes = list(range(passes + step, fails, step))
            outcomes = list(zip(sizes, self.rungs(port, [size - overhead for size in sizes]), strict=True))
            tried += [{"mtu": size, "passes": outcome} for size, outcome in outcomes]
            passes = max([passes, *(size for size, outcome in outcomes if outcome)])
            fails = min([fails, *(size for size, outcome in outcomes if not outcome and size > passes)])
        return tried

    def rungs(self, port: int, sizes: list[int]) -> list[bool]:
        """Return for each size whether a packet of that size passes."""
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
    """Return the result of a connection attempt: the name of the error ("" on success), and the duration in seconds."""
    return {
        "error": errno.errorcode.get(code, str(code)) if code else "",
        "seconds": round(time.monotonic() - began, 3),
    }


class Stream:
    """The caller's end of a connection to the server on another node."""

    def __init__(self, sock: socket.socket, token: str) -> None:
        self.sock = sock
        self.token = token
        self.rest = b""
        self.spoke = False  # whether the listener sent data; a connection alone may only be accepted by the kernel
        sock.setblocking(True)
        sock.settimeout(GREETING_TIMEOUT)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def line(self) -> str:
        while b"\n" not in self.rest:
            data = self.sock.recv(4096)
            self.spoke = self.spoke or bool(data)
            if not data or len(self.rest) > 65536:
                raise OSError("connection closed" if not data else "response too long")
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode(errors="replace")

    def greeting(self) -> str | None:
        """Return the name of the responding node, or None if another program responds."""
        try:
            self.sock.sendall(b"%s hello\n" % self.token.encode())
            words = self.line().split()
        except OSError:
            return None
        return words[1] if len(words) == 2 and words[0] == PROCESS_NAME else None

    def exchanges(self) -> list[list[float]]:
        """Return the timestamps of several requests: [request sent, request received by the peer, response sent by the
        peer, response received]."""
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
        """Return whether this number of bytes arrives, sent in packets as large as the connection allows."""
        self.sock.settimeout(STALL)
        try:
            self.sock.sendall(b"take %d\n" % size)
            self.sock.sendall(bytes(size))
            if self.line() == "got":
                return True
        except OSError:
            pass
        self.drop_rest()
        return False

    def bulk(self) -> Json:
        """Send many full-size packets. Return {whole: whether all packets arrived in time, acked: bytes, seconds}."""
        before, began = self.tcp_info()["bytes_acked"], time.monotonic()
        whole = self.sends(BULK)
        acked = self.tcp_info()["bytes_acked"] - before
        return {"whole": whole, "acked": acked, "seconds": round(time.monotonic() - began, 6)}

    def drop_rest(self) -> None:
        """Make a later close reset the connection, so that unsent data is discarded instead of filling a slow link."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def losses(self, packets: int) -> Json:
        """Send small packets at a steady rate, and return the retransmissions that the kernel counted."""
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
    """Return the kernel's data about a connection (struct tcp_info of linux/tcp.h; older kernels fill fewer fields)."""
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


def pair(request: Json) -> Json:
    """Measure the throughput to and from each peer, one after the other. request: {token, node, port, seconds, peers}.

    Both nodes of a pair first grant a slot, so that no node takes part in two measurements at a time. The slot of the
    node whose name sorts first is taken first, which prevents deadlocks.
    """
    found: dict[str, Json] = {}
    for peer in request["peers"]:
        try:
            found[peer["node"]] = one_pair(request, peer)
        except OSError as exc:
            found[peer["node"]] = {"error": exc.strerror or str(exc)}
    return {"pairs": found}


def one_pair(request: Json, peer: Json) -> Json:
    own = ("::1" if ":" in peer["address"] and not socket.has_dualstack_ipv6() else "127.0.0.1", request["port"])
    slots = sorted([(request["node"], own), (peer["node"], (peer["address"], peer["port"]))])
    with contextlib.ExitStack() as held:
        for _, address in slots:
            stream = opened(address, request["token"], held)
            stream.sock.settimeout(SLOT_TIMEOUT)
            stream.sock.sendall(b"%s slot\n" % request["token"].encode())
            if stream.line() != "go":
                raise OSError("no slot was granted")
        address = (peer["address"], peer["port"])
        with contextlib.ExitStack() as one:
            there = upload(opened(address, request["token"], one), request["token"], request["seconds"])
        with contextlib.ExitStack() as one:
            back = download(opened(address, request["token"], one), request["token"], request["seconds"])
        return {"there": there, "back": back}


def opened(address: tuple[str, int], token: str, held: contextlib.ExitStack) -> Stream:
    sock = held.enter_context(socket.create_connection(address, timeout=CONNECT_TIMEOUT))
    return Stream(sock, token)


def upload(stream: Stream, token: str, seconds: float) -> float:
    """Send data, and return the acknowledged bits per second."""
    stream.sock.sendall(b"%s sink %.3f\n" % (token.encode(), seconds))
    data = memoryview(bytes(CHUNK))
    stream.sock.settimeout(seconds)
    began = time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() < began + seconds:
            stream.sock.send(data)
    took = time.monotonic() - began
    acked = stream.tcp_info()["bytes_acked"]
    stream.drop_rest()
    return acked * 8 / took


def download(stream: Stream, token: str, seconds: float) -> float:
    """Receive data, and return the bits per second; 0 if no data arrived."""
    stream.sock.sendall(b"%s source %.3f\n" % (token.encode(), seconds))
    data = memoryview(bytearray(CHUNK))
    stream.sock.settimeout(seconds + STALL)
    began = time.monotonic()
    received = 0
    with contextlib.suppress(OSError):
        received = stream.sock.recv_into(data)
        began = time.monotonic()  # the other end starts after a moment
        stream.sock.settimeout(seconds)
        while received and time.monotonic() < began + seconds:
            got = stream.sock.recv_into(data)
            if not got:
                break
            received += got
    took = time.monotonic() - began
    stream.drop_rest()
    return received * 8 / took


if __name__ == "__main__":
    main()
