from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from muster.gpu_stack.table import Table

PROJECT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def table() -> Table:
    return Table(yaml.safe_load((PROJECT / "roles/gpu_stack/files/versions.yml").read_text()))
