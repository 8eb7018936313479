"""Tags that no playbook has."""

from __future__ import annotations

import pytest

from muster_controller.playbook.tags import unknown_tags


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["all"], ""),
        (["network", "ddp_smoke", "launch_users", "never"], ""),
        (["molecule-notest", "notest"], ""),
        (["pytroch"], "There is no tag pytroch (did you mean pytorch?). No node was contacted."),
        (["network", "zzz", "helth"], "There are no tags zzz, helth (did you mean health?). No node was contacted."),
    ],
)
def test_unknown_tags_are_named(given: list[str], sentence: str) -> None:
    assert unknown_tags(given) == sentence
