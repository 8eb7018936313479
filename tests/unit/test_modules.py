"""The documented options of a module match its argument spec, and options are declared only once."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible import module_utils
from ansible.module_utils.testing import patch_module_args
from ansible.plugins.loader import action_loader

from muster_controller.playbook.documentation import documented_options

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
# The others only document an action plugin.
ON_NODES = [path for path in sorted((ROOT / "library").glob("*.py")) if "AnsibleModule(" in path.read_text()]
ACTIONS = sorted((ROOT / "plugins/action").glob("*.py"))


class GivenError(Exception):
    """Exception that stops a module's main function once the argument spec is known."""


def no_module(argument_spec: Mapping[str, Any], **_: Any) -> None:
    """Stub of AnsibleModule."""
    raise GivenError(argument_spec)


def spec_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Return the argument spec that the module's main passes to AnsibleModule."""
    monkeypatch.setattr(module_utils, "__path__", [*module_utils.__path__, str(ROOT / "plugins/module_utils")])
    described = importlib.util.spec_from_file_location(f"library_{path.stem}", path)
    assert described
    assert described.loader
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    monkeypatch.setattr(module, "AnsibleModule", no_module)
    with pytest.raises(GivenError) as given:
        module.main()
    spec: Mapping[str, Any] = given.value.args[0]
    return spec


def said(options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the options with Ansible's defaults filled in."""
    return {
        name: {
            "type": option.get("type", "str"),
            "required": option.get("required", False),
            "default": option.get("default"),
            "choices": option.get("choices"),
            "elements": option.get("elements"),
            "aliases": option.get("aliases", []),
            "options": said(option.get("options") or {}),
        }
        for name, option in options.items()
    }


@pytest.mark.parametrize("path", ON_NODES, ids=lambda path: path.stem)
def test_module_documentation_matches_argument_spec(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(documented_options(path.stem)) == said(spec_of(path, monkeypatch))


@pytest.mark.parametrize("path", ON_NODES, ids=lambda path: path.stem)
def test_module_is_executable(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module_utils, "__path__", [*module_utils.__path__, str(ROOT / "plugins/module_utils")])
    with patch_module_args({"no_such_option": 1}), pytest.raises(SystemExit):
        runpy.run_path(str(path), run_name="__main__")
    said = json.loads(capsys.readouterr().out)
    assert said["failed"] is True
    assert re.search("missing required arguments|Unsupported parameters", said["msg"])


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.stem)
def test_action_options_are_declared_once(path: Path) -> None:
    """Options are declared in the documentation of the public module with the same name, or in the action plugin
    itself."""
    tree = ast.parse(path.read_text())
    declared = [
        node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "OPTIONS"
    ]
    is_public = (ROOT / "library" / path.name).exists()
    assert len(declared) == (not is_public)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if ast.unparse(call.func).endswith("validate_argument_spec"):
            assert ast.unparse(call.args[0]) == f"documented_options('{path.stem}')"


@pytest.mark.parametrize(
    "path", [path for path in ACTIONS if not (ROOT / "library" / path.name).exists()], ids=lambda path: path.stem
)
def test_declared_options_have_type_and_description(path: Path) -> None:
    action = action_loader.get(path.stem, class_only=True)
    known = {"type", "required", "default", "choices", "elements", "options"}
    assert all("type" in option and set(option) <= known for option in action.OPTIONS.values())
    text = path.read_text()
    assert all(re.search(rf'^ +# .+\n +"{name}": ', text, re.MULTILINE) for name in action.OPTIONS)


def test_suboptions_become_nested_options() -> None:
    file = documented_options("node_plan")["files"]
    assert (file["type"], file["elements"]) == ("list", "dict")
    assert file["options"]["path"] == {"type": "path", "required": True}


def test_version_added_of_every_module_is_valid() -> None:
    releases = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    for path in sorted((ROOT / "library").glob("*.py")):
        said = re.search(r'^version_added: "(.+)"$', path.read_text(encoding="utf-8"), re.MULTILINE)
        assert said, path.name
        # Unreleased modules belong to the next release.
        assert said[1] in releases or "Unreleased" in releases, f"{path.name}: {said[1]}"
