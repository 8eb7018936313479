"""Module options are read from the module documentation, and their defaults match those of the roles."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import yaml

from muster.launch.options import LaunchOptions
from muster_controller.playbook.documentation import documented_options
from paths import ROOT

MODULES = sorted(path.stem for path in (ROOT / "library").glob("*.py"))


def test_option_specs_are_read_from_the_documentation() -> None:
    spec = documented_options("torchrun_launch")
    assert spec["rendezvous_timeout"] == {"type": "int", "default": 120}
    assert spec["script_args"] == {"type": "list", "elements": "str", "default": []}


def test_launch_options_match_the_documentation() -> None:
    documented = {name: spec["default"] for name, spec in documented_options("torchrun_launch").items()}
    assert asdict(LaunchOptions()) == documented


# The role shows rank 0 by default. The module shows no rank by default, for example in the smoke launch. The mode of a
# role is that of the cluster by default.
@pytest.mark.parametrize(
    ("module", "role", "differing"), [("torchrun_launch", "launch", {"show_rank"}), ("firewall", "firewall", {"mode"})]
)
def test_module_defaults_match_the_role_defaults(module: str, role: str, differing: set[str]) -> None:
    spec = documented_options(module)
    defaults = yaml.safe_load((ROOT / f"roles/{role}/defaults/main.yml").read_text())
    own = {name.removeprefix(f"{role}_"): value for name, value in defaults.items()}
    assert {name for name in own.keys() & spec.keys() if own[name] != spec[name]["default"]} == differing


@pytest.mark.parametrize("module", MODULES)
def test_every_option_declares_a_type(module: str) -> None:
    assert all("type" in option for option in documented_options(module).values())
