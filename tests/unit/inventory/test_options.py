"""Options are read as strictly as they are declared, and what is wrong with a value is said in a few words."""

from __future__ import annotations

from typing import Any

import pytest

from muster.inventory.options import Option, read

MODE = Option("firewall_mode", choices=("manage", "verify", "off"))
NUMBER = Option("number", "int")
SWITCH = Option("switch", "bool")
RATIO = Option("ratio", "float")
NAMES = Option("names", "list")
ENTRIES = Option("entries", "list", elements="dict")
PAIRS = Option("pairs", "dict")
STAGES = Option("stages", "list", choices=("world", "device", "train"))


@pytest.mark.parametrize(
    ("option", "value", "result"),
    [
        (MODE, "off", "off"),
        (NUMBER, "8", 8),
        (SWITCH, "no", False),
        (RATIO, 1, 1.0),
        (RATIO, "0.5", 0.5),
        (NAMES, "a, b,", ["a", "b"]),
        (NAMES, ["a", ""], ["a"]),
        (ENTRIES, [{"port": 1}], [{"port": 1}]),
        (STAGES, ["train", "world"], ["train", "world"]),
        (STAGES, [], []),
        (PAIRS, {"a": 1}, {"a": 1}),
        (PAIRS, '{"a": 1}', {"a": 1}),
        (Option("anything", "raw"), None, None),
    ],
)
def test_a_value_is_read_as_its_type(option: Option, value: Any, result: Any) -> None:
    assert read(option, value) == result


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        (MODE, False, 'is False, as YAML reads off without quotes; write "off"'),
        (MODE, True, "is True, not text; put it in quotes"),
        (MODE, "of", "is 'of', not one of manage, verify, off"),
        (MODE, None, "has no value"),
        (MODE, {"a": 1}, "is {'a': 1}, not text"),
        (NUMBER, True, "is True, not a whole number"),
        (NUMBER, 1.5, "is 1.5, not a whole number"),
        (NUMBER, "9" * 5000, f"is '{'9' * 76}..., not a whole number"),
        (SWITCH, "maybe", "is 'maybe', not true or false"),
        (RATIO, "half", "is 'half', not a number"),
        (NAMES, {"a": 1}, "is {'a': 1}, not a list"),
        (NAMES, ["a", 2], "has an entry, the second, that is 2, not text; put it in quotes"),
        (NAMES, ["a", None], "has an entry, the second, that has no value"),
        (ENTRIES, "9100", "is '9100', not a list"),
        (ENTRIES, [9100], "has an entry, the first, that is 9100, not a mapping of names to values"),
        (STAGES, "world, trian", "has 'trian', which is not one of world, device, train; did you mean train?"),
        (STAGES, ["x"], "has 'x', which is not one of world, device, train"),
        (PAIRS, "a=1", "is 'a=1', not a mapping of names to values"),
    ],
)
def test_what_is_wrong_is_said(option: Option, value: Any, error: str) -> None:
    with pytest.raises(ValueError, match=r"^") as refused:
        read(option, value)
    assert str(refused.value) == error


def test_a_number_that_python_refuses_to_print_is_refused_in_words() -> None:
    for option in (SWITCH, MODE, NAMES, PAIRS):
        with pytest.raises(ValueError, match=r"^is a number of thousands of digits, not "):
            read(option, 10**5000)
