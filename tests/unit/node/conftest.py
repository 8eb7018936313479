"""Shared fixtures. This file also makes ansible.module_utils.muster importable."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import ansible.module_utils
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ansible.module_utils.__path__.append(str(Path(__file__).parents[3] / "plugins/module_utils"))


@pytest.fixture
def nothing_waits() -> Iterator[None]:
    """Abort a test that blocks on a FIFO for 10 s."""
    signal.alarm(10)
    yield
    signal.alarm(0)
