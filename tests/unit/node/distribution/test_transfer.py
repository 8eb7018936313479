"""Transfers between nodes: real processes on local addresses, each with a separate store.

For tests of interrupted transfers, a source in the test process sends some pieces and then pauses.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.distribution import fetching, greeting, manifest, serving, store
from muster_node.distribution.manifest import ManifestFile
from muster_node.distribution.pieces import PieceLayout
from muster_node.tools.pack import sent
from muster_node.tools.program import BOOTSTRAP
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = "muster_node.programs.distribution"
TOKEN = "5" * 64
CONTENTS = {"a.py": b"print(1)\n", "empty": b"", "sub/large.bin": os.urandom(6_000_000), "sub/same.py": b"print(1)\n"}
HALF = 12  # pieces
ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
FIRST, SECOND, THIRD = ADDRESSES


def begin(verb: str, request: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Run the program in a separate process, as a node does."""
    argv = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, verb]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(sent(PROGRAM, request))
    process.stdin.close()
    return process


def result_of(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    with process:
        assert process.stdout
        result: dict[str, Any] = json.loads(process.stdout.read())
    return result


class Nodes:
    """Three stores with the same manifest. Only the first store has the content."""

    def __init__(self, folder: Path) -> None:
        listed = [
            ManifestFile(path, False, len(each), hashlib.sha256(each).hexdigest()) for path, each in CONTENTS.items()
        ]
        text = manifest.render(listed)
        self.listed = manifest.parse(text)
        self.stores = {address: folder / address for address in ADDRESSES}
        for address, path in self.stores.items():
            with store.opened(str(path)) as there:
                store.keep_manifest(there, text)
                for file in listed if address == FIRST else ():
                    assert store.add_part(there, "0" * 64, file, 0, CONTENTS[file.path]) == ""
        self.wanted = sorted({file.sha256 for file in listed})
        self.layout = PieceLayout(self.listed, self.wanted)
        self.content = b"".join(CONTENTS[file.path] for file in self.layout.files)  # in the order of transmission
        self.place = {"digest": manifest.digest_of(text), "wanted": self.wanted}
        self.pieces = result_of(begin("offer", {"store": str(self.stores[FIRST]), **self.place}))["pieces"]
        with socket.create_server((FIRST, 0)) as taken:
            self.port: int = taken.getsockname()[1]

    def request(self, address: str, *sources: str, followed: bool = False, **changes: Any) -> dict[str, Any]:
        common = {
            "token": TOKEN,
            "seconds": 30,
            "calls_for": 20.0,
            "port": self.port,
            "pieces": self.pieces,
            "peers": list(ADDRESSES),
        }
        ways = {"address": address, "givers": [[each, self.port] for each in sources], "followed": followed}
        return {"store": str(self.stores[address]), **self.place, **common, **ways, **changes}

    def objects(self, address: str) -> list[str]:
        return sorted(path.name for path in (self.stores[address] / "objects").iterdir())


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


@pytest.fixture
def served(nodes: Nodes) -> Iterator[subprocess.Popen[bytes]]:
    """Run a transfer on the first node as the source of another node."""
    process = begin("share", nodes.request(FIRST, followed=True))
    until(lambda: listens(nodes.port))
    yield process
    process.kill()
    process.wait()


def listens(port: int, address: str = FIRST) -> bool:
    """Return whether a process listens on the port. Binding the port as a test could take it from the program."""
    local, state = f"{int.from_bytes(socket.inet_aton(address), 'little'):08X}:{port:04X}", "0A"  # TCP_LISTEN
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any((row[1], row[3]) == (local, state) for row in rows)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class PausingSource:
    """Source in the test process: sends `count` pieces and then only heartbeats until it is released."""

    def __init__(self, nodes: Nodes, address: str, count: int, corrupt: int = -1) -> None:
        self.nodes, self.count, self.corrupt = nodes, count, corrupt
        self.listener = socket.create_server((address, nodes.port))
        self.listener.settimeout(30)
        self.sent_pieces = 0
        self.released = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        with self.listener, self.listener.accept()[0] as peer, suppress(OSError):
            greeting.greet(peer, TOKEN)
            content, total = self.nodes.content, self.nodes.layout.count
            while self.sent_pieces < self.count:
                index = serving.NUMBER.unpack(greeting.received(peer, 8))[0]
                begin_, size = self.nodes.layout.place(index)
                part = content[begin_ : begin_ + size] if index != self.corrupt else bytes(size)
                peer.sendall(serving.HEAD.pack(index, total, total, 0) + part)
                self.sent_pieces += 1
            while not self.released.wait(0.2):
                peer.sendall(serving.HEAD.pack(serving.NOTHING, total, total, 0))


@contextmanager
def paused_source(nodes: Nodes, address: str, count: int, corrupt: int = -1) -> Iterator[PausingSource]:
    source = PausingSource(nodes, address, count, corrupt)
    try:
        yield source
    finally:
        source.released.set()
        source.thread.join()


def test_content_is_passed_along_the_chain_and_leaves_no_temporary_files(nodes: Nodes) -> None:
    last = begin("share", nodes.request(THIRD, SECOND, FIRST))  # receivers may start first
    middle = begin("share", nodes.request(SECOND, FIRST, followed=True))
    time.sleep(0.3)
    serving_process = begin("share", nodes.request(FIRST, followed=True))
    total = nodes.layout.count
    assert result_of(last) == {"missing": 0, "came": {SECOND: total}, "error": ""}
    assert result_of(middle) == {"missing": 0, "came": {FIRST: total}, "error": ""}
    assert result_of(serving_process) == {"missing": 0, "came": {}, "error": ""}
    for address in ADDRESSES:
        assert not listens(nodes.port, address)
        assert nodes.objects(address) == nodes.wanted
        assert list((nodes.stores[address] / "parts").iterdir()) == []


def test_received_pieces_are_forwarded_before_the_rest_arrives(nodes: Nodes) -> None:
    """The source pauses midway. The last receiver gets as many pieces as the receiver before it."""
    with paused_source(nodes, FIRST, HALF) as source:
        middle = begin("share", nodes.request(SECOND, FIRST, followed=True))
        with socket_to(nodes, SECOND, THIRD) as peer:
            for index in range(HALF):
                assert piece(nodes, peer, index) == nodes.layout.place(index)[1]
            assert source.sent_pieces == HALF
            assert nodes.objects(SECOND) == []
    middle.kill()
    middle.wait()


def test_another_source_replaces_a_killed_source(nodes: Nodes) -> None:
    """The middle node is killed once both receivers have half of the content. The first node takes over."""
    with paused_source(nodes, FIRST, HALF):
        middle = begin("share", nodes.request(SECOND, FIRST, followed=True))
        last = begin("share", nodes.request(THIRD, SECOND, FIRST))
        until(lambda: scratch_file_has(last, HALF * nodes.layout.piece), what="half of the content is received")
        for pid in [middle.pid, *descendants(middle.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        middle.wait()
    serving_process = begin("share", nodes.request(FIRST, followed=True))
    result = result_of(last)
    assert result["missing"] == 0
    assert result["error"] == ""
    assert result["came"] == {SECOND: HALF, FIRST: nodes.layout.count - HALF}
    assert result_of(serving_process)["error"] == ""
    assert nodes.objects(THIRD) == nodes.wanted


def test_corrupt_piece_is_fetched_from_another_node(nodes: Nodes) -> None:
    with paused_source(nodes, SECOND, HALF, corrupt=3):
        serving_process = begin("share", nodes.request(FIRST, followed=True))
        result = result_of(begin("share", nodes.request(THIRD, SECOND, FIRST)))
    assert result == {"missing": 0, "came": {SECOND: 3, FIRST: nodes.layout.count - 3}, "error": ""}
    assert result_of(serving_process)["error"] == ""
    assert nodes.objects(THIRD) == nodes.wanted


def test_piece_corrupt_at_every_source_is_not_stored(nodes: Nodes) -> None:
    with paused_source(nodes, FIRST, HALF, corrupt=0):
        result = result_of(begin("share", nodes.request(SECOND, FIRST)))
    assert result["error"] == f"a piece from {FIRST} does not match its sha256"
    assert result["missing"] == len(nodes.wanted) - 1  # the empty file is correct
    assert len(nodes.objects(SECOND)) == 1


def test_wrong_piece_digests_create_no_file(nodes: Nodes) -> None:
    """The file digest reveals a manifest with wrong piece digests."""
    changed = nodes.content[:-1] + bytes([nodes.content[-1] ^ 1])
    begin_, size = nodes.layout.place(nodes.layout.count - 1)
    nodes.pieces[-1] = hashlib.sha256(changed[begin_ : begin_ + size]).hexdigest()
    nodes.content = changed
    with paused_source(nodes, FIRST, nodes.layout.count):
        result = result_of(begin("share", nodes.request(SECOND, FIRST)))
    assert "does not match its sha256" in result["error"]
    assert result["missing"] == 1


def test_files_from_an_interrupted_transfer_are_kept(nodes: Nodes) -> None:
    """Complete files are stored, and the next transfer fetches only the rest."""
    with store.opened(str(nodes.stores[SECOND])) as there:
        for file in nodes.layout.files[:-1]:
            assert store.add_part(there, "0" * 64, file, 0, CONTENTS[file.path]) == ""
    before = nodes.objects(SECOND)
    serving_process = begin("share", nodes.request(FIRST, followed=True))
    result = result_of(begin("share", nodes.request(SECOND, FIRST)))
    assert result["missing"] == 0
    assert sum(result["came"].values()) < nodes.layout.count or len(before) == 2
    assert result_of(serving_process)["error"] == ""


def test_silent_source_is_replaced(nodes: Nodes) -> None:
    """A source that sends no heartbeats counts as dead."""
    with socket.create_server((SECOND, nodes.port)):
        serving_process = begin("share", nodes.request(FIRST, followed=True))
        begun = time.monotonic()
        assert result_of(begin("share", nodes.request(THIRD, SECOND, FIRST)))["missing"] == 0
        assert time.monotonic() - begun < fetching.SILENT + 10
    assert result_of(serving_process)["error"] == ""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can drop privileges")
def test_serving_processes_have_no_privileges(served: subprocess.Popen[bytes]) -> None:
    until(lambda: len(descendants(served.pid)) == 2)
    for pid in descendants(served.pid):
        status = Path(f"/proc/{pid}/status").read_text()
        assert "Uid:\t65534\t65534\t65534\t65534" in status
        assert "Groups:\t65534" in status or "Groups:\t\n" in status
        assert "CapEff:\t0000000000000000" in status


def test_caller_without_the_token_is_rejected(served: subprocess.Popen[bytes], nodes: Nodes) -> None:
    result = result_of(begin("share", nodes.request(SECOND, FIRST, token="6" * 64)))
    assert result == {"missing": len(nodes.wanted) - 1, "came": {}, "error": f"{FIRST}: the connection was closed"}
    # Callers with the token are still served.
    assert result_of(begin("share", nodes.request(SECOND, FIRST)))["error"] == ""
    assert result_of(served)["error"] == ""


def test_caller_from_an_unknown_address_is_rejected(served: subprocess.Popen[bytes], nodes: Nodes) -> None:
    result = result_of(begin("share", {**nodes.request(SECOND, FIRST), "address": "127.0.0.5"}))
    assert result["error"] != ""
    assert served.poll() is None


def test_unknown_piece_is_not_served(served: subprocess.Popen[bytes], nodes: Nodes) -> None:
    with socket_to(nodes, FIRST, SECOND) as peer:
        peer.sendall(serving.NUMBER.pack(nodes.layout.count))
        assert peer.recv(100) == b""
    assert served.poll() is None


def test_silent_callers_do_not_block_nodes(served: subprocess.Popen[bytes], nodes: Nodes) -> None:
    """Connections without the token do not use up the limited connections of nodes, even if there are many."""
    with ExitStack() as stack:
        for _ in range(max(serving.MOST_AT_ONCE, serving.MOST_STRANGERS) + 3):
            silent = socket.create_connection((FIRST, nodes.port), source_address=(SECOND, 0))
            stack.enter_context(silent)
            assert greeting.received(silent, greeting.SIZE)  # its server process runs
        with socket_to(nodes, FIRST, SECOND) as peer:
            assert piece(nodes, peer, 0) == nodes.layout.place(0)[1]
        result = result_of(begin("share", nodes.request(SECOND, FIRST)))
        assert (result["error"], result["came"]) == ("", {FIRST: nodes.layout.count})
        assert result_of(served)["error"] == ""


def test_address_with_the_most_connections_is_disconnected_first() -> None:
    def strangers(*addresses: str) -> dict[int, serving.Stranger]:
        # The sockets are not used.
        return {pid: serving.Stranger(each, 0.0, socket.socket()) for pid, each in enumerate(addresses, 100)}

    assert serving.one_too_many(strangers(SECOND, THIRD, SECOND)) == 100
    assert serving.one_too_many(strangers(THIRD, SECOND, SECOND, SECOND, THIRD)) == 101
    assert serving.one_too_many(strangers(THIRD, SECOND)) == 100


def test_number_of_connections_is_limited(served: subprocess.Popen[bytes], nodes: Nodes) -> None:
    with ExitStack() as stack:
        for _ in range(serving.MOST_AT_ONCE):
            stack.enter_context(socket_to(nodes, FIRST, SECOND))
        with pytest.raises(greeting.StrangerError):
            stack.enter_context(socket_to(nodes, FIRST, SECOND))


def test_source_reports_its_changed_content(nodes: Nodes) -> None:
    digest = hashlib.sha256(CONTENTS["a.py"]).hexdigest()
    (nodes.stores[FIRST] / "objects" / digest).write_bytes(b"print(2)\n")
    result = result_of(begin("offer", {"store": str(nodes.stores[FIRST]), **nodes.place}))
    assert result == {"pieces": [], "error": "the content of a.py was changed on this node"}


def test_occupied_port_is_reported(nodes: Nodes) -> None:
    with socket.create_server((FIRST, nodes.port)):
        result = result_of(begin("share", nodes.request(FIRST, followed=True)))
    assert result["error"].startswith(f"cannot listen on {FIRST} port {nodes.port}: ")


def test_transfer_time_is_limited(nodes: Nodes) -> None:
    begun = time.monotonic()
    assert result_of(begin("share", nodes.request(FIRST, followed=True, seconds=1)))["error"] == ""
    assert not listens(nodes.port)
    result = result_of(begin("share", nodes.request(SECOND, FIRST, seconds=1)))
    assert result["error"] == f"{FIRST}: Connection refused"
    assert time.monotonic() < begun + 30


def test_transfer_ends_when_its_controller_disconnects(served: subprocess.Popen[bytes], nodes: Nodes) -> None:
    assert served.stdout
    served.stdout.close()
    until(lambda: not listens(nodes.port), what="the transfer has ended")


def test_files_are_copied_between_plain_folders(nodes: Nodes, tmp_path: Path) -> None:
    """The files are stored like wheels: owned by root and readable by all users. Paths that contain folders are
    rejected."""
    listed = [ManifestFile("x.whl", executable=False, size=6, sha256=hashlib.sha256(b"wheel\n").hexdigest())]
    text = manifest.render(listed)
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "x.whl").write_bytes(b"wheel\n")
    place = {"wanted": [listed[0].sha256], "manifest": encoded(text)}
    asked = {"folder": str(source), "files": [["x.whl", listed[0].sha256], ["y.whl", "0" * 64]], "port": nodes.port}
    assert result_of(begin("kept", asked))["sizes"] == {"x.whl": 6}
    assert result_of(begin("kept", {**asked, "folder": str(target)}))["sizes"] == {}
    offered = result_of(begin("offer", {"folder": str(source), **place}))["pieces"]

    def request(address: str, folder: Path, *sources: str, followed: bool) -> dict[str, Any]:
        full = nodes.request(address, *sources, followed=followed, pieces=offered)
        return {**{name: value for name, value in full.items() if name != "store"}, "folder": str(folder), **place}

    serving_process = begin("share", request(FIRST, source, followed=True))
    result = result_of(begin("share", request(SECOND, target, FIRST, followed=False)))
    assert result == {"missing": 0, "came": {FIRST: 1}, "error": ""}
    assert result_of(serving_process)["error"] == ""
    assert [(path.name, path.stat().st_mode & 0o777) for path in target.iterdir()] == [("x.whl", 0o644)]
    above = manifest.render([listed[0]._replace(path="sub/x.whl")])
    result = result_of(begin("offer", {"folder": str(source), **place, "manifest": encoded(above)}))
    assert result["error"] == "ValueError: a plain folder must not contain subfolders"


# ---------------------------------------------------------------- helpers


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


@contextmanager
def socket_to(nodes: Nodes, address: str, whence: str) -> Iterator[socket.socket]:
    """Connect with the token."""
    until(lambda: listens(nodes.port, address))
    with socket.create_connection((address, nodes.port), source_address=(whence, 0), timeout=10) as peer:
        greeting.introduce(peer, TOKEN)
        yield peer


def piece(nodes: Nodes, peer: socket.socket, index: int) -> int:
    """Request a piece, check it and return its size."""
    peer.sendall(serving.NUMBER.pack(index))
    while True:
        found = serving.HEAD.unpack(greeting.received(peer, serving.HEAD.size))[0]
        if found == index:
            content = greeting.received(peer, nodes.layout.place(index)[1])
            assert hashlib.sha256(content).hexdigest() == nodes.pieces[index]
            return len(content)


def descendants(pid: int) -> list[int]:
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def scratch_file_has(process: subprocess.Popen[bytes], size: int) -> bool:
    """Return whether the unnamed temporary file of this node has at least `size` bytes."""
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):
            if str(path.readlink()).endswith(".new (deleted)"):
                return path.stat().st_size >= size
    return False
