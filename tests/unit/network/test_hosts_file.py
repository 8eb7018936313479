"""Each file in cases/rewrite contains a hosts file before and after the rewrite.

By default, the cluster has node1 and node2, and the node is node1 with this hostname. BLOCK stands for the block of
these nodes, BEGIN and END for its first and last line. template: cloud-init's template before and after the rewrite.
answers: resolver results -> sentences.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cases import cases
from muster.network import hosts_file
from muster.network.hosts_file import HostsRequest

NODES = {"node1": "10.0.0.11", "node2": "10.0.0.12"}
BLOCK = f"{hosts_file.BEGIN}\n10.0.0.11 node1\n10.0.0.12 node2\n{hosts_file.END}\n"


def cluster_of(case: dict[str, Any]) -> HostsRequest:
    return HostsRequest(case.get("nodes", NODES), case.get("own", "node1"), case.get("hostname", "node1"))


def filled(text: str) -> str:
    for word, line in (("BLOCK\n", BLOCK), ("BEGIN\n", f"{hosts_file.BEGIN}\n"), ("END\n", f"{hosts_file.END}\n")):
        text = text.replace(word, line)
    return text


@cases(__file__, "rewrite")
def test_hosts_file_is_rewritten(case: dict[str, Any]) -> None:
    cluster, before = cluster_of(case), filled(case["before"])
    names = hosts_file.own_names(before, cluster)
    result = hosts_file.rewrite(before, cluster, names)
    assert result.text == (filled(case["after"]) if "after" in case else before)
    assert list(result.reasons) == case.get("reasons", [])
    assert list(result.problems) == case.get("problems", [])
    assert names == case.get("names", ["node1"])
    again = hosts_file.rewrite(result.text, cluster, hosts_file.own_names(result.text, cluster))
    assert again.text == result.text
    assert again.reasons == ()


@cases(__file__, "template")
def test_cloud_init_template_is_rewritten(case: dict[str, Any]) -> None:
    cluster = cluster_of(case)
    result = hosts_file.rewrite(filled(case["before"]), cluster, case.get("names", ["node1"]), template=True)
    assert result.text == filled(case["after"])
    again = hosts_file.rewrite(result.text, cluster, case.get("names", ["node1"]), template=True)
    assert again.text == result.text


@cases(__file__, "forgotten")
def test_block_is_removed(case: dict[str, Any]) -> None:
    after = hosts_file.forgotten(
        filled(case["before"]), case.get("hostname", "node1"), template=case.get("template", False)
    )
    assert after == filled(case.get("after", case["before"]))
    assert hosts_file.forgotten(after, case.get("hostname", "node1"), template=case.get("template", False)) == after


@cases(__file__, "answers")
def test_wrong_resolver_results_are_reported(case: dict[str, Any]) -> None:
    assert hosts_file.misled(cluster_of(case), case["names"], case["answers"]) == case["sentences"]


CLOUD_CFG = """# The modules of the first stage
cloud_init_modules:
 - migrator
 - [update_etc_hosts, once-per-instance]
 # - a comment
 - ssh

cloud_config_modules:
 - locale
"""


@pytest.mark.parametrize(
    ("instance", "settings", "modules"),
    [
        ("", [CLOUD_CFG], None),
        ("#cloud-config\nmanage_etc_hosts: true\n", [CLOUD_CFG], None),
        ("#cloud-config\nfqdn: x\nmanage_etc_hosts: localhost\n", [CLOUD_CFG], ["migrator", "ssh"]),
        ("manage_etc_hosts: 'localhost' # why not\n", [CLOUD_CFG, "datasource_list: [None]\n"], ["migrator", "ssh"]),
        (
            "manage_etc_hosts: localhost",
            [CLOUD_CFG, "cloud_init_modules:\n- update-etc-hosts\n- seed_random\n"],
            ["seed_random"],
        ),
        ("manage_etc_hosts: localhost", [], None),
    ],
)
def test_cloud_init_is_configured(instance: str, settings: list[str], modules: list[str] | None) -> None:
    written = yaml.safe_load(hosts_file.cloud_init_settings(instance, settings))
    assert written == {"manage_etc_hosts": False, **({"cloud_init_modules": modules} if modules else {})}


@pytest.mark.parametrize("end", ["", "\n", "\r\n", " \n", "\n\n\n", "\t# x"])
def test_every_byte_outside_the_block_is_kept(end: str) -> None:
    foreign = f"# M\udcfcller \t\n\n10.9.9.9\tprinter  printer.lan\t# upstairs\nnot a line\n\x0c\n::1 localhost{end}"
    cluster = HostsRequest(NODES, "node1", "node1")
    result = hosts_file.rewrite(foreign, cluster, ["node1"])
    assert result.text == foreign + ("" if end.endswith("\n") else "\n") + BLOCK


def test_node_removed_from_the_inventory_is_removed_from_the_file() -> None:
    before = hosts_file.rewrite(
        "127.0.0.1 localhost\n", HostsRequest({**NODES, "node3": "10.0.0.13"}, "node1", "node1"), ["node1"]
    )
    after = hosts_file.rewrite(before.text, HostsRequest(NODES, "node1", "node1"), ["node1"])
    assert after.text == "127.0.0.1 localhost\n" + BLOCK
    assert after.reasons == ("outdated lines in the block: 10.0.0.13 node3",)
