"""Debs are downloaded once for all nodes, and verified against each node's own index."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deb_repositories import Key
from http_proxy import Proxy
from package_list import control, write_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

ARCHIVES = "/var/cache/apt/archives"
SOURCE = "/etc/apt/sources.list.d/muster-test-debs.sources"
KEYRING = "/etc/apt/keyrings/muster-test-debs.asc"
BIG, SMALL = (
    {"name": name, "version": version}
    for name, version in (("muster-test-big", "1:2.0-1"), ("muster-test-small", "1.0"))
)
MEGABYTE = 1 << 20
TASKS = ("Download each package on one node", "Fetch the packages from the nodes that downloaded them")
PLAY = [
    {
        "name": "Install packages",
        "hosts": "gpu_nodes",
        "gather_facts": False,
        "roles": ["cluster"],
        "tasks": [
            {
                "name": "Download the packages once for all nodes",
                "ansible.builtin.include_role": {"name": "gpu_stack", "tasks_from": "debs"},
                "vars": {"_gpu_stack_debs": "{{ wanted }}"},
                "when": "shares | bool",
            },
            {"name": "Install", "ansible.builtin.apt": {"name": "{{ wanted }}", "lock_timeout": 300}},
        ],
    }
]
PARTS = ("downloaded", "fetched", "tried")
WANTED = [f"{BIG['name']}=1:2.0-*", SMALL["name"]]


@pytest.fixture(scope="module")
def repository(networked: list[Machine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Yield a signed repository with 3 MB of packages, configured on every node."""
    folder = tmp_path_factory.mktemp("debs")
    key = Key(folder / "key").make()
    debs = {f"{package['name']}.deb": folder / f"{package['name']}.deb" for package in (BIG, SMALL)}
    for package, size in ((BIG, 2 * MEGABYTE), (SMALL, MEGABYTE)):
        build(folder, package, size)
    named = {name_of(package): debs[f"{package['name']}.deb"] for package in (BIG, SMALL)}
    for name, path in named.items():
        path.rename(folder / name)
    write_index(folder, "stand-in", [BIG, SMALL], {name: folder / name for name in named})
    key.sign([folder])
    with Proxy(networked[0].address.rpartition(".")[0] + ".1", {"/debs/": folder}).running() as server:
        source = f"Types: deb\nURIs: {server.url}/debs/\nSuites: /\nSigned-By: {KEYRING}\n"
        for machine in networked:
            put(machine, KEYRING, key.public.read_text())
            put(machine, SOURCE, source)
        yield server
    for machine in networked:
        machine.inside("rm", "-f", SOURCE, KEYRING)


@pytest.fixture
def fresh(networked: list[Machine], repository: Proxy) -> list[Machine]:
    """Return nodes with the repository's lists and without its packages."""
    for machine in networked:
        purge(machine)
        options = f"-o Dir::Etc::sourcelist={SOURCE} -o Dir::Etc::sourceparts=/dev/null -o APT::Get::List-Cleanup=0"
        machine.inside("sh", "-c", f"apt-get update -qq {options}")
    repository.forget()
    return networked


@pytest.fixture
def install(play: Play, tmp_path: Path) -> Callable[..., Result]:
    """Return a function that installs the packages as a role does."""
    playbook = tmp_path / "install.yml"
    playbook.write_text(yaml.safe_dump(PLAY))

    def run(*, shares: bool = True, limit: str | None = None, wanted: list[str] | str = WANTED) -> Result:
        result = play(str(playbook), extravars={"wanted": wanted, "shares": shares}, limit=limit)
        assert result.rc == 0, result.stdout
        return result

    return run


def name_of(package: dict[str, str]) -> str:
    return f"{package['name']}_{package['version'].rpartition(':')[2]}_amd64.deb"


def build(folder: Path, package: dict[str, str], size: int) -> None:
    tree = folder / f"tree-{package['name']}"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(control(package) + "\n")
    (tree / "opt/muster-test").mkdir(parents=True)
    (tree / "opt/muster-test" / package["name"]).write_bytes(os.urandom(size))
    deb = folder / f"{package['name']}.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, deb], check=True, capture_output=True)


def put(machine: Machine, path: str, text: str) -> None:
    argv = [
        "podman",
        "exec",
        "--interactive",
        machine.container,
        "sh",
        "-c",
        f"mkdir -p $(dirname {path}); cat > {path}",
    ]
    subprocess.run(argv, check=True, capture_output=True, input=text, text=True)


