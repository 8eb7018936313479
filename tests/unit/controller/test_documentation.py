"""The options of a module are those that it documents."""

from __future__ import annotations

import yaml

from muster_controller.documentation import argument_spec
from paths import ROOT


def test_what_validation_needs_is_read_from_the_documentation() -> None:
    spec = argument_spec("torchrun_launch")
    assert spec["rendezvous_timeout"] == {"type": "int", "default": 120}
    assert spec["script_args"] == {"type": "list", "elements": "str", "default": []}


def test_a_launch_has_the_defaults_of_its_role() -> None:
    spec = argument_spec("torchrun_launch")
    role = yaml.safe_load((ROOT / "roles/launch/defaults/main.yml").read_text())
    own = {name.removeprefix("launch_"): value for name, value in role.items()}
    # The role's user watches rank 0; a task that says nothing of it, such as that of the smoke launch, shows none.
    differing = {name for name in own.keys() & spec.keys() if own[name] != spec[name]["default"]}
    assert differing == {"show_rank"}
