"""What is asked of a peer, and what is said when not everything came."""

from __future__ import annotations

import shlex

import pytest

from muster.packages import peer_files
from muster.packages.peer_files import PeerFilesError, WantedFile, why_not

A, B = "a" * 64, "b" * 64


def test_files_are_named_once() -> None:
    given = [{"name": "x.whl", "sha256": A}, {"name": "y_1.0+cpu.whl", "sha256": B}, {"name": "x.whl", "sha256": A}]
    assert peer_files.wanted_of(given) == (WantedFile("x.whl", A), WantedFile("y_1.0+cpu.whl", B))


@pytest.mark.parametrize("name", ["", "../x", "/etc/shadow", "a/b", "-rf", ".", "..", ".hidden", "a b", "a\nb"])
def test_a_name_leads_nowhere_else(name: str) -> None:
    with pytest.raises(PeerFilesError, match="is not the bare name of a file"):
        peer_files.wanted_of([{"name": name, "sha256": A}])


@pytest.mark.parametrize("sha256", ["", "a" * 63, "A" * 64, "g" * 64])
def test_a_file_has_a_sha256(sha256: str) -> None:
    with pytest.raises(PeerFilesError, match="is not a sha256"):
        peer_files.wanted_of([{"name": "x", "sha256": sha256}])


def test_one_name_has_one_content() -> None:
    with pytest.raises(PeerFilesError, match="x is named twice"):
        peer_files.wanted_of([{"name": "x", "sha256": A}, {"name": "x", "sha256": B}])


def test_the_command_is_quoted_for_the_shell() -> None:
    command = peer_files.remote_command("/srv/it's here", ["a.whl", "b!1.whl"])
    words = shlex.split(command)
    assert words[-4:] == ["--directory=/srv/it's here", "--", "a.whl", "b!1.whl"]
    assert words[:5] == ["printf", "%s\\n", "", peer_files.BEGIN.decode().strip(), "&&"]


def test_peers_are_those_of_the_known_hosts() -> None:
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
        (2, TAR, ["a"], "it does not have b"),
        (2, TAR, [], "it does not have a and 1 more"),
        (2, "tar: /srv: Cannot open: Permission denied\n", [], "it does not have a and 1 more"),
        (255, "Host key verification failed.\n", [], "its host key is not the one that the mesh knows"),
        (255, "muster@n1: Permission denied (publickey).\n", [], "its sshd does not accept the user's key"),
        (255, "ssh: connect to host n1 port 22: Connection timed out\n", [], "it does not answer"),
        (255, "ssh: connect to host n1 port 22: Connection refused\n", [], "nothing listens on its ssh port"),
        (1, "This account is currently not available.\n", [], "the user has no login shell there"),
        (255, "something\nnew\n", [], "something new"),
        (255, "", [], "ssh ended with 255 and said nothing"),
    ],
)
def test_why_not(code: int, said: str, came: list[str], why: str) -> None:
    assert why_not(code, said, came, ["a", "b"]) == why


def test_a_peer_that_hangs_up_is_asked_again() -> None:
    assert peer_files.hung_up("kex_exchange_identification: Connection closed by remote host")
    assert peer_files.hung_up("Connection reset by 192.0.2.1 port 22")
    assert not peer_files.hung_up("its sshd does not accept the user's key")
