"""What sudo and Ansible's vault say where somebody is not let in, in words for people, with what to type."""

from __future__ import annotations

from .commands import vault

# Ansible's own words (core 2.19, plugins/connection/ssh.py and parsing/vault), and sudo's where nothing answers it.
_MISSING = ("Missing sudo password", "sudo: a password is required")
_WRONG = "Incorrect sudo password"
_ENCRYPTED = "no vault secrets found"
_KEEP = f"or keep it in the inventory as ansible_become_password, encrypted with: {vault()}"


def explain(why: str) -> tuple[str, str]:
    """Return what a failure means and its fix; empty where it is something else."""
    if any(words in why for words in _MISSING):
        return "sudo asks for a password there", f"Add --ask-become-pass to the command, {_KEEP}"
    if _WRONG in why:
        return "sudo does not take the password that was given", f"Try again with --ask-become-pass, {_KEEP}"
    if _ENCRYPTED in why:
        return "a value of the inventory is encrypted", "Add --ask-vault-pass to the command"
    return "", ""
