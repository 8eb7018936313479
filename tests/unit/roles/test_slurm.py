"""The shell lines of the role slurm, on files of this machine."""

from __future__ import annotations

import base64
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

VARS = yaml.safe_load((ROOT / "roles/slurm/vars/main.yml").read_text())


def run(name: str, folder: Path, given: str = "") -> str:
    line = VARS[name]
    for known in ("_slurm_key | dirname", "_slurm_configuration[0]", "_slurm_key", "_slurm_mark"):
        value = {"_slurm_mark": VARS["_slurm_mark"], "_slurm_key | dirname": str(folder)}
        line = line.replace(f"{{{{ {known} }}}}", value.get(known, str(folder / known.strip("[0]"))))
    done = subprocess.run(["sh", "-ec", line], input=given, capture_output=True, text=True, check=True)
    return done.stdout


def test_key_is_replaced_only_if_it_differs(tmp_path: Path) -> None:
    key = tmp_path / "_slurm_key"
    run("_slurm_create_key", tmp_path)
    first = key.read_bytes()
    assert (len(first), oct(key.stat().st_mode & 0o7777)) == (128, "0o400")
    assert run("_slurm_write_key", tmp_path, base64.b64encode(first).decode()) == "unchanged\n"
    (tmp_path / "new.key").symlink_to(tmp_path / "other")  # left by an interrupted run, or planted
    assert run("_slurm_write_key", tmp_path, base64.b64encode(b"second").decode()) == ""
    assert (key.read_bytes(), oct(key.stat().st_mode & 0o7777)) == (b"second", "0o400")
    assert [path.name for path in tmp_path.iterdir()] == ["_slurm_key"]


@pytest.mark.parametrize(
    ("key", "mark", "nodes"),
    [(True, VARS["_slurm_mark"], "node1\nnode2\n"), (True, "of the site", ""), (False, VARS["_slurm_mark"], "")],
)
def test_nodes_are_read_from_lines_of_muster(tmp_path: Path, key: bool, mark: str, nodes: str) -> None:
    if key:
        (tmp_path / "_slurm_key").touch()
    lines = "NodeName=node1 NodeHostname=a CPUs=1\nNodeName=node2 NodeHostname=b CPUs=1\nNodeName=extra CPUs=1\n"
    (tmp_path / "_slurm_configuration").write_text(f"# {mark}\n{lines}")
    assert run("_slurm_list_nodes", tmp_path) == nodes
