"""site.yml, the playbooks, the roles and the README match the declared steps."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from muster.road.steps import STEPS
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster.road.steps import RoadStep

# Roles outside of all steps: the sandbox precedes the cluster, and the others require a finished cluster.
OF_NO_STEP = {"comparison", "diagnose", "drift", "jobs", "notebook", "onboard", "sandbox", "upgrade", "wipe"}


def test_site_yml_contains_the_steps_in_order() -> None:
    plays = yaml.safe_load((ROOT / "site.yml").read_text())
    assert [(play["name"], play["ansible.builtin.import_playbook"]) for play in plays] == [
        (step.name, step.playbook) for step in STEPS
    ]


def test_every_role_belongs_to_one_step() -> None:
    roles = [role for step in STEPS for role in step.roles]
    assert len(roles) == len(set(roles))
    assert {path.name for path in (ROOT / "roles").iterdir()} - OF_NO_STEP == set(roles)


def roles_named(tasks: Any) -> Iterator[str]:
    """Return every role that a playbook names literally, at any place."""
    if isinstance(tasks, list):
        for task in tasks:
            yield from roles_named(task)
    elif isinstance(tasks, dict):
        for key, value in tasks.items():
            if key == "role" or key.endswith(("include_role", "import_role")):
                name = value if isinstance(value, str) else value["name"]
                yield from [] if "{{" in name else [name]
            else:
                yield from roles_named(value)


@pytest.mark.parametrize("step", STEPS, ids=[step.tag for step in STEPS])
def test_playbook_of_a_step_has_its_tag_and_roles(step: RoadStep) -> None:
    plays = yaml.safe_load((ROOT / step.playbook).read_text())
    own = [play for play in plays if "hosts" in play]
    assert {play["name"] for play in own} <= {step.name, "Validate the inventory"}
    # The inventory is always validated.
    assert all(play["tags"] in ([step.tag], "always") for play in own)
    earlier = {role for one in STEPS[: STEPS.index(step) + 1] for role in one.roles}
    assert set(roles_named(plays)) <= earlier


@pytest.mark.parametrize("step", STEPS, ids=[step.tag for step in STEPS])
def test_options_of_a_step_belong_to_its_roles(step: RoadStep) -> None:
    options: set[str] = set()
    for role in step.roles:
        specs = yaml.safe_load((ROOT / "roles" / role / "meta/argument_specs.yml").read_text())["argument_specs"]
        options |= set(next(iter(specs.values())).get("options", {}))
    assert set(step.agree) <= options


def test_readme_lists_the_steps() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "script/road.py", "--show"], check=True, capture_output=True, text=True
    )
    assert (ROOT / "README.md").read_text() == done.stdout, "run .venv/bin/python script/road.py"
