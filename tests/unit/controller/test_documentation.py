"""The options of a module are those that it documents."""

from __future__ import annotations

import re

import pytest
import yaml

from muster_controller.documentation import argument_spec
from paths import ROOT

ACTIONS = sorted(path.stem for path in (ROOT / "plugins/action").glob("*.py"))


def test_what_validation_needs_is_read_from_the_documentation() -> None:
    spec = argument_spec("torchrun_launch")
    assert spec["rendezvous_timeout"] == {"type": "int", "default": 120}
    assert spec["script_args"] == {"type": "list", "elements": "str", "default": []}


# The role's user watches rank 0; a task that says nothing of it, such as that of the smoke launch, shows none.
@pytest.mark.parametrize(
    ("module", "role", "differing"), [("torchrun_launch", "launch", {"show_rank"}), ("firewall", "firewall", set())]
)
def test_a_module_has_the_defaults_of_its_role(module: str, role: str, differing: set[str]) -> None:
    spec = argument_spec(module)
    defaults = yaml.safe_load((ROOT / f"roles/{role}/defaults/main.yml").read_text())
    own = {name.removeprefix(f"{role}_"): value for name, value in defaults.items()}
    assert {name for name in own.keys() & spec.keys() if own[name] != spec[name]["default"]} == differing


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_validates_what_its_module_documents(action: str) -> None:
    text = (ROOT / f"plugins/action/{action}.py").read_text()
    for given in re.findall(r"validate_argument_spec\((.*)\)$", text, re.MULTILINE):
        assert given == f'argument_spec("{action}")'
    assert all("type" in option for option in argument_spec(action).values())
