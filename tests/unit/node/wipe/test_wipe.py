"""Wiping a node removes the planned files of Muster and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.members.wiping import Tree, WipeRequest, make_plan
from muster_node.wipe.wiping import act, observe

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = {"units": [], "idle": "", "reexec": False, "restart": []}


def test_only_files_of_muster_are_removed(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "pytorch", tmp_path / "elsewhere"
    for path in ("envs/2.13.0-cpu-py3.11-1f0c2a7b/bin", "envs/mine", "wheels/one", "empty", "theirs"):
        (root / path).mkdir(parents=True)
    (root / "envs/mine/notes").write_text("theirs")
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("theirs")
    (root / "envs/2.13.0-cpu-py3.11-1f0c2a7b/bin/out").symlink_to(elsewhere)
    (root / "current").symlink_to("envs/2.13.0-cpu-py3.11-1f0c2a7b")
    settings = tmp_path / "conf.d/90-muster.conf"
    settings.parent.mkdir()
    settings.write_text("ours")
    trees = (Tree(f"{root}/envs", ("[0-9]*-*-py3.*-*",)), Tree(str(root), ("current", "wheels"), empty=("empty",)))
    request, params = WipeRequest(trees), {**NOTHING, "files": [str(settings), "/etc/none/*.conf"]}
    act(make_plan(request, observe(params, request)), params)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "conf.d",
        "elsewhere",
        "elsewhere/kept",
        "pytorch",
        "pytorch/envs",
        "pytorch/envs/mine",
        "pytorch/envs/mine/notes",
        "pytorch/theirs",
    ]
    assert not make_plan(request, observe(params, request)).needed


def test_only_empty_parents_with_the_name_of_muster_are_removed(tmp_path: Path) -> None:
    made = [tmp_path / "site/textfile/muster_node.prom", tmp_path / "site/muster/bin/torchrun"]
    for path in made:
        path.parent.mkdir(parents=True)
        path.touch()
    request, params = WipeRequest(), {**NOTHING, "files": [str(path) for path in made]}
    act(make_plan(request, observe(params, request)), params)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["site", "site/textfile"]


def test_folder_behind_a_link_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/wheels").mkdir()
    (tmp_path / "link").symlink_to("there")
    request, params = WipeRequest((Tree(f"{tmp_path}/link", ("*",)),)), {**NOTHING, "files": []}
    assert not make_plan(request, observe(params, request)).needed
