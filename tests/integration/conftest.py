"""The sandbox is up while the integration tests run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from machines import find_machine, list_nodes, run_playbook

if TYPE_CHECKING:
    from collections.abc import Callable

    from machines import Machine, Play, Result


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The sandbox is up, with three nodes and an outsider. It stays up for the next run."""
    list_nodes()
    result = run_playbook(tmp_path_factory.mktemp("sandbox_up"), "playbooks/sandbox_up.yml")
    assert result.rc == 0, result.stdout


@pytest.fixture(scope="session")
def play(sandbox: None, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Run a playbook of the repository on the sandbox."""

    def run(playbook: str, **wishes: Any) -> Result:
        return run_playbook(tmp_path_factory.mktemp(Path(playbook).stem), playbook, **wishes)

    return run


@pytest.fixture(scope="session")
def node(sandbox: None) -> Callable[[str], Machine]:
    """Look up a machine of the sandbox by its name in the inventory."""
    return find_machine
