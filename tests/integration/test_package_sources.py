"""Mirrors, proxies, certificates and the offline folder with the real apt: configured, checked, and removed."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deb_repositories import Key
from http_proxy import Proxy
from package_list import file_name, write_index
from standin_wheels import make_wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

TASK = "Set up mirrors, proxies, certificates and the offline folder"
PROXY_FILE = "/etc/apt/apt.conf.d/51muster-proxy"
FOREIGN = "/etc/apt/sources.list.d/muster-test-foreign.list"
NOBODY = "http://127.0.0.1:9"  # no listener
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
OFFLINE = "/srv/muster-test-offline"
PYTORCH = "/opt/muster-test-mirrors"
# A small package of Debian and of Ubuntu that no node has.
SMALL = "hello"


@pytest.fixture(scope="module")
def provide(play: Play) -> Callable[..., tuple[Result, dict[str, Any]]]:
    """Return a function that runs the baseline on the node and returns the play's result and the module's result."""

    def run(*, check: bool = False, **requested: Any) -> tuple[Result, dict[str, Any]]:
        result = play("playbooks/baseline.yml", extravars=requested, limit="node1", check=check)
        return result, result.results(TASK).get("node1", {})

    return run


@pytest.fixture(scope="module")
def machine(node: Callable[[str], Machine], provide: Any) -> Iterator[Machine]:
    """Yield a node with the baseline and a broken third-party package source. Restore the node afterwards."""
    machine = node("node1")
    result, _ = provide()
    assert result.rc == 0, result.stdout
    machine.inside("sh", "-c", f"echo 'deb {NOBODY}/ubuntu noble main' > {FOREIGN}")
    before = settings(machine)
    yield machine
    machine.inside("rm", "-rf", OFFLINE)
    result, _ = provide()
    assert result.rc == 0, result.stdout
    after = settings(machine)
    machine.inside("rm", "-f", FOREIGN)
    assert after == before


@pytest.fixture(scope="module")
def stock(machine: Machine) -> dict[str, str]:
    """Return the URLs of the distribution's package sources (archive and security), and their file."""
    found = machine.inside("sh", "-c", "grep -lE '^(URIs:|deb ).*/(debian|ubuntu)' -r /etc/apt/sources.list*").stdout
    path = found.split()[0]
    text = machine.inside("cat", path).stdout
    uris = re.findall(r"https?://\S+", text)
    if any(uri.startswith("https") for uri in uris):
        pytest.skip("the node's archive uses https, which the stub mirror does not support")
    security = [uri for uri in uris if "security" in uri]
    return {"path": path, "archive": uris[0], "security": (security or uris)[0], "text": text}


@pytest.fixture(scope="module")
def mirror(machine: Machine, stock: dict[str, str]) -> Iterator[Proxy]:
    """Yield a mirror of the node's archive that also works as a proxy."""
    places = {"/archive/": stock["archive"].rstrip("/") + "/", "/security/": stock["security"].rstrip("/") + "/"}
    with Proxy(gateway(machine), places).running() as proxy:
        yield proxy


def gateway(machine: Machine) -> str:
    """Return the controller's address in the sandbox network."""
    return machine.address.rpartition(".")[0] + ".1"


def requested(mirror: Proxy) -> dict[str, Any]:
    urls = {"archive": f"{mirror.url}/archive/", "security": f"{mirror.url}/security/"}
    return {"cluster_mirror": "custom", "cluster_mirror_urls": urls}


def settings(machine: Machine) -> str:
    """Return digests of the settings of apt and TLS."""
    find = "find /etc/apt /usr/local/share/ca-certificates -type f -exec sha256sum {} + | sort -k 2"
    return machine.inside("sh", "-c", f"{find}; sha256sum {BUNDLE}; ls /etc/ssl/certs | sha256sum").stdout


def fetch(machine: Machine, package: str = SMALL) -> None:
    machine.inside("sh", "-c", f"cd /tmp && rm -f {package}_*.deb && apt-get download -qq {package}")


