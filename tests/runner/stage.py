"""The stages of script/test, read from stages.yml."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_name("stages.yml")
TIERS = ("default", "all", "slow", "long")
KEYS = {
    "does",
    "tier",
    "seconds",
    "slow",
    "nodes",
    "sandbox",
    "run",
    "molecule",
    "tests",
    "files",
    "options",
    "run_after",
}
MOLECULE = ("molecule", "test", "--no-command-borders", "--scenario-name")
# Selection of regular tests. Pipeline and campaign tests have separate stages.
REGULAR = "not slow and not campaign and not pipeline and not pipeline_gpu"
SLOW = "slow and not campaign"


class UnknownStageError(ValueError):
    """Raised if no stage has the requested name."""


@dataclass(frozen=True)
class Stage:
    """A test stage. The commands of a stage run in the checkout's root, one after the other."""

    name: str
    does: str
    # default: part of script/test. all: part of script/test all. slow: part of script/test slow. long: only by name.
    tier: str
    # Measured in continuous integration on two cores, next to another stage.
    seconds: int
    # Whether the stage needs containers.
    nodes: bool
    commands: tuple[tuple[str, ...], ...]
    # Suffix of a separate sandbox, if the lane's sandbox is not suitable.
    sandbox: str = ""


def read_stages(path: Path = TABLE) -> dict[str, Stage]:
    """Return all stages by name, in execution order."""
    table = yaml.safe_load(path.read_text())
    regular = [make_stage(name, entry) for name, entry in table.items()]
    slow = [slow_part(name, entry) for name, entry in table.items() if "slow" in entry]
    return {stage.name: stage for stage in [*regular, *slow]}


def slow_part(name: str, entry: dict[str, Any]) -> Stage:
    """Build the stage that runs the slow tests in the files of another stage."""
    its: dict[str, Any] = {"does": f"slow tests of {name}", "tier": "slow", "seconds": entry["slow"]}
    its |= {key: entry[key] for key in ("files", "options") if key in entry}
    return make_stage(f"{name}-slow", its)


def make_stage(name: str, entry: dict[str, Any]) -> Stage:
    """Build a stage from an entry of stages.yml. Raises ValueError if the entry is invalid."""
    if unknown := set(entry) - KEYS:
        raise ValueError(f"{name}: unknown keys {', '.join(sorted(unknown))}")
    if entry["tier"] not in TIERS:
        raise ValueError(f"{name}: tier is {entry['tier']!r}, not one of {', '.join(TIERS)}")
    commands = [
        *(tuple(words.split()) for words in entry.get("run", [])),
        *((*MOLECULE, scenario) for scenario in entry.get("molecule", [])),
        *(("pytest", *entry["tests"]) for _ in entry.get("tests", [])[:1]),
        *(pytest_of(entry) for _ in entry.get("files", [])[:1]),
        *(tuple(words.split()) for words in entry.get("run_after", [])),
    ]
    if not commands:
        raise ValueError(f"{name}: no command")
    nodes, sandbox = entry.get("nodes", True), entry.get("sandbox", "")
    return Stage(name, entry["does"], entry["tier"], entry["seconds"], nodes, tuple(commands), sandbox)


def pytest_of(entry: dict[str, Any]) -> tuple[str, ...]:
    marks = SLOW if entry["tier"] == "slow" else REGULAR
    paths = (path_of(name) for name in entry["files"])
    return ("pytest", "--verbose", "-m", marks, *entry.get("options", []), *paths)


def path_of(name: str) -> str:
    """Return the path of a test file or folder. The name of a folder ends with a slash."""
    return f"tests/integration/{name}" if name.endswith("/") else f"tests/integration/test_{name}.py"


def of_tier(stages: dict[str, Stage], *tiers: str) -> list[Stage]:
    return [stage for stage in stages.values() if stage.tier in tiers]


def find_stage(stages: dict[str, Stage], name: str, verbs: tuple[str, ...] = ()) -> Stage:
    """Return the stage with this name. Raises UnknownStageError with the most similar stage or verb."""
    if name in stages:
        return stages[name]
    near = difflib.get_close_matches(name, [*stages, *verbs], 1)
    hint = f"Did you mean {near[0]}?" if near else "script/test stages lists them."
    raise UnknownStageError(f"script/test has no stage {name!r}. {hint}")
