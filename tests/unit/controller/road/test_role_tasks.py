"""What a role gives its first look is read from its own tasks."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader

from muster.road.looks import LOOKS
from muster_controller.playbook.documentation import documented_options
from muster_controller.road.role_tasks import arguments_in
from paths import ROOT

TASKS: list[dict[str, Any]] = [
    {"name": "off", "ansible.builtin.meta": "end_role"},
    {
        "module_defaults": {"look": {"node": "n", "mode": "manage"}, "other": {"x": 1}},
        "block": [{"look": {"mode": "verify"}}, {"look": {"mode": "last"}}],
    },
]


def test_the_first_task_counts_with_the_defaults_around_it() -> None:
    assert arguments_in(TASKS, "look") == {"node": "n", "mode": "verify"}
    with pytest.raises(AnsibleError, match="No task uses nothing"):
        arguments_in(TASKS, "nothing")


@pytest.mark.parametrize("look", [look for looks in LOOKS.values() for look in looks], ids=lambda look: look.role)
def test_every_role_has_such_a_task_with_options_of_its_module(look: object) -> None:
    role, module, file = (getattr(look, name) for name in ("role", "module", "tasks"))
    tasks = DataLoader().load_from_file(str(ROOT / f"roles/{role}/tasks/{file}.yml"))
    # lock is the controller's: its action plugin reads it.
    assert set(arguments_in(tasks, module)) <= {*documented_options(module), "lock"}