def test_mirror_changes_only_source_urls(machine: Machine, provide: Any, mirror: Proxy, stock: dict[str, str]) -> None:
    would, plan = provide(check=True, **requested(mirror))
    assert would.rc == 0
    assert plan["changed"]
    assert machine.inside("cat", stock["path"]).stdout == stock["text"]
    result, looked = provide(**requested(mirror))
    assert result.rc == 0, result.stdout
    assert looked["diff"] == plan["diff"]
    (note,) = [one for one in looked["notes"] if "NVIDIA's packages" in one]
    assert note.startswith("cluster_mirror custom: using upstream for ")
    assert "because the profile has no entry" in note
    text = machine.inside("cat", stock["path"]).stdout
    assert re.sub(r"https?://\S+", "", text) == re.sub(r"https?://\S+", "", stock["text"])
    assert set(re.findall(r"https?://\S+", text)) <= {f"{mirror.url}/archive/", f"{mirror.url}/security/"}
    assert machine.inside("cat", FOREIGN).stdout == f"deb {NOBODY}/ubuntu noble main\n"
    fetch(machine)
    assert mirror.count(".deb") > 0
    again, _ = provide(**requested(mirror))
    assert again.changed == []


def test_unreachable_mirror_is_refused_without_changes(machine: Machine, provide: Any) -> None:
    before = settings(machine)
    urls = {"archive": f"{NOBODY}/archive/", "security": f"{NOBODY}/security/"}
    result, _ = provide(cluster_mirror="custom", cluster_mirror_urls=urls)
    assert result.rc != 0
    assert "node1: apt could not read the lists of" in result.stdout
    assert settings(machine) == before


def test_mirror_with_a_wrong_signature_is_refused_without_changes(
    machine: Machine, provide: Any, stock: dict[str, str], tmp_path: Path
) -> None:
    before = settings(machine)
    make_flat_repository(tmp_path / "debs", {"name": "muster-test-standin", "version": "1.0-1"})
    Key(tmp_path / "key").make().sign([tmp_path / "debs"])
    for suite in re.findall(r"^Suites: (.*)$", stock["text"], re.MULTILINE):
        for name in suite.split():
            (tmp_path / "archive/dists").mkdir(parents=True, exist_ok=True)
            shutil.copytree(tmp_path / "debs", tmp_path / "archive/dists" / name, dirs_exist_ok=True)
    with Proxy(gateway(machine), {"/": tmp_path / "archive"}).running() as stranger:
        urls = {"archive": f"{stranger.url}/", "security": f"{stranger.url}/"}
        result, _ = provide(cluster_mirror="custom", cluster_mirror_urls=urls)
        assert stranger.count("InRelease") > 0
    assert result.rc != 0
    assert "so the previous settings were restored" in result.stdout
    assert "signed" in result.stdout
    assert settings(machine) == before


def test_removing_the_mirror_restores_the_sources_byte_for_byte(
    machine: Machine, provide: Any, mirror: Proxy, stock: dict[str, str]
) -> None:
    if mirror.url not in machine.inside("cat", stock["path"]).stdout:
        provide(**requested(mirror))
    # State after a killed run or a manual change: only one entry is original.
    machine.inside("sed", "-i", f"0,/{gateway(machine)}/s//192.0.2.1/", stock["path"])
    result, _ = provide()
    assert result.rc == 0, result.stdout
    assert result.changing_roles("node1") == {"package_sources"}
    assert machine.inside("cat", stock["path"]).stdout == stock["text"]
    assert machine.inside("ls", f"{stock['path']}.muster.save", check=False).returncode != 0
    last, looked = provide()
    assert last.changed == []
    assert looked == {}, "without settings, the role must run no task"


def test_verify_reports_differences_and_changes_nothing(machine: Machine, provide: Any) -> None:
    before = settings(machine)
    result, _ = provide(package_sources_mode="verify", cluster_http_proxy="http://127.0.0.1:3128")
    assert f"node1: {PROXY_FILE} (apt's proxy) is missing. To change it, run" in result.stdout
    assert settings(machine) == before


