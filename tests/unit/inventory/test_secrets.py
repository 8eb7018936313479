"""Secrets are recognized by name and value, and plain-text secrets in an inventory are found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from muster.inventory import Inventory, Secret, problems
from muster.inventory.secrets import is_secret
from muster_controller.inventory.origin import clear_secrets

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ansible_become_password", "hunter2"),
        ("ansible_ssh_pass", "1234"),
        ("password_min", "hunter2"),
        ("HF_TOKEN", "hf_x"),
        ("wandbApiKey", "abc"),
        ("registry-secret", "abc"),
        ("my_private_key", "abc"),
        ("notes", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc"),
        ("pytorch_index_url", "https://me:s3cret@mirror.lab/simple"),
    ],
)
def test_secrets_are_recognized(name: str, text: str) -> None:
    assert is_secret(name, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ansible_become_password", "{{ lookup('ansible.builtin.env', 'PASSWORD') }}"),
        ("ansible_become_password", ""),
        ("password_max_age", "90"),
        ("token_ttl", "3600"),
        ("ansible_ssh_private_key_file", "~/.ssh/id_ed25519"),
        ("ansible_private_key", "/home/me/.ssh/id_ed25519"),
        ("vault_password_command", "pass show muster"),
        ("tokenizer", "gpt2"),
        ("max_tokens", "4096"),
        ("bypass", "squid"),
        ("allow_password", "no"),
        ("compass", "north"),
        ("monkey", "chimp"),
        ("pytorch_index_url", "https://mirror.lab:8080/simple"),
        ("cluster_host_key", "SHA256:uNiVztksCsDhcc0u9e8BrrQXVUpKZIDTMczCvj3tD2s"),
    ],
)
def test_other_variables_are_not_secrets(name: str, text: str) -> None:
    assert not is_secret(name, text)


@pytest.fixture
def vault() -> VaultLib:
    return VaultLib([("default", VaultSecret(b"open sesame"))])


def raw_variables(folder: Path) -> dict[str, Any]:
    loader = DataLoader()
    loader.set_vault_secrets([("default", VaultSecret(b"open sesame"))])
    inventory = InventoryManager(loader, sources=[str(folder)])
    variables = VariableManager(loader, inventory)
    raw: dict[str, Any] = HostVars(inventory, variables, loader).raw_get("node1")
    return raw


def test_only_plain_text_secrets_in_files_are_reported(tmp_path: Path, vault: VaultLib) -> None:
    group_vars = tmp_path / "group_vars/all"
    group_vars.mkdir(parents=True)
    (tmp_path / "hosts.yml").write_text(
        "gpu_nodes:\n  hosts:\n    node1: {ansible_host: 10.0.0.1, ansible_become_password: 1234}\n"
    )
    inline = vault.encrypt("hunter2").decode()
    (group_vars / "main.yml").write_text(
        "from_the_environment_token: \"{{ lookup('ansible.builtin.env', 'TOKEN') }}\"\n"
        "launch_env: {HF_TOKEN: hf_x, KEYS: [{api_key: abc}]}\n"
        "vaulted_password: !vault |\n" + "".join(f"  {line}\n" for line in inline.splitlines())
    )
    (group_vars / "vault.yml").write_bytes(vault.encrypt("whole_file_password: hunter2\n"))
    raw = raw_variables(tmp_path)
    assert "whole_file_password" in raw
    assert "vaulted_password" in raw
    found = sorted(clear_secrets(raw, (tmp_path,)), key=str)
    assert found == [
        Secret("HF_TOKEN", str(group_vars / "main.yml")),
        Secret("ansible_become_password", str(tmp_path / "hosts.yml")),
        Secret("api_key", str(group_vars / "main.yml")),
    ]
    assert not list(clear_secrets(raw, (tmp_path / "elsewhere",)))


def test_secrets_from_an_inventory_script_are_not_reported(tmp_path: Path) -> None:
    answer = {
        "gpu_nodes": {"hosts": ["node1"], "vars": {"api_token": "abc"}},
        "_meta": {"hostvars": {"node1": {"ansible_host": "10.0.0.1"}}},
    }
    script = tmp_path / "inventory.sh"
    script.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    script.chmod(0o755)
    raw = raw_variables(script)
    assert "api_token" in raw
    assert not list(clear_secrets(raw, (tmp_path,)))


def test_report_names_variable_and_file_but_not_the_value() -> None:
    inventory = Inventory((), (), 50, (2, 19), secrets=(Secret("HF_TOKEN", "group_vars/all.yml"),))
    sentences = [str(problem) for problem in problems(inventory)]
    assert (
        "group_vars/all.yml: HF_TOKEN is a secret in clear text. Replace the value with the output of this command for"
        " the name HF_TOKEN: ansible-vault encrypt_string --prompt." in sentences
    )
