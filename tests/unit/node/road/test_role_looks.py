"""Reasons to run a role on a node: one sentence for each difference found by the role's probe."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from muster_node.road import role_looks as looks

role_looks: Any = looks
OPTIONS: dict[str, Any] = {"node": "node1", "user": "trainer", "root": "/x", "environment": {}, "mode": "manage"}


def probe(module: str, **options: Any) -> Any:
    """Return the result of a probe."""
    asked = {"it": {"module": module, "options": {**OPTIONS, **options}}}
    return role_looks.look({"looks": asked, "remembers": True, "full": False})["seen"]["it"]


def stub_function(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, **found: Any) -> None:
    """Replace a function with a stub that returns `found` and requires check mode."""

    def stub(*_: Any, check: bool = True) -> dict[str, Any]:
        assert check
        return found

    monkeypatch.setattr(owner, name, stub)


@pytest.mark.parametrize(
    ("found", "at_work", "why"),
    [
        ({}, "", []),
        ({"needed": True}, "", ["unspecified differences"]),
        ({"needed": True, "differences": ["no chrony"]}, "", ["no chrony"]),
        ({"traces": ["/old"]}, "cloud-init", ["/old exists", "cloud-init is running"]),
    ],
)
def test_baseline_reasons(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], at_work: str, why: list[str]) -> None:
    monkeypatch.setattr(role_looks, "cloud_init_at_work", lambda: at_work)
    stub_function(monkeypatch, role_looks, "compare", **{"needed": False, "differences": [], "traces": [], **found})
    assert probe("node_plan") == {"why": why, "warnings": []}


@pytest.mark.parametrize(("module", "owner"), [("launch_users", "launch_users"), ("workbench", "workbench")])
def test_launch_user_or_workbench_change_is_a_reason(monkeypatch: pytest.MonkeyPatch, module: str, owner: str) -> None:
    room = getattr(role_looks, owner)
    stub_function(monkeypatch, room, "provide", differences=["one"], changed=True, notes=["a", "b"])
    assert probe(module) == {"why": ["one"], "warnings": ["node1: a.", "node1: b."]}
    stub_function(monkeypatch, room, "provide", differences=[], changed=False, notes=[])
    assert probe(module) == {"why": [], "warnings": []}


def test_change_without_description_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    stub_function(monkeypatch, role_looks.launch_users, "provide", differences=[], changed=True, notes=[])
    assert probe("launch_users")["why"] == ["unspecified differences"]


def test_failed_probe_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_looks.shared_data, "provide", lambda *_, **__: 1 / 0)
    assert probe("shared_data") == {"why": ["ZeroDivisionError: division by zero"], "warnings": []}
    assert probe("nothing")["why"] == ["KeyError: 'nothing'"]
    stub_function(monkeypatch, role_looks.shared_data, "provide", differences=["/data is not mounted"])
    assert probe("shared_data")["why"] == ["/data is not mounted"]


def test_host_name_change_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_looks.socket, "gethostname", lambda: "vm7")
    given: list[Any] = []
    monkeypatch.setattr(role_looks.names, "differences", lambda cluster: [cluster.own, *cluster.addresses])
    monkeypatch.setattr(role_looks.names, "provide", lambda *each, check: given.append((each[1], check)))
    options = {"nodes": {"node2": "10.0.0.2"}, "own": "node1"}
    assert probe("hosts_file", **options)["why"] == ["node1", "node2"]
    assert probe("hosts_file", **options, mode="verify")["why"] == []
    assert given == [("verify", True)]


def test_read_only_probes_return_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_looks, "look_at", lambda options: {"of": options["only"]})
    monkeypatch.setattr(role_looks, "facts", lambda looks: looks)
    assert probe("node_inspect", only=["disk"]) == {"why": [], "warnings": [], "facts": {"of": ["disk"]}}
    monkeypatch.setattr(role_looks.firewall, "look", lambda places: {"rules": places})
    assert probe("firewall", places=["a"]) == {"why": [], "warnings": [], "look": {"rules": ["a"]}}
    monkeypatch.setattr(role_looks.drift_facts, "facts", lambda _options: {"now": 1})
    for written, why in ((None, []), ({"now": 1}, ["the record of the installation is outdated"])):
        monkeypatch.setattr(role_looks.record, "to_write", lambda _facts, _known, written=written: written)
        assert probe("installed_record")["why"] == why


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({"changed": False, "plan": {"reasons": ["one"]}}, []),
        ({"changed": True, "plan": {"reasons": ["one"]}}, ["one"]),
        ({"changed": True, "plan": {"reasons": []}}, ["unspecified differences"]),
    ],
)
def test_environment_change_is_a_reason(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], why: list[str]) -> None:
    made: list[Any] = []

    def root(path: str, who: str, *, writes: bool, proves: bool) -> Any:
        made.append((path, who, writes, proves))
        return SimpleNamespace(wrong="torn")

    monkeypatch.setattr(role_looks, "RememberingRoot", root)
    monkeypatch.setattr(role_looks.LookedAs, "choose", lambda user: f"as {user}")
    monkeypatch.setattr(
        role_looks, "EnvironmentManager", lambda *_, check: SimpleNamespace(look=lambda: {**found, "notes": [check]})
    )
    monkeypatch.setattr(role_looks, "verify", lambda *_: None)
    assert probe("pytorch_env") == {"why": why, "warnings": [True], "wrong": "torn"}
    assert probe("pytorch_env", mode="verify") == {"why": [], "warnings": []}
    assert made == [("/x", "as trainer", True, False), ("/x", "as trainer", False, False)]


@pytest.mark.parametrize(
    ("found", "why", "tried"),
    [
        ({}, [], ["node2"]),
        ({"sshd": "reload"}, ["sshd is not configured as required: reload"], []),
        ({"changed": True, "sshd": "reload"}, ["sshd is not configured as required: reload", "the key of"], None),
    ],
)
def test_ssh_mesh_reasons(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], why: list[str], tried: Any) -> None:
    mine = {"key": "k", "host_keys": ["h"], "port": 22, "hostname": "vm7"}
    whole = {"sshd": "", "changed": False, "overridden": ["x"], **mine, **found}
    stub_function(monkeypatch, role_looks.mesh_key, "provide", **whole)
    monkeypatch.setattr(role_looks.mesh_key, "warnings", lambda _options, overridden: overridden)
    monkeypatch.setattr(role_looks.pwd, "getpwnam", lambda user: f"{user}'s")
    monkeypatch.setattr(role_looks.mesh_files, "acting_as", nullcontext)
    monkeypatch.setattr(role_looks.mesh_files, "SshFolder", lambda entry: SimpleNamespace(texts=lambda: {"of": entry}))
    monkeypatch.setattr(role_looks.mesh_ways, "ways", lambda *given: list(given))
    monkeypatch.setattr(role_looks.mesh_logins, "remembered", lambda path: {"in": path})

    def log_in_on(_entry: str, peers: list[Any]) -> list[Any]:
        return [SimpleNamespace(peer=peer, code=255, said="x" * 301 + "y", hostname="h") for peer in peers]

    monkeypatch.setattr(role_looks.mesh_logins, "log_in_on", log_in_on)
    answered = probe("ssh_mesh_key", address="10.0.0.1", identity="/id", sample=["node2"], memory="/m")
    if tried is None:
        assert answered == {"why": [why[0], "the SSH key of trainer is missing or incorrect"], "warnings": []}
        return
    assert answered == {
        "why": why,
        "warnings": ["x"],
        "look": mine,
        "texts": {"of": "trainer's"},
        "ways": ["trainer", "10.0.0.1", "/id", {"of": "trainer's"}],
        "proved": {"in": "/m"},
        "tried": {name: {"code": 255, "said": "x" * 299 + "y", "hostname": "h"} for name in tried},
    }
