"""Choose the controller's public key, and add it to a node's authorized_keys."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

# ssh's default order of keys (ssh_config(5), IdentityFile), without types that OpenSSH has removed.
USUAL = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
TYPES = ("ssh-ed25519", "ecdsa-sha2-", "sk-ssh-ed25519@", "sk-ecdsa-sha2-", "ssh-rsa", "rsa-sha2-")
MAKE_ONE = "make one with: ssh-keygen -t ed25519"


def public_key_file(private: str, folder: str, there: Collection[str]) -> str:
    """Return the public key file of the key that ssh uses: the key set in the inventory or, if none is set, the key of
    the newest type.

    private: ansible_ssh_private_key_file, or "". there: names of the files in `folder` (~/.ssh).
    """
    if private:
        return private if private.endswith(".pub") else f"{private}.pub"
    found = [f"{name}.pub" for name in reversed(USUAL) if f"{name}.pub" in there and name in there]
    # Prefer keys without a hardware token, which unattended runs cannot use.
    found.sort(key=lambda name: "_sk" in name)
    return f"{folder}/{found[0]}" if found else ""


def key_line(text: str) -> str:
    """Return the public key line without control characters. Raises ValueError if the key is invalid."""
    lines = text.strip().splitlines()
    words = lines[0].split(None, 2) if len(lines) == 1 else []
    if len(words) < 2 or not words[0].startswith(TYPES) or not _is_blob(words[1]) or not text.strip().isprintable():
        raise ValueError("the file has no public key")
    return " ".join(words)


def _is_blob(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) > 16
    except binascii.Error:
        return False


def with_key(text: str, line: str) -> str:
    """Return authorized_keys with this key added.

    The text is unchanged if the key is present, with or without options.
    """
    blob = line.split()[1]
    if any(blob in each.split() for each in text.splitlines() if not each.lstrip().startswith("#")):
        return text
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{end}{line}\n"
