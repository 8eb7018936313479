"""Package sources of a node from the inventory, and the arguments of the module package_sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleError

from acting import World
from muster_controller.packages import sources

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = """
gpu_nodes:
  vars: {ansible_connection: local}
  hosts:
    plain: {cluster_address: 10.0.0.1}
    mirrored: {cluster_address: 10.0.0.2, cluster_mirror: tsinghua}
    proxied: {cluster_address: 10.0.0.3, cluster_https_proxy: "http://proxy:3128", cluster_no_proxy: [intranet]}
    own:
      cluster_address: 10.0.0.4
      cluster_mirror: custom
      cluster_mirror_urls: {pip: "https://pip.example/simple", torch: "https://torch.example/whl/{variant}"}
    wrong: {cluster_address: 10.0.0.5, cluster_mirror: mars}
    untyped: {cluster_address: 10.0.0.6, cluster_mirror: [x]}
"""
ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
NAMES = ["plain", "mirrored", "proxied", "own", "wrong", "untyped"]
NO_PROXY = ["localhost", "127.0.0.1", "::1", *NAMES, *ADDRESSES]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "rack", HOSTS)


def here(world: World) -> tuple[dict[str, Any], Any, Any]:
    return world.vars, world.templar, world.loader


def test_upstream_source_configures_no_pip_mirror(world: World) -> None:
    assert sources.pip_mirror(*here(world), "plain") == {}
    assert sources.node_environment(*here(world), "plain") == {}


def test_mirror_configures_pip_and_optionally_the_pytorch_index(world: World) -> None:
    mirrored = sources.pip_mirror(*here(world), "mirrored")
    assert mirrored["pip"] == "https://mirrors.tuna.tsinghua.edu.cn/pypi/web/simple"
    assert "only" not in mirrored
    assert sources.pip_mirror(*here(world), "own") == {
        "pip": "https://pip.example/simple",
        "torch": "https://torch.example/whl/{variant}",
        "only": "custom",
    }


def test_invalid_mirror_is_reported_for_its_node(world: World) -> None:
    with pytest.raises(AnsibleError, match=r"^wrong: .*mars"):
        sources.pip_mirror(*here(world), "wrong")
    with pytest.raises(AnsibleError, match=r"^untyped: cluster_mirror is "):
        sources.node_request(*here(world), "untyped")


def test_proxy_is_bypassed_for_cluster_nodes(world: World) -> None:
    assert sources.not_proxied(*here(world), "plain") == NO_PROXY
    assert sources.not_proxied(*here(world), "proxied") == [*NO_PROXY, "intranet"]
    found = sources.node_environment(*here(world), "proxied")
    assert (found["http_proxy"], found["https_proxy"]) == ("", "http://proxy:3128")
    assert set(found["no_proxy"].split(",")) >= {*NO_PROXY, "intranet"}


@pytest.fixture
def given(world: World, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that returns the module arguments for a node without running the module."""

    def of(node: str, **options: Any) -> dict[str, Any]:
        action = world.action("package_sources", **options)
        found: dict[str, Any] = {}

        def execute(module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
            assert (module_name, task_vars["inventory_hostname"]) == ("package_sources", node)
            found.update(module_args)
            return {"changed": True}

        monkeypatch.setattr(action, "_execute_module", execute)
        assert action.run(None, {**world.vars, "inventory_hostname": node})["changed"] is True
        return found

    return of


def test_module_arguments_come_from_the_inventory(given: Any) -> None:
    found = given("proxied", mode="verify", mirror="upstream")
    assert "upstream" in found.pop("table")["profiles"]
    assert found == {
        "mode": "verify",
        "mirror": "upstream",
        "mirror_urls": {},
        "http_proxy": "",
        "https_proxy": "http://proxy:3128",
        "no_proxy": [*NO_PROXY, "intranet"],
        "certificates": [],
        "offline_dir": "",
    }
    assert given("plain")["no_proxy"] == []
    assert given("mirrored")["mirror"] == "tsinghua"
    assert given("mirrored", mirror="upstream")["mirror"] == "upstream", "arguments of the task override the inventory"


def test_unusable_certificate_is_reported(world: World, given: Any, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    world.manager.set_nonpersistent_facts("plain", {"cluster_extra_ca": str(path)})
    with pytest.raises(AnsibleActionFail) as failed:
        given("plain")
    assert str(failed.value) == f"plain: cluster_extra_ca {path} cannot be read on the controller."
    path.write_text("no certificate")
    with pytest.raises(AnsibleActionFail, match=rf"^plain: cluster_extra_ca {path} "):
        given("plain")
