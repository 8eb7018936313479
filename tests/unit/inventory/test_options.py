"""Options are converted strictly to their declared types. Error messages describe invalid values briefly."""

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
def test_value_is_converted_to_its_declared_type(option: Option, value: Any, result: Any) -> None:
    assert read(option, value) == result


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        (MODE, False, 'is False: YAML reads unquoted off as a boolean; use "off"'),
        (MODE, True, "is True, not text; enclose it in quotes"),
        (MODE, "of", "is 'of', not one of manage, verify, off"),
        (MODE, None, "has no value"),
        (MODE, {"a": 1}, "is {'a': 1}, not text"),
        (NUMBER, True, "is True, not a whole number"),
        (NUMBER, 1.5, "is 1.5, not a whole number"),
        (NUMBER, "9" * 5000, f"is '{'9' * 76}..., not a whole number"),
        (SWITCH, "maybe", "is 'maybe', not true or false"),
        (RATIO, "half", "is 'half', not a number"),
        (NAMES, {"a": 1}, "is {'a': 1}, not a list"),
        (NAMES, ["a", 2], "has an invalid second entry: it is 2, not text; enclose it in quotes"),
        (NAMES, ["a", None], "has an invalid second entry: it has no value"),
        (ENTRIES, "9100", "is '9100', not a list"),
        (ENTRIES, [9100], "has an invalid first entry: it is 9100, not a mapping of names to values"),
        (STAGES, "world, trian", "has 'trian', which is not one of world, device, train; did you mean train?"),
        (STAGES, ["x"], "has 'x', which is not one of world, device, train"),
        (PAIRS, "a=1", "is 'a=1', not a mapping of names to values"),
    ],
)
def test_invalid_value_is_described(option: Option, value: Any, error: str) -> None:
    with pytest.raises(ValueError, match=r"^") as raised:
        read(option, value)
    assert str(raised.value) == error


def test_number_too_long_to_print_is_described() -> None:
    for option in (SWITCH, MODE, NAMES, PAIRS):
        with pytest.raises(ValueError, match=r"^is a number with thousands of digits, not "):
            read(option, 10**5000)
