"""Requests to a peer, and explanations of failed transfers."""

from __future__ import annotations

import shlex

import pytest

from muster.packages import peer_files
from muster.packages.peer_files import PeerFilesError, WantedFile, why_not

A, B = "a" * 64, "b" * 64


def test_duplicate_file_requests_are_merged() -> None:
    given = [{"name": "x.whl", "sha256": A}, {"name": "y_1.0+cpu.whl", "sha256": B}, {"name": "x.whl", "sha256": A}]
    assert peer_files.wanted_of(given) == (WantedFile("x.whl", A), WantedFile("y_1.0+cpu.whl", B))


@pytest.mark.parametrize("name", ["", "../x", "/etc/shadow", "a/b", "-rf", ".", "..", ".hidden", "a b", "a\nb"])
def test_file_names_with_a_path_are_rejected(name: str) -> None:
    with pytest.raises(PeerFilesError, match="is not a file name without a folder"):
        peer_files.wanted_of([{"name": name, "sha256": A}])


@pytest.mark.parametrize("sha256", ["", "a" * 63, "A" * 64, "g" * 64])
def test_files_without_a_sha256_are_rejected(sha256: str) -> None:
    with pytest.raises(PeerFilesError, match="is not a hexadecimal sha256"):
        peer_files.wanted_of([{"name": "x", "sha256": sha256}])


def test_conflicting_hashes_are_rejected() -> None:
    with pytest.raises(PeerFilesError, match="x is listed twice"):
        peer_files.wanted_of([{"name": "x", "sha256": A}, {"name": "x", "sha256": B}])


def test_peer_command_is_quoted_for_the_shell() -> None:
    command = peer_files.remote_command("/srv/it's here", ["a.whl", "b!1.whl"])
    words = shlex.split(command)
    assert words[-4:] == ["--directory=/srv/it's here", "--", "a.whl", "b!1.whl"]
    assert words[:5] == ["printf", "%s\\n", "", peer_files.BEGIN.decode().strip(), "&&"]


def test_peers_are_read_from_known_hosts() -> None:
    text = (
        "# head\nn1,192.0.2.1 ssh-ed25519 AAAA muster:lab:n1\n[n2]:2222 ssh-ed25519 AAAA muster:lab:n2\nx y AAAA me\n"
    )
    assert peer_files.known_peers(text) == {"n1", "n2"}
    assert peer_files.known_peers("") == frozenset()


TAR = "tar: b: Cannot stat: No such file or directory\ntar: Exiting with failure status due to previous errors\n"


@pytest.mark.parametrize(
    ("code", "said", "came", "why"),
    [
        (0, "", ["a", "b"], ""),
        (2, TAR, ["a"], "not found on the peer: b"),
        (2, TAR, [], "not found on the peer: a and 1 more"),
        (2, "tar: /srv: Cannot open: Permission denied\n", [], "not found on the peer: a and 1 more"),
        (255, "Host key verification failed.\n", [], "the host key differs from the recorded host key"),
        (255, "muster@n1: Permission denied (publickey).\n", [], "sshd does not accept the user's key"),
        (255, "ssh: connect to host n1 port 22: Connection timed out\n", [], "the peer did not respond"),
        (255, "ssh: connect to host n1 port 22: Connection refused\n", [], "no program listens on the SSH port"),
        (1, "This account is currently not available.\n", [], "the user has no login shell on that node"),
        (255, "something\nnew\n", [], "something new"),
        (255, "", [], "ssh exited with status 255 and no output"),
    ],
)
def test_transfer_errors_are_explained(code: int, said: str, came: list[str], why: str) -> None:
    assert why_not(code, said, came, ["a", "b"]) == why


def test_closed_connection_is_recognized() -> None:
    assert peer_files.hung_up("kex_exchange_identification: Connection closed by remote host")
    assert peer_files.hung_up("Connection reset by 192.0.2.1 port 22")
    assert not peer_files.hung_up("sshd does not accept the user's key")
