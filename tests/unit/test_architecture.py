"""The packages of the code: their allowed imports, and the diagram of the imports."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "script/architecture.py"
UTILS = ROOT / "plugins/module_utils"
CONTROLLER = ROOT / "plugins/plugin_utils/muster_controller"
# Code that makes decisions gets all input as arguments: it uses only parts of the standard library that access no
# files, processes, connections or clocks.
PURE = {
    *("__future__", "ast", "base64", "binascii", "collections", "dataclasses", "datetime", "difflib", "enum"),
    *("fnmatch", "functools", "hashlib", "hmac", "html", "ipaddress", "itertools", "json", "math", "re", "shlex"),
    *("signal", "ssl", "statistics", "struct", "textwrap", "types", "typing", "urllib"),
    *("importlib", "pkgutil"),  # a table of files in the same folder
}
# A room that can run as a program: it reads standard input and prints the result.
ENTRY = "__main__.py"


def python_files(folder: str) -> list[Path]:
    return sorted((UTILS / folder).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Return the top-level package of every module that the file imports by absolute name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").removeprefix("ansible.module_utils.").partition(".")[0])
    return found


def test_architecture_diagram_matches_imports() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--show"], check=True, capture_output=True, text=True)
    assert done.stdout == (ROOT / "docs/architecture.svg").read_text(), "run .venv/bin/python script/architecture.py"


@pytest.mark.parametrize("path", python_files("muster"), ids=lambda path: str(path.relative_to(UTILS)))
def test_decision_modules_perform_no_input_or_output(path: Path) -> None:
    assert imported(path) <= PURE | {"muster"} | ({"sys"} if path.name == ENTRY else set())


@pytest.mark.parametrize("path", python_files("muster_node"), ids=lambda path: str(path.relative_to(UTILS)))
def test_code_on_nodes_imports_only_the_standard_library(path: Path) -> None:
    assert imported(path) <= sys.stdlib_module_names | {"muster", "muster_node"}


@pytest.mark.parametrize("package", [UTILS / "muster", UTILS / "muster_node", CONTROLLER], ids=lambda path: path.name)
def test_every_package_folder_is_documented(package: Path) -> None:
    assert [path.name for path in package.glob("*.py")] == ["__init__.py"]
    for room in sorted(path for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"):
        assert ast.get_docstring(ast.parse((room / "__init__.py").read_text())), f"{room} has no docstring"


def test_class_names_are_unique() -> None:
    """Only ActionModule and CallbackModule are repeated, because Ansible prescribes these names."""
    places: dict[str, list[str]] = {}
    for path in [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "library").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert set(shared) <= {"ActionModule", "CallbackModule"}, shared


PLUGINS = [path for kind in ("action", "callback") for path in sorted((ROOT / "plugins" / kind).glob("*.py"))]


def test_import_path_is_set_once_for_actions_and_by_each_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    runpy.run_path(str(ROOT / "plugins/vars/search_path.py"))
    assert sys.path[:2] == [str(UTILS), str(CONTROLLER.parent)]
    setting = [path for path in PLUGINS if "sys.path" in path.read_text()]
    assert setting == [path for path in PLUGINS if path.parent.name == "callback"]
