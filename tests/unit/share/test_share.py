"""The part of an inventory that is shared with users, and the variables that are not shared."""

from __future__ import annotations

from typing import Any

from muster import share
from muster.network.known_hosts import HostKey
from muster.share import Hop, SharedNode

KEY = HostKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIEp/Kq7JMActy0Ycv8l1qWR2g4GfKuM2DG18jTlwgPIa")
COMMON: dict[str, Any] = {"cluster_name": "lab", "cluster_user": "muster", "cluster_gpus": 8}


def node(name: str, **more: Any) -> SharedNode:
    values = {**COMMON, "cluster_address": f"10.1.0.{name[-1]}", **more.pop("values", {})}
    return SharedNode(**{"name": name, "host": f"10.0.0.{name[-1]}", "values": values, "keys": (KEY,), **more})


def test_common_variables_are_written_only_once() -> None:
    written = share.inventory([node("node1"), node("node2", values={"cluster_gpus": 4})])["gpu_nodes"]
    assert written["vars"] == {
        "cluster_name": "lab",
        "cluster_user": "muster",
        "ansible_ssh_extra_args": share.TRUSTED,
    }
    assert written["hosts"] == {
        "node1": {"ansible_host": "10.0.0.1", "cluster_address": "10.1.0.1", "cluster_gpus": 8},
        "node2": {"ansible_host": "10.0.0.2", "cluster_address": "10.1.0.2", "cluster_gpus": 4},
    }


def test_single_node_keeps_its_address() -> None:
    written = share.inventory([node("node1")])["gpu_nodes"]
    assert written["hosts"] == {"node1": {"ansible_host": "10.0.0.1"}}
    assert written["vars"]["cluster_address"] == "10.1.0.1"


def test_other_variables_are_not_shared() -> None:
    secret = {
        "ansible_user": "root",
        "ansible_become_password": "hunter22",
        "ansible_ssh_private_key_file": "/home/a/.ssh/id",
        "cluster_artifacts_dir": "/home/a/artifacts",
        "cluster_https_proxy": "http://proxy",
        "site_token": "hunter22",
    }
    nodes = [node("node1", values=secret), node("node2", values=secret)]
    text = f"{share.inventory(nodes)}{share.known_hosts_text(nodes)}{share.readme(nodes, 'lab')}"
    assert not [word for word in (*secret, *map(str, secret.values())) if word in text and word != "root"]


def test_only_names_of_environments_are_shared() -> None:
    old = {"prefix": "/opt/miniconda3/envs/train"}
    own = {
        "cluster_environments": {"vision": {"requirements": "/home/a/vision.txt"}, "old": old},
        "cluster_environments_root": "/opt/muster/pytorch/named",
    }
    variables = share.inventory([node("node1", values=own), node("node2", values=own)])["gpu_nodes"]["vars"]
    assert variables["cluster_environments"] == {"vision": {"provided": True}, "old": old}
    assert variables["cluster_environments_root"] == "/opt/muster/pytorch/named"


def test_connection_is_shared_without_the_user_name_of_the_administrator() -> None:
    hops = (Hop("bastion.lab", 22, (KEY,)), Hop("fd00::1", 2222))
    nodes = [node("node1", hops=hops, port=2200), node("node2", hops=hops, port=2200)]
    variables = share.inventory(nodes)["gpu_nodes"]["vars"]
    assert variables["ansible_ssh_common_args"] == "-J bastion.lab,[fd00::1]:2222"
    assert variables["ansible_port"] == 2200
    assert share.known_hosts_text(nodes).splitlines()[1] == f"[10.0.0.1]:2200 {KEY.type} {KEY.text} muster:node1"
    assert f"- bastion.lab: {KEY.fingerprint}\n- [fd00::1]:2222: ask\n" in share.readme(nodes, "lab")


def test_node_without_pinned_keys_is_rejected() -> None:
    nodes = [node("node1"), node("node2", keys=()), SharedNode("node3", error="it is reached by the connection local")]
    unpinned = "node2: the host key is not pinned, so users could not verify the node."
    assert share.problems(nodes) == [
        f"{unpinned} Run ansible-playbook playbooks/trust.yml first.",
        "node3: it is reached by the connection local.",
    ]


def test_proxy_command_is_omitted_with_a_warning() -> None:
    nodes = [node("node1", command="corkscrew -a ~/.secret %h %p")]
    assert "corkscrew" not in str(share.inventory(nodes))
    assert share.warnings(nodes)[0].startswith("node1: the ProxyCommand might use files")
    assert share.warnings([node("node1")]) == []


def test_quarantine_is_shared_with_its_reason() -> None:
    left_out = {"cluster_quarantined": {"reason": "a fan", "since": "2026-11-24", "by": "anna"}}
    written = share.inventory([node("node1"), node("node2", values=left_out)])["gpu_nodes"]
    assert "cluster_quarantined" not in written["hosts"]["node1"]
    assert written["hosts"]["node2"]["cluster_quarantined"] == left_out["cluster_quarantined"]


def test_readme_describes_notebooks() -> None:
    node = share.SharedNode(
        "node1", "10.0.0.1", values={"cluster_name": "lab", "workbench_nodes": ["node1"]}, keys=(KEY,)
    )
    assert (
        "    .venv/bin/ansible-playbook playbooks/notebook.yml -i ../lab -e notebook_state=started\n"
        in share.readme([node], "lab")
    )
