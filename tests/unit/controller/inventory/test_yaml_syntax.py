"""Errors for inventories with invalid YAML."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from paths import BIN, ROOT

if TYPE_CHECKING:
    from pathlib import Path

ENCRYPTED = "$ANSIBLE_VAULT;1.1;AES256\n3531\n"


def errors(folder: Path, *, hosts: str, **variables: str) -> tuple[int, list[str]]:
    (folder / "group_vars").mkdir()
    (folder / "hosts.yml").write_text(hosts)
    for name, text in variables.items():
        (folder / "group_vars" / f"{name}.yml").write_text(text)
    command = [str(BIN / "ansible-inventory"), "-i", str(folder), "--graph", "gpu_nodes"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.splitlines()


def test_tab_is_reported_in_one_line_with_file_and_line_number(tmp_path: Path) -> None:
    hosts = "gpu_nodes:\n  hosts:\n    node1:\n\tansible_host: 192.0.2.1\n"
    where = f"{tmp_path}/hosts.yml line 4"
    sentence = f"[ERROR]: {where}: YAML does not allow tabs here. Replace the tab with spaces. No node was contacted."
    assert errors(tmp_path, hosts=hosts) == (4, [sentence])


def test_every_file_with_a_syntax_error_is_named(tmp_path: Path) -> None:
    status, lines = errors(tmp_path, hosts="gpu_nodes: [\n", all="a: [1\nb: 2\n", other="c: 3\n")
    assert status == 4
    assert [line.partition(":")[2].split(":")[0].strip() for line in lines] == [
        f"{tmp_path}/hosts.yml line 2",
        f"{tmp_path}/group_vars/all.yml line 2",
    ]


def test_vault_variables_and_non_yaml_files_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("[gpu_nodes]\nnode2\n")
    status, lines = errors(tmp_path, hosts="gpu_nodes: {hosts: {node1: {secret: !vault x}}}\n", node1=ENCRYPTED)
    assert (status, lines) == (0, [])
