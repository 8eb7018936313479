"""Creating a new inventory from a list of nodes. ansible-playbook runs only on the controller."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cases import cases
from muster.onboard import imported
from paths import ROOT

BIN = Path(sys.executable).with_name("ansible-playbook")
CONFIG = """
Host gpu1 gpu2
  User ubuntu
  ProxyJump me@bastion
Host gpu1
  HostName 10.0.0.1
Host gpu2
  HostName 10.0.0.2
Host *
  ServerAliveInterval 30
"""


@cases(__file__, "imported")
def test_inventory_and_report_match_the_case(case: dict[str, Any]) -> None:
    nodes = case["nodes"]
    assert imported.node_problems(nodes) == case.get("problems", [])
    if "text" in case:
        assert imported.text(nodes, case["source"]) == case["text"]
        said = imported.report("inventory/rack2", nodes, "TRUST", "LOOK", check=case.get("check", False))
        assert said == case["report"]


@pytest.mark.parametrize("name", ["", "../etc", ".hidden", "two words", "a/b", "-x"])
def test_invalid_inventory_name_is_rejected(name: str) -> None:
    assert len(imported.name_problems(name)) == 1


def test_template_in_a_node_list_is_not_written_to_the_inventory() -> None:
    with pytest.raises(ValueError, match="template"):
        imported.text([{"name": "a", "variables": {"ansible_host": "10.0.0.1", "ansible_user": "{{ x }}"}}], "x")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the project with only the sample inventory. Links would point to the original project."""
    place = tmp_path / "muster"
    place.mkdir()
    for name in ("library", "playbooks", "plugins", "roles", "inventory/lab"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "ansible.cfg", place)
    return place


def played(project: Path, *words: str, book: str = "import", inventory: str = "lab") -> tuple[int, str]:
    command = [str(BIN), f"playbooks/{book}.yml", "-i", f"inventory/{inventory}", *words]
    done = subprocess.run(
        command,
        cwd=project,
        env={"PATH": "/usr/bin:/bin", "ANSIBLE_CONFIG": str(project / "ansible.cfg"), "HOME": str(project.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_ssh_config_is_imported(project: Path) -> None:
    config = project.parent / "config"
    config.write_text(CONFIG)
    asked = ("-e", "import_to=rack2", "-e", f"ssh_config={config}")
    made = project / "inventory/rack2"

    code, said = played(project, *asked, "--check")
    assert (code, made.exists()) == (0, False), said
    assert "Would write inventory/rack2/hosts.yml" in said

    code, said = played(project, *asked)
    assert code == 0, said
    assert "ansible-playbook playbooks/trust.yml -i inventory/rack2" in said
    assert said.strip().splitlines()[-1].startswith("DONE: inventory/rack2 has 2 nodes")
    hosts = yaml.safe_load((made / "hosts.yml").read_text())["gpu_nodes"]
    assert hosts["hosts"] == {"gpu1": {"ansible_host": "10.0.0.1"}, "gpu2": {"ansible_host": "10.0.0.2"}}
    assert hosts["vars"] == {"ansible_user": "ubuntu", "ansible_ssh_common_args": "-o ProxyJump=me@bastion"}
    assert (made / "group_vars/all.yml").read_text() == (ROOT / "inventory/lab/group_vars/all.yml").read_text()

    code, said = played(project, book="validate", inventory="rack2")
    assert code == 0, said
    assert "changed=0" in played(project, *asked)[1]  # a second import changes nothing

    (made / "hosts.yml").write_text("# mine\n")
    code, said = played(project, *asked)
    assert code == 2
    assert "inventory/rack2 already exists" in said
    assert (made / "hosts.yml").read_text() == "# mine\n"
    assert sorted(path.name for path in (project / "inventory").iterdir()) == ["lab", "rack2"]


@pytest.mark.parametrize(("what", "argument"), [("Match exec", '"touch {mark}"'), ("Include", "{other}")])
def test_foreign_ssh_config_cannot_run_commands(project: Path, what: str, argument: str) -> None:
    home, mark, other = project.parent, project.parent / "ran", project.parent / "other"
    other.write_text(f'Match exec "touch {mark}"\n')
    config = home / "config"
    config.write_text(f"{CONFIG}{what} {argument.format(mark=mark, other=other)}\n")
    subprocess.run(["ssh", "-F", str(config), "-G", "gpu1"], check=True, capture_output=True)
    assert mark.exists(), "ssh did not run the command, so the test is not valid"
    mark.unlink()
    code, said = played(project, "-e", "import_to=rack2", "-e", f"ssh_config={config}")
    assert (code, mark.exists()) == (2, False), said
    assert f"{config} line {len(CONFIG.splitlines()) + 1}: {what} makes ssh" in said
    assert not (project / "inventory/rack2").exists()


def test_all_problems_are_reported_at_once(project: Path) -> None:
    (project / "hostfile").write_text("gpu1 10.0.0.1\ngpu2 10.0.0.1\ngpu3 10.0.0.300\n")
    code, said = played(project, "-e", "import_to=a/b", "-e", "nodes_file=hostfile")
    assert code == 2
    for part in ("is not a valid folder name", "several nodes have the same", "10.0.0.300 is not a valid IP address"):
        assert part in said, said
    assert [path.name for path in (project / "inventory").iterdir()] == ["lab"]
