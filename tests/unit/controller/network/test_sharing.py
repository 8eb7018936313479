"""The shared folder for user launches: other users must not be able to write files that Ansible reads in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from muster.share import HEAD, NAMES
from muster_controller.network.sharing import ANOTHER, in_the_way, write
from muster_node.tools.files import ForeignError

ROOT = Path(__file__).parents[4]
TEXTS = dict.fromkeys(NAMES, HEAD)
NOBODY = 65534
HOW = f"remove this permission (chmod go-w, chown), or {ANOTHER}."


def refusal(who: str, folder: Path) -> list[str]:
    return [f"{who}, and could change what runs for all users of {folder}: {HOW}"]


def test_shared_folder_becomes_writable_again(tmp_path: Path) -> None:
    folder = tmp_path / "share/lab"
    assert in_the_way(folder) == []
    before = os.umask(0o002)
    try:
        write(folder, TEXTS)
    finally:
        os.umask(before)
    for name in (".gitignore", "notes.txt"):
        (folder / name).touch()
    assert in_the_way(folder) == []
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (folder.parent, folder, *folder.iterdir())}
    assert {name: modes[name] for name in ("share", "lab", *NAMES)} == {
        "share": 0o755,
        "lab": 0o755,
        **dict.fromkeys(NAMES, 0o644),
    }


@pytest.mark.parametrize("place", ["share", "share/lab"])
def test_nothing_is_written_to_a_world_writable_folder(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "share/lab"
    folder.mkdir(parents=True)
    (tmp_path / place).chmod(0o777)
    assert in_the_way(folder) == refusal(f"{tmp_path / place} is writable by all users", folder)
    with pytest.raises(ForeignError):
        write(folder, TEXTS)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can create files of another user")
def test_file_of_another_user_is_rejected(tmp_path: Path) -> None:
    write(tmp_path, TEXTS)
    os.chown(tmp_path / "hosts.yml", NOBODY, 0)
    assert in_the_way(tmp_path) == refusal(f"{tmp_path}/hosts.yml belongs to nobody", tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can create links of another user")
def test_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "lab").symlink_to("etc")
    assert in_the_way(tmp_path / "lab") == []
    os.chown(tmp_path / "lab", NOBODY, 0, follow_symlinks=False)
    assert in_the_way(tmp_path / "lab") == refusal(f"{tmp_path}/lab belongs to nobody", tmp_path / "lab")


def test_foreign_files_that_ansible_would_read_are_rejected(tmp_path: Path) -> None:
    write(tmp_path, TEXTS)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("ansible_python_interpreter: /tmp/x\n")
    for name in ("more.yml", "ansible.cfg", "inventory", "filter_plugins"):
        (tmp_path / name).touch()
    names = "ansible.cfg, filter_plugins, group_vars and 2 more"
    what = f"{tmp_path} has {names}, which Ansible may read with the inventory"
    [found] = in_the_way(tmp_path)
    assert found == f"{what}: remove them, or {ANOTHER}."


def test_files_not_written_by_muster_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    assert in_the_way(tmp_path) == [f"{tmp_path} has hosts.yml, which this playbook did not write: {ANOTHER}."]
    assert in_the_way(tmp_path / "hosts.yml") == [f"{tmp_path}/hosts.yml is not a folder: {ANOTHER}."]


@pytest.mark.parametrize(("mode", "returned"), [(0o755, 0), (0o777, 2)])
def test_share_playbook_rejects_world_writable_folder(tmp_path: Path, mode: int, returned: int) -> None:
    """The host key is pinned, and no node responds."""
    (tmp_path / "rack/group_vars").mkdir(parents=True)
    shutil.copy(ROOT / "inventory/lab/group_vars/gpu_nodes.yml", tmp_path / "rack/group_vars/gpu_nodes.yml")
    hosts = "{vars: {cluster_artifacts_dir: artifacts}, hosts: {node1: {ansible_host: 10.0.0.1}}}"
    (tmp_path / "rack/hosts.yml").write_text(f"gpu_nodes: {hosts}\n")
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEp/Kq7JMActy0Ycv8l1qWR2g4GfKuM2DG18jTlwgPIa"
    (tmp_path / "rack/known_hosts").write_text(f"10.0.0.1 {key} muster:node1\n")
    folder = tmp_path / "lab"
    folder.mkdir()
    folder.chmod(mode)
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, ROOT / "playbooks/share.yml", "-i", "rack", "-e", f"share_to={folder}"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "COLUMNS": "400"},
    )
    assert done.returncode == returned, done.stdout + done.stderr
    written = {path.name for path in folder.iterdir()}
    assert written == (set() if returned else set(NAMES))
    if returned:
        assert f"Nothing was written. {folder} is writable by all users" in done.stdout
