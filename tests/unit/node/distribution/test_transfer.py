"""From one node to another, for real: two processes on two addresses of this machine, each with a store of its own."""

from __future__ import annotations

import hashlib
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

from muster_node.distribution import greeting, manifest, serving, store
from muster_node.distribution.manifest import File
from muster_node.tools.pack import sent
from muster_node.tools.program import BOOTSTRAP
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = "muster_node.programs.distribution"
TOKEN = "5" * 64
CONTENTS = {"a.py": b"print(1)\n", "empty": b"", "sub/large.bin": os.urandom(3_000_000), "sub/same.py": b"print(1)\n"}
SOURCE, OTHER = "127.0.0.2", "127.0.0.3"


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


@pytest.fixture
def port() -> int:
    with socket.create_server((SOURCE, 0)) as taken:
        number: int = taken.getsockname()[1]
        return number


@pytest.fixture
def request_(tmp_path: Path, port: int) -> dict[str, Any]:
    """Where all of it is: two stores that have the manifest, the first of them all of the content."""
    listed = [File(path, False, len(each), hashlib.sha256(each).hexdigest()) for path, each in CONTENTS.items()]
    text = manifest.render(listed)
    for name in ("first", "second"):
        with store.opened(str(tmp_path / name)) as there:
            store.keep_manifest(there, text)
            for file in listed if name == "first" else ():
                assert store.add_part(there, "0" * 64, file, 0, CONTENTS[file.path]) == ""
    wanted = sorted({file.sha256 for file in listed})
    common = {"digest": manifest.digest_of(text), "port": port, "token": TOKEN, "seconds": 20}
    return {**common, "store": str(tmp_path / "first"), "wanted": wanted, "address": SOURCE, "peers": [OTHER]}


def fetching(request: dict[str, Any], **changes: Any) -> dict[str, Any]:
    store_ = str(Path(request["store"]).parent / "second")
    return {**request, "store": store_, "source": SOURCE, "address": OTHER, **changes}


