from __future__ import annotations

from pathlib import Path

import pytest

from cases import document_of
from muster.gpu_stack.table import Table

PROJECT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def table() -> Table:
    return Table(document_of(PROJECT / "roles/gpu_stack/files/versions.yml"))
