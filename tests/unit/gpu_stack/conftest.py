from __future__ import annotations

from pathlib import Path

import pytest

from cases import document_of
from muster.gpu_stack.table import VersionsTable

PROJECT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def table() -> VersionsTable:
    return VersionsTable(document_of(PROJECT / "roles/gpu_stack/files/versions.yml"))
