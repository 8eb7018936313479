"""The table of versions names its sources, and derived files are up to date."""

from __future__ import annotations

import importlib
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases import document_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

PROJECT = Path(__file__).parents[3]
TABLE = document_of(PROJECT / "roles/gpu_stack/files/versions.yml")
# Sections with rows at a deeper level
DEEPER = (TABLE["cuda"]["floor"], TABLE["cuda"]["native"], TABLE["packages"]["nccl"])


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and content of every table row."""
    plain = ("architectures", "nvlink_rates", "gpus", "branches", "systems", "torch", "older_torch")
    for section in (*(TABLE[name] for name in plain), *DEEPER):
        yield from section.items()
    for name, row in TABLE["gpus"].items():
        yield from ((f"a board of {name}", board) for board in row.get("boards", []))
    for name, builds in TABLE["builds"].items():
        yield from ((name, build) for build in builds)
    yield from ((name, row) for name, row in TABLE["packages"].items() if name != "nccl")
    yield from ((f"{row['branch']} on {row['kernel']}", row) for row in TABLE["kernels"])


def test_every_row_names_its_sources() -> None:
    used = set()
    for name, row in rows():
        sources = [row["source"]] if isinstance(row["source"], str) else row["source"]
        assert sources, name
        assert set(sources) <= set(TABLE["sources"]), name
        used |= set(sources)
    assert used == set(TABLE["sources"])


def test_derived_file_is_up_to_date() -> None:
    wanted = subprocess.run(
        [sys.executable, PROJECT / "script/known.py", "--show"], check=True, capture_output=True, text=True
    )
    derived = (PROJECT / "plugins/module_utils/muster/known/rows.py").read_text()
    assert derived == wanted.stdout, "run .venv/bin/python script/known.py"


def test_compute_capability_of_every_gpu_belongs_to_an_architecture() -> None:
    known = {capability for row in TABLE["architectures"].values() for capability in row["capabilities"]}
    assert {row["capability"] for row in TABLE["gpus"].values()} == known - {"5.0"}


def test_each_release_is_listed_once() -> None:
    older = [release for row in TABLE["older_torch"].values() for release in row["releases"]]
    patches = [release for row in TABLE["torch"].values() for release in row.get("patches", [])]
    releases = [*older, *patches, *TABLE["torch"]]
    assert len(releases) == len(set(releases))


def test_table_of_security_floors_is_too_old_for_a_release_after_60_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROJECT / "script"))
    known = importlib.import_module("known")
    seen = document_of(PROJECT / "roles/gpu_stack/files/floors.yml")["seen"]
    floors = "roles/gpu_stack/files/floors.yml: {} days, at most 60 for a release\n"
    assert [*known.ages(date.fromordinal(seen.toordinal() + 60), only_old=True)] == []
    assert [*known.ages(date.fromordinal(seen.toordinal() + 61), only_old=True)] == [floors.format(61)]
    said = [*known.ages(seen)]
    assert floors.format(0) in said
    # Of tables whose rows have dates, the oldest row counts.
    assert [line.partition(":")[0].split("/")[1] for line in said] == [
        "ddp_smoke",
        "gpu_stack",
        "gpu_stack",
        "package_sources",
    ]
