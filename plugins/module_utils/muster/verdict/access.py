"""Explains access errors of ssh, sudo and Ansible Vault, with the commands that fix them."""

from __future__ import annotations

import re

from .commands import playbook, vault

# Error texts of Ansible (core 2.19, plugins/connection/ssh.py and parsing/vault), and of sudo without a password.
_MISSING = ("Missing sudo password", "sudo: a password is required")
_WRONG = "Incorrect sudo password"
_ENCRYPTED = "no vault secrets found"
_KEEP = f"or store the password in the inventory as ansible_become_password, encrypted with: {vault()}"
# The complete error of ssh, alone or after Ansible's prefix; within a longer text it may come from ssh between nodes.
_REFUSED = re.compile(r"(?:.*\b(?:over|via) ssh: )?(\S+)@\S+: Permission denied \([\w,-]+\)\.?", re.DOTALL)
_COPY = f"{playbook('playbooks/trust.yml', trust_copy_key='true')} --ask-pass"


def explain(why: str) -> tuple[str, str]:
    """Return the meaning of an error and its fix; two empty strings if the error is unknown."""
    if any(words in why for words in _MISSING):
        return "sudo requires a password", f"Add --ask-become-pass to the command, {_KEEP}"
    if _WRONG in why:
        return "sudo rejected the password", f"Try again with --ask-become-pass, {_KEEP}"
    if _ENCRYPTED in why:
        return "an inventory value is encrypted", "Add --ask-vault-pass to the command"
    if refused := _REFUSED.fullmatch(why.strip()):
        way = "Correct ansible_user or its key (ansible_ssh_private_key_file). If the user has only a password, run"
        return f"ssh rejected the login of {refused[1]}", f"{way}: {_COPY}"
    return "", ""
