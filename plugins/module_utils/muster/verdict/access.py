"""What ssh, sudo and Ansible's vault say where somebody is not let in, in words for people, with what to type."""

from __future__ import annotations

import re

from .commands import playbook, vault

# Ansible's own words (core 2.19, plugins/connection/ssh.py and parsing/vault), and sudo's where nothing answers it.
_MISSING = ("Missing sudo password", "sudo: a password is required")
_WRONG = "Incorrect sudo password"
_ENCRYPTED = "no vault secrets found"
_KEEP = f"or keep it in the inventory as ansible_become_password, encrypted with: {vault()}"
# The whole of what ssh says, alone or behind Ansible's words; within another text it may be of a log-in between nodes.
_REFUSED = re.compile(r"(?:.*\b(?:over|via) ssh: )?(\S+)@\S+: Permission denied \([\w,-]+\)\.?", re.DOTALL)
_COPY = f"{playbook('playbooks/trust.yml', trust_copy_key='true')} --ask-pass"


def explain(why: str) -> tuple[str, str]:
    """Return what a failure means and its fix; empty where it is something else."""
    if any(words in why for words in _MISSING):
        return "sudo asks for a password there", f"Add --ask-become-pass to the command, {_KEEP}"
    if _WRONG in why:
        return "sudo does not take the password that was given", f"Try again with --ask-become-pass, {_KEEP}"
    if _ENCRYPTED in why:
        return "a value of the inventory is encrypted", "Add --ask-vault-pass to the command"
    if refused := _REFUSED.fullmatch(why.strip()):
        way = "Correct ansible_user or its key (ansible_ssh_private_key_file); where it has a password alone, type"
        return f"ssh does not let {refused[1]} in there", f"{way}: {_COPY}"
    return "", ""
