"""Choosing the key to copy to a node and adding it to authorized_keys. The cases contain that file before and after."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.network.copy_key import key_line, public_key_file, with_key

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIJ1tuJ5Gm3uoZ0VrQqvDk6zY8c0Zb1pYB2kWJ4Hq5N7x"


@cases(__file__, "copy_key")
def test_key_is_added_to_authorized_keys(case: dict[str, Any]) -> None:
    assert with_key(case["before"], case["line"]) == case["after"]
    assert with_key(case["after"], case["line"]) == case["after"]


@pytest.mark.parametrize(
    ("private", "there", "expected"),
    [
        ("/k/lab", [], "/k/lab.pub"),
        ("/k/lab.pub", [], "/k/lab.pub"),  # ssh accepts it too: the private key is in an agent
        ("", ["id_rsa", "id_rsa.pub", "id_ed25519", "id_ed25519.pub"], "/home/anna/.ssh/id_ed25519.pub"),
        ("", ["id_rsa", "id_rsa.pub", "id_ed25519_sk", "id_ed25519_sk.pub"], "/home/anna/.ssh/id_rsa.pub"),
        ("", ["id_ed25519.pub"], ""),  # the private key is missing
        ("", [], ""),
    ],
)
def test_chosen_key_is_the_one_that_ssh_uses(private: str, there: list[str], expected: str) -> None:
    assert public_key_file(private, "/home/anna/.ssh", there) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        f"ssh-ed25519 {KEY}\nssh-ed25519 {KEY}",  # two lines
        f'command="x" ssh-ed25519 {KEY}',  # a line of authorized_keys
        f"ssh-ed25519 {KEY} a\x1b[2Jb",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE",
    ],
)
def test_invalid_public_key_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="the file has no public key"):
        key_line(text)


def test_public_key_is_written_as_one_line_with_its_comment() -> None:
    assert key_line(f"ssh-ed25519 {KEY}  anna at her desk\n") == f"ssh-ed25519 {KEY} anna at her desk"