def purge(machine: Machine) -> None:
    machine.inside("sh", "-c", f"dpkg --purge {BIG['name']} {SMALL['name']} 2>&1; rm -f {ARCHIVES}/muster-test-*")


def has_both(machine: Machine) -> bool:
    shown = machine.inside("dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}", BIG["name"], SMALL["name"])
    return shown.stdout.split() == ["ii", "ii"]


def answers_of(result: Result) -> dict[str, Any]:
    """Return the packages that each node downloaded or fetched in the two tasks."""
    answers = [result.results(task) for task in TASKS]
    return {
        name: {part: [each for answer in answers for each in answer.get(name, {}).get(part, [])] for part in PARTS}
        for name in {*answers[0], *answers[1]}
    }


@pytest.mark.moment
def test_debs_are_downloaded_once(fresh: list[Machine], repository: Proxy, install: Callable[..., Result]) -> None:
    install(shares=False, limit="node1")
    one_node = repository.count(".deb")
    for machine in fresh:
        purge(machine)
    repository.forget()
    install(shares=False)
    assert repository.count(".deb") == len(fresh) * one_node, "without sharing, every node must download all debs"
    for machine in fresh:
        purge(machine)
    repository.forget()
    result = install()
    assert all(map(has_both, fresh))
    assert one_node <= repository.count(".deb") <= 1.1 * one_node
    assert len({request.client for request in repository.requests if request.target.endswith(".deb")}) == 1
    came = answers_of(result)
    assert sum(bool(answer["downloaded"]) for answer in came.values()) == 1
    assert sum(len(answer["fetched"]) == 2 for answer in came.values()) == len(fresh) - 1
    # Nothing is left to do on nodes with the packages.
    again = install()
    assert again.changed == []


def test_nodes_with_different_packages_download_only_the_missing_ones(
    fresh: list[Machine], repository: Proxy, install: Callable[..., Result]
) -> None:
    first, second, *others = fresh
    # A template, because a list would be the same on all nodes.
    install(wanted=f"{{{{ ['{BIG['name']}'] if inventory_hostname == '{first.name}' else {WANTED} }}}}")
    sent = {request.client: request.target.rpartition("/")[2] for request in repository.requests}
    assert sent == {first.address: name_of(BIG), second.address: name_of(SMALL)}
    assert all(has_both(machine) for machine in (second, *others))


@pytest.mark.slow
def test_node_added_later_gets_debs_from_another_node(
    fresh: list[Machine], repository: Proxy, install: Callable[..., Result]
) -> None:
    install()
    purge(fresh[-1])
    repository.forget()
    result = install(limit=fresh[-1].name)
    assert has_both(fresh[-1])
    assert repository.count(".deb") == 0
    assert answers_of(result)[fresh[-1].name]["tried"][0]["peer"] == fresh[0].name


@pytest.mark.moment
def test_deb_that_does_not_match_the_index_is_rejected(
    fresh: list[Machine], repository: Proxy, install: Callable[..., Result]
) -> None:
    first, last = fresh[0], fresh[-1]
    # Same size as the real deb: apt checks only the size in its archives.
    name = f"{SMALL['name']}_1.0_amd64.deb"
    first.inside("apt-get", "install", "--download-only", "-qq", "--yes", SMALL["name"])
    first.inside("sh", "-c", f"head -c $(stat -c %s {ARCHIVES}/{name}) /dev/zero > /tmp/z; mv /tmp/z {ARCHIVES}/{name}")
    repository.forget()
    result = install(limit=last.name)
    assert has_both(last)
    assert f"{name} does not match its sha256" in str(answers_of(result)[last.name]["tried"])
    assert {request.client for request in repository.requests} == {last.address}


@pytest.mark.slow
def test_isolated_nodes_download_alone(fresh: list[Machine], repository: Proxy, install: Callable[..., Result]) -> None:
    home = "~muster/.ssh/muster_known_hosts"
    for machine in fresh:
        machine.inside("sh", "-c", f"mv {home} {home}.away")
    try:
        result = install()
    finally:
        for machine in fresh:
            machine.inside("sh", "-c", f"mv {home}.away {home}")
    assert all(map(has_both, fresh))
    assert {request.client for request in repository.requests} == {machine.address for machine in fresh}
    assert "the SSH mesh is not set up" in str(answers_of(result))
