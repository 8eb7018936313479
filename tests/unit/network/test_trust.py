"""Each file in cases/ contains one decision about first contact.

decide: a node's keys and the known_hosts files that ssh reads -> decision and sentences. pinned: a known_hosts file
before and after a key is pinned. In both, A, B and C stand for ed25519 keys and E for an ecdsa key of the file
keys.yml.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases import cases, document_of
from muster.network import known_hosts, trust
from muster.verdict.commands import playbook

if TYPE_CHECKING:
    from muster.network.known_hosts import HostKey

HERE = Path(__file__).parent
KEYS: dict[str, str] = document_of(HERE / "keys.yml")
FINGERPRINT = "SHA256:zhpLZKnR15ITWrvzc/2nL7m3MHzUAeh/FDSrn1H+vo4"  # of A, as ssh-keygen -l prints it
PROJECT = "/lab/known_hosts"
TRUST = "playbooks/trust.yml"


def key(name: str) -> HostKey:
    found = known_hosts.key_of(KEYS[name])
    assert found
    return found


def spelt_out(text: str) -> str:
    """Replace {A} with the public key line of key A, and {A.fingerprint} with its fingerprint."""
    text = re.sub(r"\{([ABCE])\.fingerprint\}", lambda found: key(found[1]).fingerprint, text)
    return re.sub(r"\{([ABCE])\}", lambda found: KEYS[found[1]], text)


def row_of(case: dict[str, Any]) -> trust.HostKeyDecision:
    """Return the decision about a node that offers only keys of the requested types."""
    has = [key(name) for name in case.get("shows", ())]
    wanted = spelt_out(case.get("wanted", ""))
    entries = [
        entry
        for path, text in case.get("known", {}).items()
        for entry in known_hosts.entries(spelt_out(text), path)
        if entry.names("10.0.0.3")
    ]
    keys: list[HostKey] = []
    asked: list[list[str]] = []
    while has and (types := trust.types_to_ask(keys, entries, wanted, asked)):
        asked.append(types)
        keys += [offered for kind in types for offered in has if offered.type == kind][:1]
    contact = trust.Contact(
        node="node3",
        host="10.0.0.3",
        address="10.0.0.3:22",
        keys=tuple(keys),
        error=case.get("error", ""),
        wanted=wanted,
        reads=case.get("reads", True),
    )
    assert len(asked) == case.get("connections", 1 if has else 0)
    return trust.decide(contact, entries, PROJECT, case.get("replace", []))


@cases(__file__, "decide")
def test_decision_matches_the_case(case: dict[str, Any]) -> None:
    row = row_of(case)
    assert (row.state, row.action) == (case["state"], case.get("action", ""))
    assert [spelt_out(sentence) for sentence in case.get("says", [])] == trust.sentences([row], PROJECT)
    if row.action in ("pin", "ask"):
        assert row.key == key(case["pins"])
        assert row.replace == case.get("forgets", False)


@cases(__file__, "pinned")
def test_key_is_pinned(case: dict[str, Any]) -> None:
    host, before = case["host"], spelt_out(case["before"])
    after = known_hosts.pinned(before, "node3", host, key(case["pins"]), replace=case.get("replace", False))
    assert after == spelt_out(case["after"])
    # ssh finds the key, and a second pin changes nothing.
    assert any(entry.names(host) and entry.key == key(case["pins"]) for entry in known_hosts.entries(after))
    assert known_hosts.pinned(after, "node3", host, key(case["pins"])) == after


def test_fingerprint_matches_ssh_keygen() -> None:
    assert key("A").fingerprint == FINGERPRINT


@pytest.mark.parametrize(
    ("hosts", "host", "named"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.11", False),
        ("node1,10.0.0.1", "10.0.0.1", True),
        ("Node1", "node1", True),
        ("[10.0.0.1]:2222", "[10.0.0.1]:2222", True),
        ("[10.0.0.1]:2222", "10.0.0.1", False),
        ("10.0.0.1", "[10.0.0.1]:2222", False),
        ("*.cluster,!bad.cluster", "node1.cluster", True),
        ("*.cluster,!bad.cluster", "bad.cluster", False),
        ("10.0.0.?", "10.0.0.7", True),
        ("[10.0.0.*]:2222", "[10.0.0.9]:2222", True),
        # ssh-keygen -H hashed 10.0.0.1, [10.0.0.1]:2222 and node1.example.
        ("|1|LEx91X+xm016NEEJnh9fUQ8jlpQ=|wJYSSHC16jDfrGjypIRyOvbOZLs=", "10.0.0.1", True),
        ("|1|LEx91X+xm016NEEJnh9fUQ8jlpQ=|wJYSSHC16jDfrGjypIRyOvbOZLs=", "10.0.0.2", False),
        ("|1|uP1Fr9LztqnPM5Ev2gXNNVayKws=|D/Lsx0QyPCw4KWHmhm7D7FrZl5g=", "[10.0.0.1]:2222", True),
        ("|1|HtWaRkMvYrbUTaB4HnnvRXBiYiM=|9I8lcIQRTPXjbRlYVuY6pMBjpvI=", "node1.example", True),
        ("|1|broken", "node1.example", False),
    ],
)
def test_host_is_matched_against_known_hosts_lines(hosts: str, host: str, named: bool) -> None:
    entry = known_hosts.entry_of(f"{hosts} {KEYS['A']}")
    assert entry
    assert entry.names(host) is named


@pytest.mark.parametrize(
    ("line", "marker"),
    [
        ("# a comment about ssh-ed25519 keys", None),
        ("", None),
        ("10.0.0.1 ssh-ed25519", None),
        ("10.0.0.1 ssh-ed25519 not-base64!", None),
        ("10.0.0.1 ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIB1qSk2WqV9JZBUn4otF1OS0eJrC5Qi3EEZXXj61XDfu", None),
        ("@revoked * ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB1qSk2WqV9JZBUn4otF1OS0eJrC5Qi3EEZXXj61XDfu", "@revoked"),
    ],
)
def test_invalid_known_hosts_lines_are_ignored(line: str, marker: str | None) -> None:
    entry = known_hosts.entry_of(line)
    assert (entry.marker if entry else None) == marker


@pytest.mark.parametrize(
    ("hostname", "port", "alias", "name"),
    [
        ("10.0.0.1", 22, "", "10.0.0.1"),
        ("Node1.Lab", 22, "", "node1.lab"),
        ("10.0.0.1", 2222, "", "[10.0.0.1]:2222"),
        ("fd00::1", 22, "", "fd00::1"),
        ("10.0.0.1", 2222, "Node1", "node1"),
    ],
)
def test_host_name_is_the_one_that_ssh_looks_up(hostname: str, port: int, alias: str, name: str) -> None:
    assert known_hosts.host_name(hostname, port, alias) == name


def test_paths_with_spaces_are_rejoined() -> None:
    value = "/my lab/known_hosts /home/me/.ssh/known_hosts /home/me/.ssh/known_hosts2"
    assert known_hosts.paths_of(value, {"/my lab/known_hosts", "/home/me/.ssh/known_hosts"}) == [
        "/my lab/known_hosts",
        "/home/me/.ssh/known_hosts",
        "/home/me/.ssh/known_hosts2",
    ]
    assert "/my lab/known_hosts" in known_hosts.candidates(value)
    assert known_hosts.paths_of("none", {}) == []


def test_pinned_keys_of_removed_nodes_are_listed() -> None:
    text = spelt_out("10.0.0.1 {A} muster:node1\n[10.0.0.9]:22 {B} muster:node9\nbastion {C}\n")
    left = known_hosts.left_behind(text, ["node1", "node2"])
    assert left == {"node9": ["[10.0.0.9]:22"]}
    (line,) = trust.leftover_lines(left, "/my lab/known_hosts")
    assert line.endswith("ssh-keygen -R '[10.0.0.9]:22' -f '/my lab/known_hosts'")


def test_table_is_aligned_and_the_question_states_the_key_count() -> None:
    rows = [
        row_of({"shows": ["A"]}),
        row_of({"shows": ["E"]}),
        row_of({"error": "no reply within 12 s"}),
    ]
    lines = trust.table(rows)
    assert len({line.index(column) for line, column in zip(lines[1:3], ("SHA256", "SHA256"), strict=True)}) == 1
    assert lines[1].split() == ["node3", "10.0.0.3:22", "ed25519", FINGERPRINT, "new"]
    assert "nistp256" in lines[2]
    assert lines[3].endswith("no answer: no reply within 12 s")
    assert trust.question(rows).startswith("Trust these 2 new keys?")
    assert trust.question(rows[1:]).startswith("Trust the key of node3?")
    assert trust.question(rows[2:]) == ""


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["known"], "the host key of 1 node is pinned; next: ansible-playbook playbooks/inspect.yml"),
        (
            ["known", "new", "no answer"],
            f"the host keys of 2 nodes are pinned, but node3 did not respond; run later: {playbook(TRUST)}",
        ),
    ],
)
def test_last_line_states_the_outcome_and_the_next_command(states: list[str], said: str) -> None:
    rows = [
        trust.HostKeyDecision(f"node{number}", "10.0.0.3:22", state, key=None if state == "no answer" else key("A"))
        for number, state in enumerate(states, start=1)
    ]
    assert trust.outcome(rows) == said
