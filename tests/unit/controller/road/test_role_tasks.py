"""Arguments of the inspection module of a role are read from the tasks of the role."""

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


def test_first_inspection_task_is_used_with_its_module_defaults() -> None:
    assert arguments_in(TASKS, "look") == {"node": "n", "mode": "verify"}
    with pytest.raises(AnsibleError, match="No task uses nothing"):
        arguments_in(TASKS, "nothing")


@pytest.mark.parametrize("look", [look for looks in LOOKS.values() for look in looks], ids=lambda look: look.role)
def test_each_role_has_an_inspection_task_with_valid_options(look: object) -> None:
    role, module, file = (getattr(look, name) for name in ("role", "module", "tasks"))
    tasks = DataLoader().load_from_file(str(ROOT / f"roles/{role}/tasks/{file}.yml"))
    # The action plugin reads lock on the controller.
    assert set(arguments_in(tasks, module)) <= {*documented_options(module), "lock"}
