"""Environment and arguments of a launch, and the secrets among them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from launch_shapes import LAUNCH_ID, a_plan
from muster.launch.options import LaunchOptions
from muster.launch.plan import PlanError
from muster.verdict.masking import MASK
from muster_controller.launch.given import read_given

if TYPE_CHECKING:
    from pathlib import Path


def file_of(folder: Path, text: str) -> str:
    path = folder / "token.env"
    path.touch(mode=0o600)
    path.write_text(text)
    return str(path)


def test_environment_file_overrides_launch_env(tmp_path: Path) -> None:
    file = file_of(tmp_path, "HF_TOKEN=hf-1234\n")
    options = LaunchOptions(env={"HF_TOKEN": "old", "STEPS": 3}, env_file=file)
    given, warnings = read_given(options)
    assert given.env == {"HF_TOKEN": "hf-1234", "STEPS": "3"}
    assert given.env_from == {"HF_TOKEN": "launch_env_file", "STEPS": "launch_env"}
    assert given.redaction.text("hf-1234") == MASK
    assert [*warnings, *given.warnings(a_plan(given=given.env_from))] == []


def test_secrets_in_arguments_and_values_that_cannot_be_masked_are_reported() -> None:
    args = ["--hf_token=a-1234", "--lr", "0.1", "--password", "b-1234", "--db=postgres://ada:c-1234@db/x"]
    given, _ = read_given(LaunchOptions(script_args=args, env={"DB_PWD": "abc", "API_KEY": "test", "NO_TOKEN": 1}))
    assert given.redaction.text("a-1234 0.1 b-1234 c-1234") == f"{MASK} 0.1 {MASK} {MASK}"
    arguments, common = given.warnings(a_plan())
    assert "the value of --hf_token, --password, --db is visible to every user of the nodes in" in arguments
    assert common == "The value of DB_PWD, API_KEY is too short or too common to be masked in logs"


def test_attaching_without_secret_values_is_reported() -> None:
    kept = {"HF_TOKEN": "launch_env", "HUB": "launch_env_file", "STEPS": "launch_env"}
    given, _ = read_given(LaunchOptions(attach="20260101-120000-abcd"))
    assert [text.partition(" is unknown")[0] for text in given.warnings(a_plan(given=kept))] == [
        "The value of HF_TOKEN, HUB"
    ]


@pytest.mark.parametrize("known", [LaunchOptions(attach=LAUNCH_ID), LaunchOptions(stop=LAUNCH_ID)])
def test_unreadable_file_does_not_prevent_attaching_or_stopping(tmp_path: Path, known: LaunchOptions) -> None:
    file = str(tmp_path / "none")
    with pytest.raises(PlanError):
        read_given(LaunchOptions(env_file=file))
    given, warnings = read_given(replace(known, env_file=file))
    assert given.env == {}
    assert len(warnings) == 1
    assert f" launch_env_file {tmp_path}/none: the file cannot be read: No such file or " in warnings[0]