def test_apt_bypasses_the_proxy_only_for_nodes(machine: Machine, provide: Any, mirror: Proxy) -> None:
    result, _ = provide(cluster_http_proxy=mirror.url, cluster_no_proxy=["mirror.lab"])
    assert result.rc == 0, result.stdout
    mirror.forget()
    fetch(machine)
    assert [request.target for request in mirror.requests if request.target.startswith("http://")]
    assert mirror.count(".deb") > 0
    text = machine.inside("cat", PROXY_FILE).stdout
    for host in (machine.address, "node2", "mirror.lab"):
        assert f'Acquire::http::Proxy::{host} "DIRECT";' in text


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, machine: Machine) -> Path:
    """Create an untrusted certificate and its key for the controller's address. ca.pem does not contain the key."""
    folder = tmp_path_factory.mktemp("authority")
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "365", "-subj", "/CN=muster-test"]
    options += ["-addext", f"subjectAltName=IP:{gateway(machine)}", "-keyout", "key.pem", "-out", "ca.pem"]
    subprocess.run(["openssl", "req", *options], check=True, capture_output=True, cwd=folder)
    (folder / "both.pem").write_text((folder / "key.pem").read_text() + (folder / "ca.pem").read_text())
    return folder


@pytest.mark.slow
def test_certificate_is_trusted_until_it_is_removed(machine: Machine, provide: Any, authority: Path) -> None:
    provide()  # removes the proxy of the previous test
    before = settings(machine)
    certified = {"cluster_extra_ca": str(authority / "ca.pem")}
    with Proxy(gateway(machine), {"/": authority / "nothing"}, certificate=authority / "both.pem").running() as secure:

        def trusts() -> bool:
            asked = f"import urllib.request as r; r.urlopen('{secure.url}/')"
            said = machine.inside("python3", "-c", asked, check=False).stderr
            assert "HTTP Error 404" in said or "CERTIFICATE_VERIFY_FAILED" in said
            return "HTTP Error 404" in said

        assert not trusts()
        result, _ = provide(**certified)
        assert result.rc == 0, result.stdout
        assert trusts()
        # State after a killed run: the file exists, but the system does not trust it.
        line = authority.joinpath("ca.pem").read_text().splitlines()[1]
        machine.inside("sh", "-c", f"grep -v '{line}' {BUNDLE} > /tmp/b; cat /tmp/b > {BUNDLE}; rm /tmp/b")
        repaired, looked = provide(**certified)
        assert repaired.rc == 0, repaired.stdout
        assert "the system's certificates do not include" in looked["differences"][0]
        assert trusts()
        provide()
        assert not trusts()
    assert settings(machine) == before


