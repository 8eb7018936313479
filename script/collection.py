#!/usr/bin/env python3
"""Build the collection muster.muster: this tree as one archive, which ansible-galaxy installs without git.

    .venv/bin/python script/collection.py [FOLDER]     # default: artifacts/collection

The archive contains all files tracked by git, and the two files required in a collection. It is used from its
installation folder like a clone: ansible.cfg there configures the paths of roles and plugins. For playbooks elsewhere,
the modules are included a second time as muster.muster.NAME, with imports under the collection's name.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "artifacts/collection"
NAME = "muster"
ANSIBLE = ">=2.19"
# Imports of modules in this tree (by its ansible.cfg), and in a collection.
OF_THE_TREE = re.compile(r"\bansible\.module_utils\.(muster(?:_node)?)\b")
OF_THE_COLLECTION = rf"ansible_collections.{NAME}.{NAME}.plugins.module_utils.of_modules.\1"
NAMED = re.compile(r"(\bM\((?=\w+\))|\b(?=role_options\.))")  # modules and fragments in documentation


def version(changelog: str) -> str:
    """Return the latest release in the changelog, or the next development version if there are unreleased changes."""
    parts = re.split(r"^## \[(.+?)\]", changelog, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    released = next(name for name in sections if name != "Unreleased")
    major, minor, _ = released.split(".")
    return f"{major}.{int(minor) + 1}.0-dev" if sections.get("Unreleased", "").strip() else released


def about() -> dict[str, object]:
    return {
        "namespace": NAME,
        "name": NAME,
        "version": version((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")),
        "readme": "README.md",
        "description": "Bare Ubuntu and Debian GPU machines in, a verified multi-node PyTorch torchrun out",
        "authors": ["The Muster authors"],
        "license": ["Apache-2.0"],
    }


def copy_tree(folder: Path) -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, listing.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)


def copy_modules(folder: Path) -> None:
    """Copy the modules with their full names, in addition to the modules of the tree."""
    for source in (folder / "library").glob("*.py"):
        renamed(source, folder / "plugins/modules" / source.name)
    rooms = folder / "plugins/module_utils"
    for source in [*rooms.rglob("*.py")]:
        renamed(source, rooms / "of_modules" / source.relative_to(rooms))


def renamed(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    text = OF_THE_TREE.sub(OF_THE_COLLECTION, source.read_text(encoding="utf-8"))
    target.write_text(NAMED.sub(rf"\1{NAME}.{NAME}.", text), encoding="utf-8")


def build(target: Path) -> None:
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        copy_tree(folder)
        copy_modules(folder)
        (folder / "galaxy.yml").write_text(yaml.safe_dump(about(), sort_keys=False), encoding="utf-8")
        (folder / "meta").mkdir()
        (folder / "meta/runtime.yml").write_text(yaml.safe_dump({"requires_ansible": ANSIBLE}), encoding="utf-8")
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run([galaxy, "collection", "build", "--force", "--output-path", target], cwd=folder, check=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else TARGET)