@pytest.fixture
def served(request_: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    process = begin("serve", request_)
    yield process
    process.kill()
    process.wait()


def listens(port: int) -> bool:
    try:
        with socket.create_server((SOURCE, port)):
            return False
    except OSError:
        return True


def test_all_of_it_comes_and_nothing_is_left(request_: dict[str, Any], tmp_path: Path) -> None:
    getting = begin("fetch", fetching(request_))  # whoever takes may begin first
    time.sleep(0.3)
    giving = begin("serve", request_)
    assert end(getting) == {"missing": 0, "error": ""}
    assert end(giving) == {"served": 1, "error": ""}
    assert not listens(request_["port"])
    for name in ("first", "second"):
        assert sorted(path.name for path in (tmp_path / name / "objects").iterdir()) == request_["wanted"]
        assert list((tmp_path / name / "parts").iterdir()) == []
    assert end(begin("fetch", fetching(request_))) == {"missing": 0, "error": ""}  # nobody needs to listen for it


@pytest.mark.skipif(os.getuid() != 0, reason="only root has rights to drop")
def test_whoever_listens_has_no_rights(served: subprocess.Popen[bytes], request_: dict[str, Any]) -> None:
    until(lambda: listens(request_["port"]))
    children = Path(f"/proc/{served.pid}/task/{served.pid}/children").read_text().split()
    status = Path(f"/proc/{children[0]}/status").read_text()
    assert "Uid:\t65534\t65534\t65534\t65534" in status
    assert "Groups:\t65534" in status or "Groups:\t\n" in status
    assert "CapEff:\t0000000000000000" in status


def test_whoever_does_not_know_the_token_gets_nothing(
    served: subprocess.Popen[bytes], request_: dict[str, Any], tmp_path: Path
) -> None:
    until(lambda: listens(request_["port"]))
    said = end(begin("fetch", fetching(request_, token="6" * 64)))
    assert said == {"missing": len(request_["wanted"]), "error": "it hung up"}
    assert list((tmp_path / "second/objects").iterdir()) == []
    # It goes on for those who do.
    assert end(begin("fetch", fetching(request_)))["error"] == ""
    assert end(served)["served"] == 1


def test_whoever_calls_from_elsewhere_gets_nothing(served: subprocess.Popen[bytes], request_: dict[str, Any]) -> None:
    until(lambda: listens(request_["port"]))
    assert end(begin("fetch", fetching(request_, address="127.0.0.4")))["error"] != ""


def test_nothing_but_what_is_wanted_is_given_out(
    served: subprocess.Popen[bytes], request_: dict[str, Any], tmp_path: Path
) -> None:
    with store.opened(str(tmp_path / "first")) as there:
        other = File("x", False, 6, hashlib.sha256(b"secret").hexdigest())
        store.add_part(there, "0" * 64, other, 0, b"secret")
    until(lambda: listens(request_["port"]))
    with socket.create_connection((SOURCE, request_["port"]), source_address=(OTHER, 0)) as peer:
        greeting.introduce(peer, TOKEN)
        asked = json.dumps([other.sha256]).encode()
        peer.sendall(serving.NUMBER.pack(len(asked)) + asked)
        assert peer.recv(100) == b""


def test_strangers_that_say_nothing_hold_nobody_up(served: subprocess.Popen[bytes], request_: dict[str, Any]) -> None:
    until(lambda: listens(request_["port"]))
    strangers = [socket.create_connection((SOURCE, request_["port"]), source_address=(OTHER, 0)) for _ in range(5)]
    try:
        assert end(begin("fetch", fetching(request_)))["error"] == ""
        assert end(served)["served"] == 1
    finally:
        for each in strangers:
            each.close()


def test_what_comes_and_is_something_else_is_not_kept(request_: dict[str, Any], tmp_path: Path) -> None:
    """Another program has the port, knows the token even, and sends what nobody asked for."""

    def lie() -> None:
        with listener, listener.accept()[0] as peer:
            greeting.greet(peer, TOKEN)
            size = serving.NUMBER.unpack(greeting.received(peer, 8))[0]
            for digest in json.loads(greeting.received(peer, size)):
                length = sizes[digest]
                peer.sendall(serving.NUMBER.pack(length) + b"#" * length)

    with store.opened(str(tmp_path / "second")) as there:
        sizes = {file.sha256: file.size for file in store.read_manifest(there, request_["digest"])}
    listener = socket.create_server((SOURCE, request_["port"]))
    listener.settimeout(30)
    thread = threading.Thread(target=lie)
    thread.start()
    said = end(begin("fetch", fetching(request_)))
    thread.join()
    assert "is not what was asked for (sha256)" in said["error"]
    assert said["missing"] == 2
    assert len(list((tmp_path / "second/objects").iterdir())) == 1  # what is empty is right


def test_a_source_whose_content_was_changed_says_so(request_: dict[str, Any], tmp_path: Path) -> None:
    digest = hashlib.sha256(CONTENTS["a.py"]).hexdigest()
    (tmp_path / "first/objects" / digest).write_bytes(b"print(2)\n")
    said = end(begin("serve", request_))
    assert said == {"served": 0, "error": "a.py: is not what was sent: its content was changed on this node"}


def test_a_port_that_is_held_is_named(request_: dict[str, Any]) -> None:
    with socket.create_server((SOURCE, request_["port"])):
        said = end(begin("serve", request_))
    assert said["error"].startswith(f"cannot listen on {SOURCE} port {request_['port']}: ")


def test_its_time_is_limited(request_: dict[str, Any]) -> None:
    begun = time.monotonic()
    assert end(begin("serve", {**request_, "seconds": 1}))["served"] == 0
    assert not listens(request_["port"])
    said = end(begin("fetch", fetching(request_, seconds=1)))
    assert said["error"] == "Connection refused"
    assert time.monotonic() < begun + 30
