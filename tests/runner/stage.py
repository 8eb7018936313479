"""The stages of script/test, read from stages.yml."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_name("stages.yml")
TIERS = ("default", "all", "long")
KEYS = {"does", "tier", "seconds", "nodes", "sandbox", "run", "molecule", "tests", "files", "run_after"}
MOLECULE = ("molecule", "test", "--no-command-borders", "--scenario-name")
# What the stages by name leave to the pipeline and to the long tiers.
REST = "not slow and not campaign and not pipeline and not pipeline_gpu"


class UnknownStageError(ValueError):
    """No stage has this name."""


@dataclass(frozen=True)
class Stage:
    """One part of the tests. Its commands run in the root of the checkout, one after the other."""

    name: str
    does: str
    # default: part of script/test. all: part of script/test all. long: only by its own name.
    tier: str
    # Measured by continuous integration on two cores, beside another stage.
    seconds: int
    # Whether it needs the containers of a sandbox.
    nodes: bool
    commands: tuple[tuple[str, ...], ...]
    # Suffix of a sandbox of its own, where that of its lane will not do.
    sandbox: str = ""


def read_stages(path: Path = TABLE) -> dict[str, Stage]:
    """Return all stages by name, in the order in which they run."""
    table = yaml.safe_load(path.read_text())
    return {name: make_stage(name, entry) for name, entry in table.items()}


def make_stage(name: str, entry: dict[str, Any]) -> Stage:
    """Build a stage of an entry in stages.yml. Raises ValueError where it is wrong."""
    if unknown := set(entry) - KEYS:
        raise ValueError(f"{name}: unknown keys {', '.join(sorted(unknown))}")
    if entry["tier"] not in TIERS:
        raise ValueError(f"{name}: tier is {entry['tier']!r}, not one of {', '.join(TIERS)}")
    commands = [
        *(tuple(words.split()) for words in entry.get("run", [])),
        *((*MOLECULE, scenario) for scenario in entry.get("molecule", [])),
        *(("pytest", *entry["tests"]) for _ in entry.get("tests", [])[:1]),
        *(pytest_of(entry["files"]) for _ in entry.get("files", [])[:1]),
        *(tuple(words.split()) for words in entry.get("run_after", [])),
    ]
    if not commands:
        raise ValueError(f"{name}: no command")
    nodes, sandbox = entry.get("nodes", True), entry.get("sandbox", "")
    return Stage(name, entry["does"], entry["tier"], entry["seconds"], nodes, tuple(commands), sandbox)


def pytest_of(files: list[str]) -> tuple[str, ...]:
    return ("pytest", "--verbose", "-m", REST, *(f"tests/integration/test_{name}.py" for name in files))


def of_tier(stages: dict[str, Stage], *tiers: str) -> list[Stage]:
    return [stage for stage in stages.values() if stage.tier in tiers]


def find_stage(stages: dict[str, Stage], name: str, verbs: tuple[str, ...] = ()) -> Stage:
    """Return the stage of that name. Raises UnknownStageError, which names the nearest stage or verb."""
    if name in stages:
        return stages[name]
    near = difflib.get_close_matches(name, [*stages, *verbs], 1)
    hint = f"Did you mean {near[0]}?" if near else "script/test stages lists them."
    raise UnknownStageError(f"script/test has no stage {name!r}. {hint}")
