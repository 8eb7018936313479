"""The watcher is a single zipapp that requires only the standard library and runs in any folder."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from io import BytesIO
from typing import TYPE_CHECKING

from muster_controller.detached import handing_over
from muster_controller.detached.handing_over import needed, watcher_program

if TYPE_CHECKING:
    from pathlib import Path

OWN = {"muster", "muster_node", "muster_controller"}


def test_watcher_imports_only_the_standard_library() -> None:
    for name in needed():
        for node in ast.walk(ast.parse(handing_over.text_of(name))):
            modules = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module or ""]
            assert {each.partition(".")[0] for each in modules} <= sys.stdlib_module_names | OWN, name


def test_watcher_runs_in_any_folder_and_contains_node_programs(tmp_path: Path) -> None:
    file = tmp_path / "watcher.pyz"
    file.write_bytes(watcher_program())
    text = (
        f"import sys; sys.path.insert(0, {str(file)!r}); from muster_controller.launch.supervisor import PROGRAM;"
        " print(PROGRAM.module)"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", text], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert ran.stdout.split()[-1] == "muster_node.programs.launch"
    without = subprocess.run([sys.executable, "-I", "-S", file, tmp_path], check=False, capture_output=True, text=True)
    assert "FileNotFoundError" in without.stderr
    assert "spec.json" in without.stderr


def test_watcher_is_built_reproducibly() -> None:
    first = watcher_program()
    watcher_program.cache_clear()
    assert watcher_program() == first
    assert "__main__.py" in zipfile.ZipFile(BytesIO(first)).namelist()
