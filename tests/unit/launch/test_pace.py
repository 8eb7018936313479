"""How long a node is allowed to be silent."""

from __future__ import annotations

import pytest

from muster.launch.watch import pace


@pytest.mark.parametrize(("nodes", "requested", "patience"), [(2, 0, 9.0), (2, 60, 60.0), (2, 3, 9.0), (400, 0, 14.75)])
def test_requested_silence_timeout_has_a_minimum(nodes: int, requested: float, patience: float) -> None:
    found = pace(nodes, requested)
    assert found.patience == patience
    assert found.notice < found.patience < found.lease
