"""The probe programs of nodes, as real processes on one machine."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.programs import probe_caller as caller
from muster_node.programs import probe_listener as listener
from muster_node.tools import process
from muster_node.tools.pack import sent
from muster_node.tools.program import BOOTSTRAP
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = {"serve": listener, "end": listener, "probe": caller, "links": caller, "pair": caller}
KNOWN = "0123456789abcdef"


def ask(verb: str, request: dict[str, Any]) -> dict[str, Any]:
    """Run the program in a separate process, as a node does."""
    argv = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, verb]
    given = sent(PROGRAMS[verb].__name__, request)
    done = subprocess.run(argv, input=given, check=True, capture_output=True, timeout=60)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def free_port() -> int:
    with socket.create_server(("", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def running(pid: int) -> bool:
    return process.runs(pid)


@pytest.fixture(scope="module")
def served() -> Iterator[dict[str, Any]]:
    port = free_port()
    answer = ask("serve", {"token": KNOWN, "node": "node2", "port": port, "samples": 3, "idle": 20})
    yield answer
    ask("end", {"pid": answer["pid"], "started": answer["started"]})
    until(lambda: not running(answer["pid"]))


def peer(served: dict[str, Any], **changes: Any) -> dict[str, Any]:
    ports = [served["port"], *served["ephemeral"]]
    return {"node": "node2", "address": "127.0.0.1", "ports": ports, "names": ["localhost"], **changes}


def probe(*peers: dict[str, Any]) -> dict[str, Any]:
    return ask("probe", {"token": KNOWN, "address": "10.0.0.1", "packets": 40, "peers": list(peers)})


def test_listener_uses_the_ports_of_a_launch(served: dict[str, Any]) -> None:
    low, high = served["range"]
    assert served["holder"] == ""
    first, last, _ = served["ephemeral"]
    assert low <= first < low + 50
    assert high - 50 < last <= high
    assert "127.0.0.1" in served["interfaces"]["lo"]["addresses"]
    assert running(served["pid"])
    assert Path(f"/proc/{served['pid']}/comm").read_text().strip() == listener.PROCESS_NAME


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_probe_identifies_and_measures_its_peer(served: dict[str, Any], address: str) -> None:
    if ":" in address and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    answer = probe(peer(served, address=address))
    seen = answer["links"]["node2"]
    assert [entry["greeting"] for entry in seen["ports"].values()] == ["node2"] * 4
    assert seen["source"] == address
    assert seen["way"] == "lo"
    assert seen["full_size"]
    assert seen["lost"] == 0
    assert seen["sent"] >= 40
    assert 0 < seen["rtt_us"] < 100_000
    assert len(seen["clock"]) == caller.EXCHANGES
    assert "127.0.0.1" in answer["names"]["localhost"]["addresses"]


def test_link_probe_of_a_launch_releases_its_ports() -> None:
    port = free_port()
    request = {"token": KNOWN, "node": "node2", "samples": 2, "idle": 20, "first_call": 15}
    head = ask("serve", {**request, "port": port})
    other = ask("serve", {**request, "port": None})
    assert (other["port"], other["holder"], len(other["ephemeral"])) == (None, "", 2)
    peers = [peer(head, names=[]), peer(other, node="node3", ports=other["ephemeral"], names=[])]
    answer = ask("links", {"token": KNOWN, "packets": 0, "peers": peers})
    assert list(answer) == ["links"]
    assert [entry["greeting"] for entry in answer["links"]["node2"]["ports"].values()] == ["node2"] * 3
    assert answer["links"]["node2"]["full_size"]
    assert "lost" not in answer["links"]["node2"]
    for one in (head, other):
        assert ask("end", {"pid": one["pid"], "started": one["started"]}) == {"ended": True}
    socket.create_server(("", port)).close()


def test_listener_without_connections_ends_at_its_time_limit() -> None:
    one = ask("serve", {"token": KNOWN, "node": "x", "port": None, "samples": 1, "idle": 20, "first_call": 0.5})
    until(lambda: not running(one["pid"]))


def test_closed_port_and_silent_server_are_distinguished(served: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Thread(target=silent.accept, daemon=True).start()
        ports = [free_port(), silent.getsockname()[1]]
        seen = probe(peer(served, ports=ports))["links"]["node2"]["ports"]
    closed, foreign = (seen[str(port)] for port in ports)
    assert closed["error"] == "ECONNREFUSED"
    assert foreign["error"] == ""
    assert (foreign["greeting"], foreign["spoke"]) == (None, False)


def test_ssh_server_on_the_port_is_not_mistaken_for_a_probe(served: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ssh:

        def speak() -> None:
            with ssh.accept()[0] as call:
                call.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        threading.Thread(target=speak, daemon=True).start()
        port = ssh.getsockname()[1]
        seen = probe(peer(served, ports=[port]))["links"]["node2"]["ports"][str(port)]
    assert (seen["error"], seen["greeting"], seen["spoke"]) == ("", None, True)


def test_caller_without_the_token_gets_no_answer(served: dict[str, Any]) -> None:
    for said in (b"0123 hello\n", b"GET / HTTP/1.1\r\n\r\n", os.urandom(6000)):
        with socket.create_connection(("127.0.0.1", served["port"]), timeout=5) as stranger:
            stranger.sendall(said)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(100) == b""


@pytest.mark.parametrize("asked", ["sink inf", "source 1e9", "source nan", "sink -1", "take 99999999999", "take -5"])
def test_requests_above_the_limits_are_rejected(served: dict[str, Any], asked: str) -> None:
    with socket.create_connection(("127.0.0.1", served["port"]), timeout=60) as known:
        known.sendall(f"{KNOWN} {asked}\n".encode())
        assert known.recv(100) == b""


def test_number_of_callers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MOST_CALLERS", 4)
    entry = listener.listener(0)
    server = listener.Server({"token": KNOWN, "node": "node2", "idle": 20}, [entry])
    address = ("127.0.0.1", entry.getsockname()[1])
    with contextlib.ExitStack() as held:
        callers = [held.enter_context(socket.create_connection(address, timeout=60)) for _ in range(6)]
        for _ in callers:
            server.accept(entry)
        assert len(server.strangers) == 4
        assert callers[5].recv(1) == b"", "the last caller was not disconnected"
        server.send_away(time.monotonic())
        assert not server.strangers
        assert [caller.recv(1) for caller in callers] == [b""] * 6
        assert list(server.selector.get_map()) == [entry.fileno()]
    entry.close()


def test_bulk_transfers_do_not_overlap(served: dict[str, Any]) -> None:
    other = ask("serve", {"token": KNOWN, "node": "node1", "port": free_port(), "samples": 1, "idle": 20})
    try:
        called = {"node": "node2", "address": "127.0.0.1", "port": served["port"]}
        request = {"token": KNOWN, "node": "node1", "port": other["port"], "seconds": 0.1, "peers": [called, called]}
        with socket.create_connection(("127.0.0.1", served["port"]), timeout=5) as holder:
            holder.sendall(b"%s slot\n" % KNOWN.encode())
            assert holder.recv(10) == b"go\n"
            found: list[dict[str, Any]] = []
            pair = threading.Thread(target=lambda: found.append(ask("pair", request)))
            pair.start()
            pair.join(1.0)
            assert pair.is_alive()
        pair.join(20)
        assert found[0]["pairs"]["node2"]["there"] > 1e7
        assert found[0]["pairs"]["node2"]["back"] > 1e7
    finally:
        ask("end", {"pid": other["pid"], "started": other["started"]})


def test_occupied_port_is_reported_with_its_holder(served: dict[str, Any]) -> None:
    again = ask("serve", {"token": KNOWN, "node": "node2", "port": served["port"], "samples": 0, "idle": -2})
    assert (again["pid"], again["port"], again["holder"]) == (0, None, listener.PROCESS_NAME)


def test_end_request_stops_only_the_listener_process(served: dict[str, Any]) -> None:
    ask("end", {"pid": os.getpid(), "started": "1"})
    ask("end", {"pid": 0, "started": ""})
    assert running(served["pid"])


def start_listener(port: int, idle: float) -> int:
    with listener.listener(port) as entry:
        pid: int = listener.leave_behind({"token": KNOWN, "node": "node2", "idle": idle}, [entry])
    assert running(pid)
    return pid


def test_listener_exits_if_nobody_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "FIRST_CALL", 0.5)
    pid = start_listener(free_port(), 20)
    until(lambda: not running(pid))


def test_idle_listener_exits() -> None:
    port = free_port()
    pid = start_listener(port, 0.5)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as once:
        once.sendall(b"%s hello\n" % KNOWN.encode())
        assert once.recv(100) == b"muster-probe node2\n"
    until(lambda: not running(pid))


def test_listener_waits_for_another_probe() -> None:
    port = free_port()
    pid = start_listener(port, 0.1)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as once:
        once.sendall(b"%s hello\n" % KNOWN.encode())
    entry, holder = listener.patient_listener(port, 10)
    assert holder == ""
    assert entry is not None
    entry.close()
    until(lambda: not running(pid))


def test_path_mtu_is_measured_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    link = caller.CalledLink(KNOWN, {"address": "127.0.0.1", "node": "node2", "ports": []}, 0)
    monkeypatch.setattr(link, "rungs", lambda _port, sizes: [size + 52 <= 1412 for size in sizes])
    for pmtu in (1500, 9000):
        tried = link.ladder(0, pmtu - 52, pmtu)
        assert max(entry["mtu"] for entry in tried if entry["passes"]) == 1412
        assert min(entry["mtu"] for entry in tried if not entry["passes"]) == 1413
