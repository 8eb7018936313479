"""A modifiable copy of the checkout."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Required files outside git: tools, keys of the sandbox, and the source of its PyTorch.
LINKS = (".venv-dev", ".venv-newest", ".sandbox", "inventory/sandbox/group_vars/sandbox/this_host.yml")


def tracked(root: Path) -> list[str]:
    """Return the files of a checkout, including uncommitted files and excluding ignored files."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted(name for name in names if name and (root / name).is_file())


def copy_checkout(root: Path, folder: Path) -> None:
    for name in tracked(root):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, folder / name, follow_symlinks=False)
    for name in LINKS:
        if (root / name).exists() and not (folder / name).exists():
            (folder / name).symlink_to((root / name).resolve())


def make_repository(folder: Path) -> None:
    """Make the copy a git checkout, because tests list files with git."""
    identity = ["-c", "user.name=mutations", "-c", "user.email=mutations@localhost"]
    for argv in (["init", "--quiet"], ["add", "--all"], [*identity, "commit", "--quiet", "--message=copy"]):
        subprocess.run(["git", *argv], cwd=folder, check=True)
