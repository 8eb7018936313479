"""Node names resolve on all nodes, and existing lines of /etc/hosts are kept."""

from __future__ import annotations

from ast import literal_eval
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from machines import Machine, Play, Result

NODES = ("node1", "node2", "node3")
# Lines of administrators with tabs, blanks and carriage returns, and no newline at the end.
FOREIGN = (
    "# storage\r\n"
    "10.9.9.20\tnas  nas.lan \r\n"
    "127.0.0.1 localhost registry.local # of the site\n"
    "\n"
    "::1 localhost ip6-localhost ip6-loopback\n"
    "ff02::1 ip6-allnodes"
)
CLOUD_TEMPLATE = "## template:jinja\n127.0.1.1 {{fqdn}} {{hostname}}\n127.0.0.1 localhost\n"


class Names:
    """Run only the role cluster_hosts of the network step."""

    def __init__(self, play: Play) -> None:
        self.play = play

    def __call__(self, *, check: bool = False, limit: str | None = None, **variables: Any) -> Result:
        others = {"ssh_mesh_mode": "off", "firewall_mode": "off"}
        return self.play("playbooks/network.yml", extravars={**others, **variables}, check=check, limit=limit)


@pytest.fixture(scope="module")
def names(play: Play) -> Names:
    return Names(play)


@pytest.fixture(scope="module")
def nodes(names: Names, node: Callable[[str], Machine]) -> list[Machine]:
    result = names()
    assert result.rc == 0, result.stdout
    return [node(name) for name in NODES]


@pytest.fixture
def first(nodes: list[Machine]) -> Iterator[Machine]:
    """Yield the first node. Restore its hosts file and its cloud-init folder afterwards."""
    machine = nodes[0]
    machine.inside("sh", "-ec", "cp -p /etc/hosts /etc/hosts.kept; ! test -e /etc/cloud")
    yield machine
    machine.inside("sh", "-ec", "rm -rf /etc/cloud; mv /etc/hosts.kept /etc/hosts")


def write(machine: Machine, path: str, text: str) -> None:
    machine.inside("python3", "-c", "import sys; open(sys.argv[1], 'w', newline='').write(sys.argv[2])", path, text)


def read(machine: Machine, path: str = "/etc/hosts") -> str:
    # Printed with ascii(), because the pipe would turn carriage returns into newlines.
    program = "import sys; print(ascii(open(sys.argv[1], newline='').read()))"
    return str(literal_eval(machine.inside("python3", "-c", program, path).stdout.strip()))


def addresses(machine: Machine, name: str) -> set[str]:
    return {line.split()[0] for line in machine.inside("getent", "ahosts", name, check=False).stdout.splitlines()}


def test_every_name_resolves_to_its_address_on_every_node(nodes: list[Machine]) -> None:
    for machine, named in product(nodes, repeat=2):
        assert addresses(machine, named.name) == {named.address}, f"{named.name} on {machine.name}"


def test_machine_resolves_its_own_hostname(nodes: list[Machine]) -> None:
    for machine in nodes:
        hostname = machine.inside("hostname").stdout.strip()
        assert addresses(machine, hostname) == {machine.address}


def test_second_run_changes_nothing(nodes: list[Machine], names: Names) -> None:
    assert names().changed == []


def test_foreign_lines_are_kept_byte_for_byte(first: Machine, names: Names) -> None:
    before = (
        FOREIGN.replace("registry.local", "node1 registry.local\tnode2") + "\n127.0.1.1\tnode1.lab.example.org node1"
    )
    write(first, "/etc/hosts", before)
    first.inside("chmod", "0640", "/etc/hosts")

    planned = names(check=True, limit="node1")
    assert planned.rc == 0, planned.stdout
    assert len(planned.changed) == 1
    assert "127.0.1.1" in planned.stdout
    assert read(first) == before

    assert names(limit="node1").rc == 0
    foreign, block = read(first).split("# BEGIN muster")
    assert foreign == FOREIGN + "\n"
    assert f"{first.address} node1.lab.example.org node1\n" in block
    assert addresses(first, "node1") == addresses(first, "node1.lab.example.org") == {first.address}
    assert first.inside("hostname", "-f").stdout.strip() == "node1.lab.example.org"
    assert first.inside("stat", "-c", "%a %U", "/etc/hosts").stdout.strip() == "640 root"
    assert names(limit="node1").changed == []


def test_wrong_address_of_a_node_is_reported_and_kept(first: Machine, names: Names) -> None:
    before = read(first) + "192.0.2.7 node2 # the old one\n"
    write(first, "/etc/hosts", before)
    result = names(limit="node1")
    assert result.rc != 0
    assert "maps node2 to 192.0.2.7, but its cluster_address is " in result.stdout
    assert read(first) == before


def test_symlinked_hosts_file_is_not_replaced(first: Machine, names: Names) -> None:
    first.inside("sh", "-ec", "cp /etc/hosts /etc/hosts.real; ln -sf hosts.real /etc/hosts")
    result = names(limit="node1")
    first.inside("sh", "-ec", "test -L /etc/hosts; rm /etc/hosts /etc/hosts.real")
    assert result.rc != 0
    assert "/etc/hosts is a link to hosts.real" in result.stdout


def test_verify_reports_differences_and_changes_nothing(first: Machine, names: Names) -> None:
    assert names(limit="node1", cluster_hosts_mode="verify").rc == 0
    write(first, "/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 node1\n")
    result = names(limit="node1", cluster_hosts_mode="verify")
    assert result.rc != 0
    assert "node1 resolves to 127.0.1.1" in result.stdout
    assert "node2 does not resolve" in result.stdout
    assert "cluster_hosts_mode=manage" in result.stdout
    assert read(first) == "127.0.0.1 localhost\n127.0.1.1 node1\n"


def test_mode_off_does_not_change_the_hosts_file(first: Machine, names: Names) -> None:
    write(first, "/etc/hosts", FOREIGN)
    assert names(limit="node1", cluster_hosts_mode="off").changed == []
    assert read(first) == FOREIGN


def test_node_removed_from_the_inventory_is_removed_from_the_hosts_file(first: Machine, names: Names) -> None:
    write(first, "/etc/hosts", read(first).replace("# END muster", "10.9.9.9 node9\n# END muster"))
    result = names(limit="node1")
    assert "node9" in " ".join(result.results("Write the node names to /etc/hosts")["node1"]["reasons"])
    assert addresses(first, "node9") == set()


def test_cloud_init_does_not_remove_the_names_from_the_hosts_file(first: Machine, names: Names) -> None:
    first.inside("mkdir", "-p", "/etc/cloud/templates", "/etc/cloud/cloud.cfg.d")
    write(first, "/etc/cloud/templates/hosts.debian.tmpl", CLOUD_TEMPLATE)
    assert names(limit="node1").rc == 0
    written = first.inside("cat", "/etc/cloud/cloud.cfg.d/99-muster-hosts.cfg", check=False).stdout
    assert "manage_etc_hosts: false" in written
    template = read(first, "/etc/cloud/templates/hosts.debian.tmpl")
    assert template.startswith("## template:jinja\n127.0.0.1 localhost\n# BEGIN muster")
    assert f"{first.address} node1\n" in template
    assert names(limit="node1").changed == []
