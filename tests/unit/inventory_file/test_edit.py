"""Edits of an inventory change only the intended text."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cases import cases
from muster.inventory_file import changes
from muster.inventory_file.tree import CannotEditError
from muster_controller.inventory.yaml_parts import LANGUAGE


def edited(text: str, edits: list[dict[str, Any]]) -> str:
    for edit in edits:
        ((verb, of),) = edit.items()
        for name, what in of.items():
            if verb == "add":
                text = changes.add(text, "gpu_nodes", name, what, LANGUAGE)
            elif verb == "remove":
                text = changes.remove(text, name, LANGUAGE)
            elif verb == "set":
                text = changes.assign(text, name, what, LANGUAGE)
            elif verb == "unset":
                text = changes.unassign(text, name, what, LANGUAGE)
            elif verb == "set_alone":
                text = changes.assign_alone(text, {name: what}, LANGUAGE)
            elif verb == "unset_alone":
                text = changes.unassign_alone(text, [name], LANGUAGE)
    return text


@cases(__file__, "edit")
def test_edited_text_matches_the_case(case: dict[str, Any]) -> None:
    if "refused" in case:
        with pytest.raises(CannotEditError) as found:
            edited(case["before"], case["do"])
        assert str(found.value) == case["refused"]
        return
    after = edited(case["before"], case["do"])
    assert after == case["after"]
    yaml.safe_load(after)
    assert edited(after, case["do"]) == after, "a second run changes nothing"
