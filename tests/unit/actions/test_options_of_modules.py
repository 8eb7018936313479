"""Actions that validate inventory options and pass them to modules on a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from acting import Modules, World
from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CERTIFICATE = ROOT / "tests/unit/packages/certificate.pem"
NOBODY = {"skipped": True, "skip_reason": "check mode, or no other node in the cluster"}
OTHERWISE = {"skipped": True, "skip_reason": "no files to share for this node"}


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Modules:
    return Modules(monkeypatch, changed=True)


def proxied(world: World) -> None:
    for name in ("node1", "node2", "node3"):
        world.registered(name, "cluster_https_proxy", "http://proxy:3128")


def test_hosts_file_gets_the_addresses_from_the_inventory(world: World, modules: Modules) -> None:
    world.vars["cluster_leaving"] = ["node3"]
    assert world.run("hosts_file", mode="manage")["changed"] is True
    addresses = {"node1": "10.0.0.1", "node2": "10.0.0.2"}
    assert modules.ran == [("hosts_file", {"nodes": addresses, "own": "node1", "mode": "manage"})]
    world.run("hosts_file", own="node2")  # options of the task take precedence
    assert modules.ran[1][1]["own"] == "node2"


def test_repository_keys_are_fetched_through_proxies(world: World, modules: Modules) -> None:
    world.run("apt_repositories", state="present")
    proxied(world)
    world.run("apt_repositories", state="present")
    (_, without), (_, with_one) = modules.ran
    assert "https_proxy" not in without["environment"]
    assert with_one["environment"]["https_proxy"] == "http://proxy:3128"


def test_package_sources_get_mirrors_proxies_and_certificates(world: World, modules: Modules) -> None:
    world.run("package_sources")
    proxied(world)
    world.registered("node1", "cluster_extra_ca", str(CERTIFICATE))
    world.run("package_sources")
    (_, plain), (_, whole) = modules.ran
    assert (plain["no_proxy"], plain["certificates"], plain["mirror"], plain["offline_dir"]) == ([], [], "upstream", "")
    assert {"node2", "10.0.0.2"} <= set(whole["no_proxy"])
    assert whole["https_proxy"] == "http://proxy:3128"
    assert [one.splitlines()[0] for one in whole["certificates"]] == ["-----BEGIN CERTIFICATE-----"]
    world.registered("node1", "cluster_http_proxy", "http://proxy:3128")
    world.registered("node1", "cluster_https_proxy", "")
    world.run("package_sources")
    assert "node2" in modules.ran[2][1]["no_proxy"]


def test_unusable_certificate_is_rejected(world: World, modules: Modules, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    found = []
    for name in ("ca.pem", "none.pem"):
        world.registered("node1", "cluster_extra_ca", str(tmp_path / name))
        found.append(world.fails("package_sources").replace(str(tmp_path), "/x"))
    assert found[0].startswith("node1: cluster_extra_ca /x/ca.pem ")
    assert found[1] == "node1: cluster_extra_ca /x/none.pem cannot be read on the controller."
    assert modules.ran == []


def test_login_settings_are_passed_only_with_a_registered_inspection(world: World, modules: Modules) -> None:
    world.registered("node1", "seen", {"ways": {"in": "a", "out": "b"}})
    world.registered("node2", "seen", {"ways": {"in": "c", "out": "d"}})
    world.run("ssh_mesh_proof", looks="seen")
    world.vars["inventory_hostname"] = "node3"
    world.run("ssh_mesh_proof", looks="seen")
    world.run("ssh_mesh_proof")
    ways = [options["ways"] for _, options in modules.ran]
    assert list(ways[0]) == ["node1", "node2"]
    assert ways[0]["node1"] != ways[0]["node2"]
    assert ways[1:] == [{}, {}]


def test_workbench_module_gets_the_environments(world: World, modules: Modules) -> None:
    world.registered("node1", "cluster_environments", {"old": {"prefix": "/opt/envs/old"}})
    world.run("workbench", state="present")
    ((_, options),) = modules.ran
    assert "/opt/envs/old" in str(options["environments"])


def deb(letter: str) -> dict[str, Any]:
    return {"name": f"{letter}_1_amd64.deb", "size": 10, "sha256": letter * 64}


def test_debs_are_downloaded_by_one_node_and_fetched_by_the_others(world: World, modules: Modules) -> None:
    modules.answer = {"debs": [], "invocation": {}}
    world.registered("node1", "debs", {"debs": [deb("a")]})
    world.registered("node2", "debs", {"debs": [deb("a"), deb("b")]})
    world.vars["ansible_play_batch"] = ["node1", "node2", "node3"]
    assert "invocation" not in world.run("shared_debs", step="look", packages=["x"])
    found = {}
    for node in ("node1", "node2", "node3"):
        world.vars["inventory_hostname"] = node
        for step in ("download", "get"):
            result = world.run("shared_debs", step=step, looks="debs", packages=["x"])
            found[node, step] = modules.ran.pop()[1] if "skipped" not in result else result
    first = {"packages": ["x"], "files": [deb("a")]}
    # node1 is the first with a.deb and downloads it. node3 needs nothing, but may have it from an earlier run.
    assert found["node1", "download"] == {**first, "step": "get", "peers": ["node3"]}
    assert found["node2", "download"] == {**first, "files": [deb("b")], "step": "download", "peers": ["node3"]}
    assert found["node2", "get"] == {**first, "step": "get", "peers": ["node1", "node3"]}
    assert [found["node1", "get"], found["node3", "download"], found["node3", "get"]] == [OTHERWISE] * 3
    assert modules.ran == [("shared_debs", {"packages": ["x"], "step": "look", "files": [], "peers": []})]
    assert world.run("shared_debs", check=True, step="look") == NOBODY
    world.vars["groups"] = {"gpu_nodes": ["node1"]}
    assert world.run("shared_debs", step="look") == NOBODY