def test_pip_reaches_the_mirror_through_the_proxy(machine: Machine, play: Play, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels/cpu"
    wheels.mkdir(parents=True)
    make_wheels(wheels)
    # A host name that only the proxy resolves.
    place = "http://wheels.test"
    with Proxy(gateway(machine), hosts={"wheels.test": tmp_path / "wheels"}).running() as proxy:
        result = play(
            "playbooks/pytorch.yml",
            extravars={
                "cluster_http_proxy": proxy.url,
                "cluster_mirror": "custom",
                "cluster_mirror_urls": {"pip": f"{place}/simple/", "torch_links": f"{place}/{{variant}}/"},
                "cluster_torch_version": "2.0.0",
                "pytorch_root": PYTORCH,
                "pytorch_packages": [],
                "pytorch_find_links": [],
                "pytorch_lock": str(tmp_path / "lock.txt"),
            },
            limit="node1",
        )
    machine.inside("rm", "-rf", PYTORCH)
    assert result.rc == 0, result.stdout
    assert proxy.count("torch-2.0.0%2Bcpu-py3-none-any.whl") or proxy.count("torch-2.0.0+cpu-py3-none-any.whl")
    assert f"{place}/simple/torch/" in {request.target for request in proxy.requests}


def test_repository_keys_are_fetched_through_the_proxy(machine: Machine, play: Play, tmp_path: Path) -> None:
    package = {"name": "muster-test-standin", "version": "1.0-1"}
    make_flat_repository(tmp_path / "repository", package)
    key = Key(tmp_path / "key").make()
    key.sign([tmp_path / "repository"])
    (tmp_path / "repository/key.asc").write_text(key.public.read_text())
    place = "http://repository.test"
    task = {
        "node": "node1",
        "repositories": [
            {"name": "test", "uri": place, "key_urls": [f"{place}/key.asc"], "fingerprints": [key.fingerprint]}
        ],
    }
    plays = [{"hosts": "node1", "gather_facts": False, "tasks": [{"name": "Add it", "apt_repositories": task}]}]
    (tmp_path / "add.yml").write_text(yaml.safe_dump(plays))
    with Proxy(gateway(machine), hosts={"repository.test": tmp_path / "repository"}).running() as proxy:
        # apt uses the role's file, which the baseline writes and test_apt_bypasses_the_proxy_only_for_nodes covers.
        machine.inside("sh", "-c", f"echo 'Acquire::http::Proxy \"{proxy.url}\";' > {PROXY_FILE}")
        result = play(str(tmp_path / "add.yml"), extravars={"cluster_http_proxy": proxy.url})
    machine.inside("sh", "-c", f"rm -f {PROXY_FILE} /etc/apt/*/muster-test.*")
    assert result.rc == 0, result.stdout
    assert f"{place}/key.asc" in {request.target for request in proxy.requests}


def test_private_key_instead_of_a_certificate_is_refused_before_contacting_nodes(provide: Any, authority: Path) -> None:
    result, _ = provide(cluster_extra_ca=str(authority / "key.pem"))
    assert "which contains a private key, which must not be copied to nodes" in result.stdout
    assert "no node was contacted" in result.stdout


def test_apt_uses_only_the_offline_folder(machine: Machine, provide: Any, mirror: Proxy, tmp_path: Path) -> None:
    package = {"name": "muster-test-standin", "version": "1.0-1"}
    make_flat_repository(tmp_path / "debs", package)
    machine.inside("mkdir", "-p", OFFLINE)
    subprocess.run(["podman", "cp", str(tmp_path / "debs"), f"{machine.container}:{OFFLINE}/debs"], check=True)
    machine.inside("chmod", "-R", "a+rX,g+w", OFFLINE)
    result, _ = provide(cluster_offline_dir=OFFLINE)
    assert "can be changed by users other than root, but its packages are installed as root" in result.stdout
    machine.inside("sh", "-c", f"chown -R root: {OFFLINE} && chmod -R go-w {OFFLINE}")
    mirror.forget()
    result, _ = provide(cluster_offline_dir=OFFLINE, cluster_http_proxy=mirror.url)
    assert result.rc == 0, result.stdout
    machine.inside("sh", "-c", "apt-get update -qq && apt-get install -qq --yes muster-test-standin")
    assert mirror.requests == []
    assert SMALL not in machine.inside("apt-get", "--print-uris", "download", SMALL, check=False).stdout
    machine.inside("apt-get", "purge", "-qq", "--yes", "muster-test-standin")


def make_flat_repository(folder: Path, package: dict[str, str]) -> None:
    tree = folder.parent / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    lines = [f"Package: {package['name']}", f"Version: {package['version']}", "Architecture: amd64"]
    lines += ["Maintainer: Muster's tests <nobody@example.invalid>", "Description: stub"]
    (tree / "DEBIAN/control").write_text("\n".join(lines) + "\n")
    folder.mkdir()
    deb = folder / file_name(package)
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, deb], check=True, capture_output=True)
    write_index(folder, "stand-in", [package], {deb.name: deb})
