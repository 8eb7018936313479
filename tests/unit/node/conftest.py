"""What modules import as ansible.module_utils.muster, tests of those modules find there, too; and what tests share."""

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
    """End a test that waits for the other end of a FIFO."""
    signal.alarm(10)
    yield
    signal.alarm(0)
