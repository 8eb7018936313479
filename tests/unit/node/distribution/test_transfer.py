"""From node to node, for real: processes on addresses of this machine, each with a store of its own.

Where a test needs a transfer that stands still, a giver of its own gives some pieces and then waits (held).
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
    """Run the program as a node does, in a process of its own."""
    argv = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, verb]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(sent(PROGRAM, request))
    process.stdin.close()
    return process


def end(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    with process:
        assert process.stdout
        said: dict[str, Any] = json.loads(process.stdout.read())
    return said


class Nodes:
    """Three places with the manifest, the first of them with all of the content."""

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
        self.content = b"".join(CONTENTS[file.path] for file in self.layout.files)  # as it goes over the wire
        self.place = {"digest": manifest.digest_of(text), "wanted": self.wanted}
        self.pieces = end(begin("offer", {"store": str(self.stores[FIRST]), **self.place}))["pieces"]
        with socket.create_server((FIRST, 0)) as taken:
            self.port: int = taken.getsockname()[1]

    def request(self, address: str, *givers: str, followed: bool = False, **changes: Any) -> dict[str, Any]:
        common = {
            "token": TOKEN,
            "seconds": 30,
            "calls_for": 20.0,
            "port": self.port,
            "pieces": self.pieces,
            "peers": list(ADDRESSES),
        }
        ways = {"address": address, "givers": [[each, self.port] for each in givers], "followed": followed}
        return {"store": str(self.stores[address]), **self.place, **common, **ways, **changes}

    def objects(self, address: str) -> list[str]:
        return sorted(path.name for path in (self.stores[address] / "objects").iterdir())


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


@pytest.fixture
def served(nodes: Nodes) -> Iterator[subprocess.Popen[bytes]]:
    """The first node gives, and waits for another."""
    process = begin("share", nodes.request(FIRST, followed=True))
    until(lambda: listens(nodes.port))
    yield process
    process.kill()
    process.wait()


def listens(port: int, address: str = FIRST) -> bool:
    """Read the kernel's table: an attempt to bind would take the port that the program is about to bind."""
    local, state = f"{int.from_bytes(socket.inet_aton(address), 'little'):08X}:{port:04X}", "0A"  # TCP_LISTEN
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any((row[1], row[3]) == (local, state) for row in rows)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Giver:
    """A giver that this test is: it gives so many pieces, and then only signs of life until it is let go."""

    def __init__(self, nodes: Nodes, address: str, count: int, spoil: int = -1) -> None:
        self.nodes, self.count, self.spoil = nodes, count, spoil
        self.listener = socket.create_server((address, nodes.port))
        self.listener.settimeout(30)
        self.gave = 0
        self.let_go = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        with self.listener, self.listener.accept()[0] as peer, suppress(OSError):
            greeting.greet(peer, TOKEN)
            content, total = self.nodes.content, self.nodes.layout.count
            while self.gave < self.count:
                index = serving.NUMBER.unpack(greeting.received(peer, 8))[0]
                begin_, size = self.nodes.layout.place(index)
                part = content[begin_ : begin_ + size] if index != self.spoil else bytes(size)
                peer.sendall(serving.HEAD.pack(index, total, total, 0) + part)
                self.gave += 1
            while not self.let_go.wait(0.2):
                peer.sendall(serving.HEAD.pack(serving.NOTHING, total, total, 0))


@contextmanager
def held(nodes: Nodes, address: str, count: int, spoil: int = -1) -> Iterator[Giver]:
    giver = Giver(nodes, address, count, spoil)
    try:
        yield giver
    finally:
        giver.let_go.set()
        giver.thread.join()


def test_all_of_it_comes_along_the_line_and_nothing_is_left(nodes: Nodes) -> None:
    last = begin("share", nodes.request(THIRD, SECOND, FIRST))  # whoever takes may begin first
    middle = begin("share", nodes.request(SECOND, FIRST, followed=True))
    time.sleep(0.3)
    giving = begin("share", nodes.request(FIRST, followed=True))
    total = nodes.layout.count
    assert end(last) == {"missing": 0, "came": {SECOND: total}, "error": ""}
    assert end(middle) == {"missing": 0, "came": {FIRST: total}, "error": ""}
    assert end(giving) == {"missing": 0, "came": {}, "error": ""}
    for address in ADDRESSES:
        assert not listens(nodes.port, address)
        assert nodes.objects(address) == nodes.wanted
        assert list((nodes.stores[address] / "parts").iterdir()) == []


