"""Files are copied between nodes over the SSH mesh, or the result explains the failure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from machines import Machine, Play

FOLDER = "/srv/muster-test-files"
FILES = {"one.whl": "one", "two+cpu.whl": "two"}
WANTED = [{"name": name, "sha256": hashlib.sha256(text.encode()).hexdigest()} for name, text in FILES.items()]
HOST_KEYS = "/home/muster/.ssh/muster_known_hosts"


@pytest.fixture
def source(networked: list[Machine]) -> Iterator[Machine]:
    """Yield the first node, which has the files. The login shell of its training user prints additional text."""
    source, receiver = networked[:2]
    receiver.inside("rm", "-rf", FOLDER)
    source.inside("mkdir", "-p", FOLDER)
    for name, text in FILES.items():
        source.inside("sh", "-c", f"printf %s {text} >{FOLDER}/{name}")
    source.inside("sh", "-c", "echo 'echo Welcome; echo to the cluster' >/home/muster/.bashrc")
    yield source
    source.inside("rm", "-f", "/home/muster/.bashrc")
    for machine in (source, receiver):
        machine.inside("rm", "-rf", FOLDER)


@pytest.fixture
def fetch(play: Play) -> Callable[..., dict[str, Any]]:
    """Return a function that fetches the files on the second node and returns the module's result."""

    def run(*peers: str, **requested: Any) -> dict[str, Any]:
        extravars = {"peers": list(peers), "files": WANTED, **requested}
        result = play("tests/integration/payloads/peer_files.yml", extravars=extravars, limit="node2")
        return result.results("Fetch")["node2"]

    return run


def test_missing_files_are_fetched_from_a_peer_that_has_them(
    source: Machine, networked: list[Machine], fetch: Callable[..., dict[str, Any]]
) -> None:
    receiver = networked[1]
    done = fetch("nobody", "node3", "node1")
    assert done["complete"]
    assert [(tried["peer"], tried["why"]) for tried in done["tried"]] == [
        ("nobody", "muster has no recorded host key of the peer: the SSH mesh is not set up"),
        ("node3", "not found on the peer: one.whl and 1 more"),
        ("node1", ""),
    ]
    assert receiver.inside("sh", "-c", f"cd {FOLDER} && cat *").stdout == "onetwo"
    assert set(receiver.inside("stat", "-c", "%U %a", f"{FOLDER}/one.whl", f"{FOLDER}/two+cpu.whl").stdout.split()) == {
        "root",
        "644",
    }

    assert (fetch("node1")["changed"], fetch("node1")["tried"]) == (False, []), "a peer was contacted"

    receiver.inside("sh", "-c", f"echo damaged >{FOLDER}/one.whl")
    source.inside("sh", "-c", f"echo more >>{FOLDER}/two+cpu.whl")
    again = fetch("node1")
    assert (again["complete"], again["fetched"]) == (True, ["one.whl"])


def test_file_with_a_wrong_digest_is_rejected(
    source: Machine, networked: list[Machine], fetch: Callable[..., dict[str, Any]]
) -> None:
    source.inside("sh", "-c", f"echo more >>{FOLDER}/one.whl")
    done = fetch("node1")
    assert (done["complete"], done["missing"], done["fetched"]) == (False, ["one.whl"], ["two+cpu.whl"])
    assert done["tried"][0]["why"] == "one.whl does not match its sha256"
    assert networked[1].inside("ls", "-A", FOLDER).stdout.split() == ["two+cpu.whl"]


def test_peer_with_another_host_key_is_not_used(
    source: Machine, networked: list[Machine], fetch: Callable[..., dict[str, Any]]
) -> None:
    receiver = networked[1]
    before = receiver.inside("cat", HOST_KEYS).stdout
    keys = [line.split() for line in before.splitlines() if line.endswith(":node3")]
    # The first node's entry gets the keys of another node.
    kept = [line for line in before.splitlines() if not line.endswith(":node1")]
    wrong = [f"node1,{source.address} {kind} {key} {label[:-1]}1" for _, kind, key, label in keys]
    try:
        receiver.inside("sh", "-c", f"printf '%s\\n' \"$@\" >{HOST_KEYS}", "sh", *kept, *wrong)
        done = fetch("node1")
    finally:
        receiver.inside("sh", "-c", f"printf '%s' \"$1\" >{HOST_KEYS}", "sh", before)
    assert done["tried"] == [
        {"peer": "node1", "fetched": [], "bytes": 0, "why": "the host key differs from the recorded host key"}
    ]
    assert receiver.inside("cat", HOST_KEYS).stdout == before
    assert fetch("node1")["complete"]
