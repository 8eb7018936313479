"""Actions that write inventories, copy keys, and evaluate finished launches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleConnectionFailure

from acting import Modules
from launch_shapes import a_plan

if TYPE_CHECKING:
    from acting import World

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEp/Kq7JMActy0Ycv8l1qWR2g4GfKuM2DG18jTlwgPIa"
ACCEPTANCE = Path(__file__).parents[3] / "roles/ddp_smoke/files/acceptance"


def test_new_inventory_is_never_overwritten(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = world.action("import_inventory").work.__globals__
    sample = tmp_path / "inventory/lab/group_vars"
    sample.mkdir(parents=True)
    (sample / "gpu_nodes.yml").write_text("cluster_name: lab\n")
    monkeypatch.setitem(where, "project_root", lambda: tmp_path)
    options: dict[str, Any] = {"name": "rack2", "node": "a,b", "address": "10.0.1.1,10.0.1.2"}
    folder = tmp_path / "inventory/rack2"
    check = world.run("import_inventory", check=True, **options)
    assert (check["changed"], folder.exists()) == (True, False)
    found = world.run("import_inventory", **options)
    assert (found["changed"], found["diff"]) == (True, check["diff"])
    headers = [one["after_header"] for one in found["diff"]]
    assert {file: (folder / file).read_text() for file in headers} == {
        one["after_header"]: one["after"] for one in found["diff"]
    }
    assert headers == ["hosts.yml", "group_vars/gpu_nodes.yml"]
    assert (folder / "hosts.yml").read_text().splitlines()[1].startswith("# Imported from a list of names. ")
    assert (folder.stat().st_mode & 0o777, (folder / "hosts.yml").stat().st_mode & 0o777) == (0o755, 0o644)
    assert f"{folder} has 2 nodes; check its hosts.yml, and then pin the host keys" == found["outcome"]
    assert [line for line in found["msg"].splitlines() if "playbooks/trust.yml" in line and f"-i {folder}" in line]
    again = world.run("import_inventory", **options)
    assert (again["changed"], again["diff"]) == (False, [])
    nothing = "Nothing was written and no node was contacted."
    there = f"- {folder} already exists. Set another name with -e import_to."
    assert world.fails("import_inventory", **{**options, "node": "c,d"}).splitlines() == [nothing, there]
    wrong = world.fails("import_inventory", **{**options, "name": "../x"}).splitlines()
    assert wrong == [nothing, "- import_to is '../x', which is not a valid folder name. Use letters, digits, - and _."]


def test_shared_inventory_contains_no_secrets(world: World, tmp_path: Path, displayed: list[str]) -> None:
    known = tmp_path / "known_hosts"
    for number in (1, 2, 3):
        own = {"ansible_connection": "ssh", "ansible_host": f"10.0.0.{number}", "ansible_password": "hunter22"}
        for name, value in {**own, "ansible_ssh_common_args": f"-F /dev/null -o UserKnownHostsFile={known}"}.items():
            world.registered(f"node{number}", name, value)
    world.registered("node1", "ansible_python_interpreter", "/opt/python")
    known.write_text("".join(f"10.0.0.{number} {KEY} muster:node{number}\n" for number in (1, 2, 3)))
    options: dict[str, Any] = {"folder": str(tmp_path / "share"), "known_hosts": str(known)}
    check = world.run("share_inventory", check=True, **options)
    assert (check["changed"], (tmp_path / "share").exists(), len(displayed)) == (True, False, 3)
    found = world.run("share_inventory", **options)
    texts = {path.name: path.read_text() for path in (tmp_path / "share").iterdir()}
    assert {one["after_header"]: one["after"] for one in found["diff"]} == texts
    assert ("/opt/python" in texts["hosts.yml"], KEY in texts["known_hosts"]) == (True, True)
    assert "hunter22" not in str(texts)
    assert "/share contains 3 nodes and no secrets; its README.md explains how to launch" in found["outcome"]
    assert world.run("share_inventory", **options)["changed"] is False
    assert world.fails("share_inventory", **{**options, "folder": " "}) == "No folder was set: add -e share_to=FOLDER."
    known.unlink()
    assert world.fails("share_inventory", **options).startswith("Nothing was written. node1")


def test_public_key_is_copied_with_password_login(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = Modules(monkeypatch, changed=True)
    action = world.action("ssh_copy_key", user="ada")
    assert action.run(None, world.vars) == {"changed": False, "msg": "This node is not connected over SSH."}
    monkeypatch.setattr(type(action._connection), "transport", "ssh")
    monkeypatch.setattr(type(action._connection), "get_option", lambda *_: str(tmp_path / "id"))
    proven: list[str] = []
    monkeypatch.setattr(type(action), "_prove", lambda self: proven.append(self.node))
    none = f"node1: {tmp_path}/id.pub cannot be copied: No such file or directory."
    assert world.fails("ssh_copy_key").startswith(none[:-1])
    (tmp_path / "id.pub").write_text("no key")
    assert world.fails("ssh_copy_key").startswith(
        f"node1: {tmp_path}/id.pub cannot be copied: the file has no public key"
    )
    (tmp_path / "id.pub").write_text(f"{KEY} ada@desk\n")
    assert world.run("ssh_copy_key")["changed"] is world.run("ssh_copy_key", check=True)["changed"] is True
    assert (modules.ran[0], proven) == (("ssh_copy_key", {"key": f"{KEY} ada@desk"}), ["node1"])
    problem = AnsibleConnectionFailure("Permission denied (password).")
    monkeypatch.setattr(type(action), "_execute_module", lambda *_, **__: (_ for _ in ()).throw(problem))
    with pytest.raises(AnsibleConnectionFailure, match="node1: the node accepts neither your key nor the"):
        world.run("ssh_copy_key")


def launch(folder: Path, nodes: int, speed: float) -> dict[str, Any]:
    summary = {"event": "summary", "from_rank": 0, "samples_per_second": speed, "global_batch": 64}
    passed = {"id": "launch.exit", "status": "pass", "node": "node1", "summary": "x"}
    verdict = {"status": "healthy", "summary": "x", "findings": [passed], "coverage": {"ran": [], "skipped": []}}
    return {"plan": a_plan(nodes).as_json(), "events": [summary], "verdict": verdict, "artifacts": str(folder)}


def test_launches_of_same_training_are_compared(world: World, tmp_path: Path) -> None:
    assert world.run("launch_comparison", all_nodes={})["msg"] == "No program was launched."
    whole, one = (launch(tmp_path / "rack" / name, nodes, 100.0 * nodes) for name, nodes in (("2-a", 2), ("2-b", 1)))
    found = world.run("launch_comparison", all_nodes=whole, one_node=one)
    assert found["comparison"] == json.loads((tmp_path / "rack/2-a/comparison.json").read_text())
    why = "same as the launch on the first node"
    assert found["comparison"]["skipped"] == [{"name": "one process", "why": why}]
    assert (found["verdict"]["summary"], "failed" in found) == (
        "2 processes on node1, node2 trained 2.00 times as fast as 1 process (100 % of the ideal)",
        False,
    )
    alone = world.run("launch_comparison", all_nodes=one)["comparison"]["skipped"]
    assert {entry["why"] for entry in alone} == {"same as the launch on all nodes"}
    wrong = world.run("launch_comparison", all_nodes={**whole, "events": []}, one_node=one)
    assert (wrong["failed"], wrong["msg"].splitlines()[-1][:44]) == (
        True,
        "The launches finished, but cannot be compare",
    )
