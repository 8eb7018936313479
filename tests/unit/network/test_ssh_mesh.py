"""Each file in cases/ contains one decision about logins between nodes.

files: members and the user's files -> the wanted files. logins: result of ssh -> sentence. account: an account and
sshd's settings -> reasons why it cannot log in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cases import cases
from muster.network import ssh_mesh, sshd
from muster.network.ssh_mesh import LoginAttempt, MeshMember

IDENTITY = "/var/lib/muster/ssh/muster/id_ed25519"
DROPIN = (Path(__file__).parents[3] / "roles/ssh_mesh/files/etc/ssh/sshd_config.d/90-muster.conf").read_text()


def members(given: dict[str, dict[str, Any]]) -> list[MeshMember]:
    """Return members; node1 has the address 10.0.0.1, the key K1 and the host key H1."""
    found = []
    for name, own in given.items():
        number = name[-1]
        good = {
            "address": f"10.0.0.{number}",
            "sources": [f"10.0.0.{number}"],
            "key": f"ssh-ed25519 K{number}",
            "host_keys": [f"ssh-ed25519 H{number}"],
            "hostname": name,
        }
        found.append(ssh_mesh.member_of({"name": name, **good, **(own or {})}))
    return found


def peers(count: int) -> list[str]:
    return [f"node{number}" for number in range(count)]


@cases(__file__, "files")
def test_ssh_files_match_the_test_case(case: dict[str, Any]) -> None:
    before = {"authorized_keys": "", "config": "", "known_hosts": "", **case.get("before", {})}
    if "refusal" in case:
        with pytest.raises(ssh_mesh.BlockError) as refusal:
            ssh_mesh.wanted("rack", "muster", members(case["members"]), IDENTITY, **before)
        assert str(refusal.value) == case["refusal"]
        return
    wanted = ssh_mesh.wanted("rack", "muster", members(case["members"]), IDENTITY, **before)
    for name, text in case["after"].items():
        assert getattr(wanted, name) == text
    assert list(wanted.strangers) == case.get("strangers", [])
    again = ssh_mesh.wanted(
        "rack", "muster", members(case["members"]), IDENTITY, wanted.authorized_keys, wanted.config, wanted.known_hosts
    )
    assert again == wanted
    differences = [
        sentence
        for name in ("authorized_keys", "known_hosts")
        for sentence in ssh_mesh.differences(name, before[name], getattr(wanted, name))
    ]
    assert differences == case.get("differences", [])


@cases(__file__, "files")
def test_removal_leaves_no_trace_of_muster_in_ssh_files(case: dict[str, Any]) -> None:
    before = {"authorized_keys": "", "config": "", "known_hosts": "", **case.get("before", {})}
    if "refusal" in case:
        with pytest.raises(ssh_mesh.BlockError):
            ssh_mesh.forgotten(before["authorized_keys"], before["config"])
        return
    wanted = ssh_mesh.wanted("rack", "muster", members(case["members"]), IDENTITY, **before)
    after = ssh_mesh.forgotten(wanted.authorized_keys, wanted.config)
    assert after == ssh_mesh.forgotten(after.authorized_keys, after.config)
    for name in ("authorized_keys", "config"):
        assert "muster" not in getattr(after, name)
        foreign = ssh_mesh.without_block(name, before[name])
        assert getattr(after, name).rstrip("\r\n") == foreign.rstrip("\r\n")


@cases(__file__, "logins")
def test_failed_login_is_explained(case: dict[str, Any]) -> None:
    (peer,) = members({"node2": {}})
    attempt = LoginAttempt(peer, case["code"], case["said"], case.get("hostname", ""))
    assert ssh_mesh.refusals("muster", [attempt]) == [f"node2: {why}" for why in case["refusals"]]
    assert ssh_mesh.passing(attempt) == case.get("tried_again", False)


@cases(__file__, "account")
def test_account_problems_are_reported(case: dict[str, Any]) -> None:
    account: dict[str, Any] = {"name": "muster", "home": "/home/muster", "shell": "/bin/bash", "groups": ["muster"]}
    account.update(case.get("account", {}))
    account["groups"] = tuple(account["groups"])
    assert sshd.refusals(sshd.SshdAccount(**account), sshd.parse(case["sshd"])) == case["refusals"]


@pytest.mark.parametrize("count", [1, 2, 5, 16, 17, 18, 40, 200])
def test_every_node_is_tested_by_another_node(count: int) -> None:
    names = peers(count)
    chosen = {name: ssh_mesh.sample(names, name) for name in names}
    for name, others in chosen.items():
        assert len(others) == len(set(others)) == min(count - 1, ssh_mesh.MAX_PEERS)
        assert name not in others
    reached = {other for others in chosen.values() for other in others}
    assert reached == (set(names) if count > 1 else set())


def test_each_node_starts_with_a_different_peer() -> None:
    names = peers(16)
    assert len({ssh_mesh.sample(names, name)[0] for name in names}) == 16


def test_shared_private_key_is_reported_for_both_nodes() -> None:
    found = ssh_mesh.clashes(members({"node1": {}, "node2": {"key": "ssh-ed25519 K1"}, "node3": {}}))
    assert set(found) == {"node1", "node2"}
    assert found["node2"].startswith("has the same private key as node1 (")
    assert "-e ssh_mesh_rotate=true" in found["node2"]


def test_missing_keys_are_not_reported_as_shared() -> None:
    assert ssh_mesh.clashes(members({"node1": {"key": ""}, "node2": {"key": ""}})) == {}


def test_host_keys_of_copied_disks_are_reported_once() -> None:
    both = ["ssh-ed25519 H1", "ssh-rsa R1"]
    found = ssh_mesh.same_host_keys(members({"node1": {"host_keys": both}, "node2": {"host_keys": both}, "node3": {}}))
    assert len(found) == 1
    assert found[0].startswith("node1, node2 have the same SSH host key")
    assert "trust_replace=node2" in found[0]


@pytest.mark.parametrize(
    ("listens", "port"),
    [
        ("listenaddress 0.0.0.0:22", 22),
        ("port 22\nlistenaddress 192.0.2.7:22\nlistenaddress 10.0.0.1:2222", 2222),
        ("port 2200\nlistenaddress [::]:2200\nlistenaddress 0.0.0.0:2200", 2200),
        ("port 2022", 2022),
        ("", 22),
    ],
)
def test_ssh_port_is_taken_from_the_listener_at_the_training_address(listens: str, port: int) -> None:
    assert sshd.port_at(sshd.parse(listens), "10.0.0.1") == port


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, ""),
        (0, "/etc/ssh/sshd_config line 7: Deprecated option UsePrivilegeSeparation"),
        (255, "Missing privilege separation directory: /run/sshd\r\n"),
    ],
)
def test_valid_sshd_settings_are_accepted(code: int, said: str) -> None:
    assert sshd.broken(code, said) == ""


def test_invalid_sshd_settings_are_reported() -> None:
    said = "10-site.conf: line 1: Bad configuration option: Nonsense\r\n10-site.conf: terminating, 1 bad option\r\n"
    shown = sshd.broken(255, said)
    assert "10-site.conf: line 1: Bad configuration option: Nonsense 10-site.conf: terminating, 1 bad option." in shown
    assert shown.endswith("sudo sshd -t")


def kexinit(kex: str, keys: str, macs: str) -> bytes:
    lists = [kex, keys, "aes256-ctr", "aes256-ctr", macs, macs, "none", "none", "", ""]
    return b"\x14" + bytes(16) + b"".join(len(text).to_bytes(4, "big") + text.encode() for text in lists) + bytes(5)


GOOD = kexinit("curve25519-sha256", "ssh-ed25519,rsa-sha2-512", "hmac-sha2-256-etm@openssh.com")
BAD = kexinit(
    "curve25519-sha256,ecdh-sha2-nistp256", "ssh-ed25519,ecdsa-sha2-nistp256", "hmac-sha1,umac-64@openssh.com"
)
STRICT = "kexalgorithms curve25519-sha256\nhostkeyalgorithms ssh-ed25519\nmacs hmac-sha2-256-etm@openssh.com"
LAX = "kexalgorithms curve25519-sha256\nhostkeyalgorithms ssh-ed25519\nmacs hmac-sha1,hmac-sha2-256-etm@openssh.com"


def test_weak_algorithms_offered_by_sshd_are_listed() -> None:
    assert sshd.weak(sshd.offers_of(GOOD), DROPIN) == []
    assert sshd.weak(sshd.offers_of(BAD), DROPIN) == [
        "ecdh-sha2-nistp256",
        "ecdsa-sha2-nistp256",
        "hmac-sha1",
        "umac-64@openssh.com",
    ]


def test_reply_from_a_non_ssh_server_is_rejected() -> None:
    with pytest.raises(ValueError, match="not a list of algorithms"):
        sshd.offers_of(b"HTTP/1.1 400 Bad Request")


@pytest.mark.parametrize(
    ("file", "settings", "offer", "to_do", "overridden"),
    [
        (None, LAX, BAD, "write", []),
        ("# something else\n", LAX, BAD, "write", []),
        (DROPIN, STRICT, GOOD, "", []),
        # Interrupted between writing and reload.
        (DROPIN, STRICT, BAD, "reload", []),
        # The site's settings take precedence, also after a reload.
        (DROPIN, LAX, BAD, "", ["hmac-sha1"]),
        # sshd's offer is unknown.
        (DROPIN, STRICT, None, "", []),
    ],
)
def test_sshd_is_changed_or_reloaded_only_if_needed(
    file: str | None, settings: str, offer: bytes | None, to_do: str, overridden: list[str]
) -> None:
    offered = sshd.offers_of(offer) if offer else {}
    assert sshd.pending(DROPIN, file, sshd.parse(settings), offered) == to_do
    assert sshd.overridden(DROPIN, file, sshd.parse(settings)) == overridden


def test_changed_logins_and_one_peer_are_tested() -> None:
    ways = {f"node{number}": ssh_mesh.way("out", f"in {number}") for number in range(4)}
    assert ssh_mesh.to_prove(["node1", "node2", "node3"], ways, ways) == ["node1"]
    known = {**ways, "node3": ssh_mesh.way("out", "in another")}
    assert ssh_mesh.to_prove(["node1", "node2", "node3"], known, ways) == ["node1", "node3"]
    assert ssh_mesh.to_prove(["node1", "node2"], {}, ways) == ["node1", "node2"]
    assert ssh_mesh.to_prove(["node1", "node2"], ways, {}) == ["node1", "node2"]
    assert ssh_mesh.to_prove([], {}, {}) == []