def test_what_has_come_is_given_on_before_the_rest_has(nodes: Nodes) -> None:
    """The giver stands still in the middle: the last in the line has as much as the one before it."""
    with held(nodes, FIRST, HALF) as giver:
        middle = begin("share", nodes.request(SECOND, FIRST, followed=True))
        with socket_to(nodes, SECOND, THIRD) as peer:
            for index in range(HALF):
                assert piece(nodes, peer, index) == nodes.layout.place(index)[1]
            assert giver.gave == HALF
            assert nodes.objects(SECOND) == []
    middle.kill()
    middle.wait()


def test_another_giver_takes_over_where_one_died_in_the_middle(nodes: Nodes) -> None:
    """The one in the middle has half, and so has the one behind it; then it is killed, and the first one goes on."""
    with held(nodes, FIRST, HALF):
        middle = begin("share", nodes.request(SECOND, FIRST, followed=True))
        last = begin("share", nodes.request(THIRD, SECOND, FIRST))
        until(lambda: scratch_of(last, HALF * nodes.layout.piece), what="half has come")
        for pid in [middle.pid, *descendants(middle.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        middle.wait()
    giving = begin("share", nodes.request(FIRST, followed=True))
    said = end(last)
    assert said["missing"] == 0
    assert said["error"] == ""
    assert said["came"] == {SECOND: HALF, FIRST: nodes.layout.count - HALF}
    assert end(giving)["error"] == ""
    assert nodes.objects(THIRD) == nodes.wanted


def test_a_piece_that_is_something_else_is_fetched_from_another_node(nodes: Nodes) -> None:
    with held(nodes, SECOND, HALF, spoil=3):
        giving = begin("share", nodes.request(FIRST, followed=True))
        said = end(begin("share", nodes.request(THIRD, SECOND, FIRST)))
    assert said == {"missing": 0, "came": {SECOND: 3, FIRST: nodes.layout.count - 3}, "error": ""}
    assert end(giving)["error"] == ""
    assert nodes.objects(THIRD) == nodes.wanted


def test_what_is_something_else_everywhere_is_not_kept(nodes: Nodes) -> None:
    with held(nodes, FIRST, HALF, spoil=0):
        said = end(begin("share", nodes.request(SECOND, FIRST)))
    assert said["error"] == f"a piece from {FIRST} does not match its sha256"
    assert said["missing"] == len(nodes.wanted) - 1  # what is empty is right
    assert len(nodes.objects(SECOND)) == 1


def test_pieces_that_are_announced_wrong_make_no_file(nodes: Nodes) -> None:
    """Whoever announces and gives something else than the manifest says is found out by the file."""
    spoilt = nodes.content[:-1] + bytes([nodes.content[-1] ^ 1])
    begin_, size = nodes.layout.place(nodes.layout.count - 1)
    nodes.pieces[-1] = hashlib.sha256(spoilt[begin_ : begin_ + size]).hexdigest()
    nodes.content = spoilt
    with held(nodes, FIRST, nodes.layout.count):
        said = end(begin("share", nodes.request(SECOND, FIRST)))
    assert "does not match its sha256" in said["error"]
    assert said["missing"] == 1


def test_what_came_before_it_broke_off_is_kept(nodes: Nodes) -> None:
    """A file that is whole is in its place, and only the rest is fetched the next time."""
    with store.opened(str(nodes.stores[SECOND])) as there:
        for file in nodes.layout.files[:-1]:
            assert store.add_part(there, "0" * 64, file, 0, CONTENTS[file.path]) == ""
    before = nodes.objects(SECOND)
    giving = begin("share", nodes.request(FIRST, followed=True))
    said = end(begin("share", nodes.request(SECOND, FIRST)))
    assert said["missing"] == 0
    assert sum(said["came"].values()) < nodes.layout.count or len(before) == 2
    assert end(giving)["error"] == ""


def test_who_hears_nothing_asks_another(nodes: Nodes) -> None:
    """A giver that stands still without a sign of life is as good as dead."""
    with socket.create_server((SECOND, nodes.port)):
        giving = begin("share", nodes.request(FIRST, followed=True))
        begun = time.monotonic()
        assert end(begin("share", nodes.request(THIRD, SECOND, FIRST)))["missing"] == 0
        assert time.monotonic() - begun < fetching.SILENT + 10
    assert end(giving)["error"] == ""


@pytest.mark.skipif(os.getuid() != 0, reason="only root has rights to drop")
def test_whoever_listens_has_no_rights(served: subprocess.Popen[bytes]) -> None:
    until(lambda: len(descendants(served.pid)) == 2)
    for pid in descendants(served.pid):
        status = Path(f"/proc/{pid}/status").read_text()
        assert "Uid:\t65534\t65534\t65534\t65534" in status
        assert "Groups:\t65534" in status or "Groups:\t\n" in status
        assert "CapEff:\t0000000000000000" in status


def test_whoever_does_not_know_the_token_gets_nothing(served: subprocess.Popen[bytes], nodes: Nodes) -> None:
    said = end(begin("share", nodes.request(SECOND, FIRST, token="6" * 64)))
    assert said == {"missing": len(nodes.wanted) - 1, "came": {}, "error": f"{FIRST}: the connection was closed"}
    # It goes on for those who do.
    assert end(begin("share", nodes.request(SECOND, FIRST)))["error"] == ""
    assert end(served)["error"] == ""


def test_whoever_calls_from_elsewhere_gets_nothing(served: subprocess.Popen[bytes], nodes: Nodes) -> None:
    said = end(begin("share", {**nodes.request(SECOND, FIRST), "address": "127.0.0.5"}))
    assert said["error"] != ""
    assert served.poll() is None


def test_nothing_but_what_is_wanted_is_given_out(served: subprocess.Popen[bytes], nodes: Nodes) -> None:
    with socket_to(nodes, FIRST, SECOND) as peer:
        peer.sendall(serving.NUMBER.pack(nodes.layout.count))
        assert peer.recv(100) == b""
    assert served.poll() is None


def test_strangers_that_say_nothing_hold_nobody_up(served: subprocess.Popen[bytes], nodes: Nodes) -> None:
    """They take no place of a node: it comes in at its first call, however many of them are there."""
    with ExitStack() as stack:
        for _ in range(max(serving.MOST_AT_ONCE, serving.MOST_STRANGERS) + 3):
            silent = socket.create_connection((FIRST, nodes.port), source_address=(SECOND, 0))
            stack.enter_context(silent)
            assert greeting.received(silent, greeting.SIZE)  # its process has begun
        with socket_to(nodes, FIRST, SECOND) as peer:
            assert piece(nodes, peer, 0) == nodes.layout.place(0)[1]
        said = end(begin("share", nodes.request(SECOND, FIRST)))
        assert (said["error"], said["came"]) == ("", {FIRST: nodes.layout.count})
        assert end(served)["error"] == ""


def test_who_calls_most_is_turned_out_first() -> None:
    def strangers(*addresses: str) -> dict[int, serving.Stranger]:
        # The sockets are not asked.
        return {pid: serving.Stranger(each, 0.0, socket.socket()) for pid, each in enumerate(addresses, 100)}

    assert serving.one_too_many(strangers(SECOND, THIRD, SECOND)) == 100
    assert serving.one_too_many(strangers(THIRD, SECOND, SECOND, SECOND, THIRD)) == 101
    assert serving.one_too_many(strangers(THIRD, SECOND)) == 100


def test_more_than_some_at_once_are_not_served(served: subprocess.Popen[bytes], nodes: Nodes) -> None:
    with ExitStack() as stack:
        for _ in range(serving.MOST_AT_ONCE):
            stack.enter_context(socket_to(nodes, FIRST, SECOND))
        with pytest.raises(greeting.StrangerError):
            stack.enter_context(socket_to(nodes, FIRST, SECOND))


def test_a_source_whose_content_was_changed_says_so(nodes: Nodes) -> None:
    digest = hashlib.sha256(CONTENTS["a.py"]).hexdigest()
    (nodes.stores[FIRST] / "objects" / digest).write_bytes(b"print(2)\n")
    said = end(begin("offer", {"store": str(nodes.stores[FIRST]), **nodes.place}))
    assert said == {"pieces": [], "error": "the content of a.py was changed on this node"}


def test_a_port_that_is_held_is_named(nodes: Nodes) -> None:
    with socket.create_server((FIRST, nodes.port)):
        said = end(begin("share", nodes.request(FIRST, followed=True)))
    assert said["error"].startswith(f"cannot listen on {FIRST} port {nodes.port}: ")


def test_its_time_is_limited(nodes: Nodes) -> None:
    begun = time.monotonic()
    assert end(begin("share", nodes.request(FIRST, followed=True, seconds=1)))["error"] == ""
    assert not listens(nodes.port)
    said = end(begin("share", nodes.request(SECOND, FIRST, seconds=1)))
    assert said["error"] == f"{FIRST}: Connection refused"
    assert time.monotonic() < begun + 30


def test_whoever_asked_for_it_is_gone_and_it_ends(served: subprocess.Popen[bytes], nodes: Nodes) -> None:
    assert served.stdout
    served.stdout.close()
    until(lambda: not listens(nodes.port), what="it has ended")


def test_a_plain_folder_gets_files_under_their_names(nodes: Nodes, tmp_path: Path) -> None:
    """As wheels are kept: root's, readable for all, and refused where it leads elsewhere."""
    listed = [ManifestFile("x.whl", executable=False, size=6, sha256=hashlib.sha256(b"wheel\n").hexdigest())]
    text = manifest.render(listed)
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "x.whl").write_bytes(b"wheel\n")
    place = {"wanted": [listed[0].sha256], "manifest": encoded(text)}
    asked = {"folder": str(source), "files": [["x.whl", listed[0].sha256], ["y.whl", "0" * 64]], "port": nodes.port}
    assert end(begin("kept", asked))["sizes"] == {"x.whl": 6}
    assert end(begin("kept", {**asked, "folder": str(target)}))["sizes"] == {}
    offered = end(begin("offer", {"folder": str(source), **place}))["pieces"]

    def request(address: str, folder: Path, *givers: str, followed: bool) -> dict[str, Any]:
        full = nodes.request(address, *givers, followed=followed, pieces=offered)
        return {**{name: value for name, value in full.items() if name != "store"}, "folder": str(folder), **place}

    giving = begin("share", request(FIRST, source, followed=True))
    said = end(begin("share", request(SECOND, target, FIRST, followed=False)))
    assert said == {"missing": 0, "came": {FIRST: 1}, "error": ""}
    assert end(giving)["error"] == ""
    assert [(path.name, path.stat().st_mode & 0o777) for path in target.iterdir()] == [("x.whl", 0o644)]
    above = manifest.render([listed[0]._replace(path="sub/x.whl")])
    said = end(begin("offer", {"folder": str(source), **place, "manifest": encoded(above)}))
    assert said["error"] == "ValueError: a plain folder must not contain folders"


# ---------------------------------------------------------------- looks


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


@contextmanager
def socket_to(nodes: Nodes, address: str, whence: str) -> Iterator[socket.socket]:
    """A caller that knows the token."""
    until(lambda: listens(nodes.port, address))
    with socket.create_connection((address, nodes.port), source_address=(whence, 0), timeout=10) as peer:
        greeting.introduce(peer, TOKEN)
        yield peer


def piece(nodes: Nodes, peer: socket.socket, index: int) -> int:
    """Ask for a piece, and return how many bytes came that are right."""
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


def scratch_of(process: subprocess.Popen[bytes], size: int) -> bool:
    """Whether the file without a name that this node fills has so many bytes."""
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):
            if str(path.readlink()).endswith(".new (deleted)"):
                return path.stat().st_size >= size
    return False
