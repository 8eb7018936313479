"""Parsing of environment variable files.

cases/environment: lines NAME=value -> the variables, or all problems. Problems do not contain values.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.launch.environment import holds_lines, parse_lines
from muster.launch.plan import PlanError


@cases(__file__, "environment")
def test_environment_file_lines_are_parsed(case: dict[str, Any]) -> None:
    assert holds_lines(case["text"])
    if "problems" not in case:
        assert parse_lines(case["text"]) == case["expect"]
        return
    with pytest.raises(PlanError) as refusal:
        parse_lines(case["text"])
    assert refusal.value.problems == case["problems"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "HF_TOKEN: hf-1\n", '{"A": "b=c"}', "---\nA: b=c\n", "hf-abc=\n"])
def test_other_file_formats_are_not_read_as_variable_lines(text: str) -> None:
    assert not holds_lines(text)
