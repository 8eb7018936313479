"""Claims of a run on its nodes, with real keeper processes. Each node is simulated by a folder of this machine."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from ansible import constants
from ansible.utils.display import Display

from muster.road.claims import LEASE
from muster_controller.nodes import claims, keeper
from muster_controller.nodes.claims import ClaimError, Claims
from muster_controller.nodes.connection import NodeConnection
from muster_controller.nodes.keeper import GONE
from muster_controller.playbook.node_error import NodeError
from muster_node.tools import files
from paths import ROOT
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 60.0
PROGRAM = """
import sys, syslog
from muster_node.programs import claim
claim.FOLDER = sys.argv.pop()
syslog.syslog = lambda _, text: open(claim.FOLDER + "/../journal", "a").write(text + "\\n")
claim.main()
"""


class Node(NodeConnection):
    """A node whose claim is in a folder of this machine. If the file `away` exists, the node is unreachable."""

    def python(self, arguments: str, text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        assert privileged
        folder: Path = self.connection
        if (folder / "away").exists():
            raise NodeError("no route to host", reachable=False)
        if (folder / "broken").exists():
            return 1, "", "sudo: a password is required"
        size, _, rest = text.partition(b"\n")
        assert zlib.decompress(rest[: int(size)])
        argv = [sys.executable, "-S", "-c", PROGRAM, shlex.split(arguments)[-1], f"{folder}/claim"]
        where = ROOT / "plugins/module_utils"
        done = subprocess.run(argv, check=False, input=rest[int(size) :], capture_output=True, cwd=where)
        return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path / "tmp"))
    for module in (claims, keeper):
        monkeypatch.setattr(module, "FREED", PATIENCE)
    names = ("node1", "node2", "node3")
    for name in names:
        (tmp_path / name).mkdir()
    connections: Any = [tmp_path / name for name in names]
    return [Node(name, connection, "python3") for name, connection in zip(names, connections, strict=True)]


@contextmanager
def run() -> Iterator[Claims]:
    """Simulate a run of ansible-playbook. A nested run must end first, because its keeper inherits the outer run's
    pipes."""
    begun = Claims()
    begun.begin()
    try:
        yield begun
    finally:
        begun.end("ok")


def folder_of(node: Node) -> Path:
    folder: Path = node.connection
    return folder


def claim_of(node: Node) -> dict[str, Any]:
    path = folder_of(node) / "claim/claim.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"freed": True}
    return found


def journal(node: Node) -> list[str]:
    return (folder_of(node) / "journal").read_text().splitlines()


def test_finished_run_releases_its_nodes(nodes: list[Node]) -> None:
    with run() as ours:
        assert ours.claim(nodes, "site.yml", take_over=False) == []
        assert [claim_of(node)["freed"] for node in nodes] == [False] * 3
        assert ours.missing(["node1", "node2", "node3", "node4"]) == ["node4"], "the next step needs no requests"
    assert [claim_of(node)["freed"] for node in nodes] == [True] * 3
    assert journal(nodes[2])[-1].endswith("frees the claim: site.yml: ok")


def test_killed_run_releases_its_nodes(nodes: list[Node]) -> None:
    pid = os.fork()
    if not pid:
        killed = Claims()
        killed.begin()
        killed.claim(nodes, "site.yml", take_over=False)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    until(lambda: [journal(node)[-1].endswith(f"frees the claim: site.yml: {GONE}") for node in nodes] == [True] * 3)
    assert [claim_of(node)["freed"] for node in nodes] == [True] * 3


def test_claims_are_replaced_immediately_if_a_run_and_its_keeper_were_killed(nodes: list[Node]) -> None:
    pid = os.fork()
    if not pid:
        keeper.begin = lambda *_: None
        killed = Claims()
        killed.begin()
        killed.claim(nodes, "site.yml", take_over=False)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert [claim_of(node)["freed"] for node in nodes] == [False] * 3
    with run() as ours:
        assert ours.claim(nodes, "site.yml", take_over=False) == []
        assert [claim_of(node)["token"] for node in nodes] == [ours.token] * 3


def test_second_run_is_rejected_without_claiming_any_node(nodes: list[Node]) -> None:
    with run() as first:
        first.claim(nodes[1:], "baseline.yml", take_over=False)
        with run() as second:
            said = r"^node2, node3: .* since .* \(baseline.yml\)\. Nothing was changed\. Wait"
            with pytest.raises(ClaimError, match=said):
                second.claim(nodes, "site.yml", take_over=False)
            assert [claim_of(node)["freed"] for node in nodes] == [True, False, False]
            assert journal(nodes[0])[-1].endswith("site.yml: refused")
            second.claim(nodes, "site.yml", take_over=True)
            assert claim_of(nodes[1])["doing"] == "site.yml"


def test_read_only_run_reports_who_claims_the_nodes(nodes: list[Node]) -> None:
    (folder_of(nodes[2]) / "away").touch()
    with run() as first:
        first.claim(nodes[:1], "baseline.yml", take_over=False)
        holders = claims.holders_in(keeper.ask_all(nodes, "look", {}))
        assert {name: holder["doing"] for name, holder in holders.items()} == {"node1": "baseline.yml"}
    assert claims.holders_in(keeper.ask_all(nodes, "look", {})) == {}
    assert claims.holders_in({"node1": {"held": False}, "node2": {"held": True}}) == {"node1": None}


def test_silent_nodes_are_reported_and_remain_unclaimed(nodes: list[Node]) -> None:
    (folder_of(nodes[0]) / "away").touch()
    (folder_of(nodes[1]) / "broken").touch()
    with run() as ours:
        said = "node2: this run could not claim the node: take failed with exit code 1: sudo: a password is required"
        assert ours.claim(nodes, "site.yml", take_over=False) == [said]
        assert ours.missing(["node1", "node2", "node3"]) == ["node1", "node2"]


def test_keeper_renews_claims_and_reports_lost_ones(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "RENEWED", 0.05)
    with run() as ours:
        ours.claim(nodes, "site.yml", take_over=False)
        before = claim_of(nodes[0])["until"]
        until(lambda: claim_of(nodes[0])["until"] > before)
        with run() as theirs:
            theirs.claim(nodes[:1], "baseline.yml", take_over=True)
        until(lambda: ours.missing(["node1", "node2", "node3"]) == ["node1"])
        with pytest.raises(ClaimError, match=r"^node1: .* \(baseline.yml\)\. It took over this run's claim"):
            ours.claim(nodes[:1], "site.yml", take_over=False)


def test_each_step_renews_expired_claims(nodes: list[Node]) -> None:
    with run() as ours:
        ours.claim(nodes, "site.yml", take_over=False)
        for state in ours.folder.glob("*.json"):
            state.write_text(json.dumps(dict.fromkeys(("node1", "node2", "node3"), time.monotonic() - LEASE)))
        assert ours.missing(["node1"]) == ["node1"]
        assert ours.claim(nodes, "site.yml", take_over=False) == []
        assert ours.missing(["node1"]) == []


def test_full_disk_does_not_prevent_releasing_nodes(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Claims()
    ours.begin()
    ours.claim(nodes, "site.yml", take_over=False)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(files, "replace", Mock(side_effect=full))
    ours.end("ok")
    assert [claim_of(node)["freed"] for node in nodes] == [True] * 3


class Hanging(Node):
    """A node with an open connection that never answers."""

    over = threading.Event()

    def python(self, _arguments: str, _text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        assert privileged
        self.over.wait(PATIENCE)
        raise NodeError("hanging connection", reachable=False)


def test_hanging_nodes_do_not_delay_claims_of_other_nodes(
    nodes: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("RENEWED", 0.05), ("OPENING", 0.05), ("FREED", 5.0)):
        monkeypatch.setattr(keeper, name, seconds)
    monkeypatch.setattr(keeper, "THREADS", 2)
    some = [*(Hanging(node.name, node.connection, "python3") for node in nodes[:2]), nodes[2]]
    request = {"token": "ours", "who": "ann@desk", "doing": "site.yml", "lease": LEASE, "take_over": False}
    keeper.ask(nodes[2], "take", request)
    before = claim_of(nodes[2])["until"]
    alive, ours = os.pipe()
    kept = keeper.Keeper(some, request, tmp_path / "state.json", time.monotonic())
    thread = threading.Thread(target=kept.run, args=(alive, lambda: "ok"))
    thread.start()
    try:
        until(lambda: claim_of(nodes[2])["until"] > before)
    finally:
        os.close(ours)
        thread.join(PATIENCE)
        Hanging.over.set()
        os.close(alive)
    assert claim_of(nodes[2])["freed"]


class Talkative(Node):
    """A node with a connection that displays its commands, as ssh does with -vvv."""

    home = os.getpid()

    def python(self, arguments: str, text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        if os.getpid() != self.home:
            Display().display("<node1> SSH: EXEC ssh")
        return super().python(arguments, text, privileged=privileged)


def test_keeper_prints_no_output_and_does_not_block(nodes: list[Node]) -> None:
    """Another thread holds the display lock when the keeper is forked, so the lock stays locked in the keeper."""
    talkative = [Talkative(node.name, node.connection, "python3") for node in nodes]
    locked, over = threading.Event(), threading.Event()

    def display() -> None:
        with Display()._lock:
            locked.set()
            over.wait(PATIENCE)

    thread = threading.Thread(target=display)
    thread.start()
    assert locked.wait(PATIENCE)
    try:
        with run() as ours:
            ours.claim(talkative, "site.yml", take_over=False)
        assert [claim_of(node)["freed"] for node in nodes] == [True] * 3
    finally:
        over.set()
        thread.join()
