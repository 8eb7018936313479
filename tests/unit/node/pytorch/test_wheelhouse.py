"""Arguments and indexes of pip for the first resolve without a lock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ansible.module_utils.muster.pytorch.pip import PYTORCH_WHEELS
from ansible.module_utils.muster.pytorch.request import make_request
from ansible.module_utils.muster_node.pytorch import wheelhouse
from ansible.module_utils.muster_node.tools.result import RefusedError
from ansible.module_utils.muster_node.tools.run import CommandResult

if TYPE_CHECKING:
    from pathlib import Path

MISSING = "ERROR: No matching distribution found for torch==2.13.0+cpu\n"
PARAMS = {"index_url": "auto", "extra_index_urls": [], "find_links": [], "offline_dir": "", "mirror": {}}


class Pip:
    """Stub of pip that returns given results and records its arguments."""

    def __init__(self, *answers: CommandResult) -> None:
        self.answers = list(answers)
        self.calls: list[list[str]] = []
        self.settings: dict[str, str] = {}

    def pip(self, argv: list[str], environment: dict[str, str], settings: dict[str, str]) -> CommandResult:
        assert not environment
        self.calls.append(argv)
        self.settings = settings
        return self.answers.pop(0)


def pip_calls(tmp_path: Path, pip: Pip, **params: Any) -> list[list[str]]:
    packages = ["numpy==2.3.5", "torchvision==0.28.0+cpu"]
    request = make_request(torch_version="2.13.0", variant="cpu", gpus=0, packages=packages, python="3.12")
    given: dict[str, Any] = {**PARAMS, "source_builds": [], **params}
    house = wheelhouse.Wheelhouse(SimpleNamespace(root=tmp_path), given, request, SimpleNamespace())
    house._resolve(pip, ["pip"], {})
    return pip.calls


def test_pytorch_index_is_used_only_for_pytorch_builds(tmp_path: Path) -> None:
    everywhere, theirs, others = pip_calls(
        tmp_path, Pip(CommandResult("", "", MISSING, 1), CommandResult("", code=0), CommandResult("", code=0))
    )
    assert all("--only-binary=:all:" in each for each in (everywhere, theirs, others))
    own = f"{PYTORCH_WHEELS}/cpu"
    assert [own in each for each in (everywhere, theirs, others)] == [False, True, False]
    assert theirs[-3:] == ["--no-deps", "torch==2.13.0+cpu", "torchvision==0.28.0+cpu"]
    assert others[-3:] == ["torch==2.13.0+cpu", "numpy==2.3.5", "torchvision==0.28.0+cpu"]


def test_source_builds_cannot_read_passwords_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheelhouse, "own_settings", lambda: {".netrc": "machine index login me password secret"})
    trusted, builds = Pip(CommandResult("", code=0)), Pip(CommandResult("", code=0))
    pip_calls(tmp_path, trusted)
    pip_calls(tmp_path, builds, source_builds=["sourced"])
    assert list(trusted.settings) == [".netrc"]
    assert not builds.settings
    assert "--no-binary=sourced" in builds.calls[0]


def test_pip_that_cannot_run_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="pip cannot run \\(systemd-run is not there\\)"):
        pip_calls(tmp_path, Pip(CommandResult("", "systemd-run is not there", missing=True)))


@pytest.mark.parametrize(
    "address", ["{}", "file://{}", "file:{}", "file://localhost{}", "file://{}/page.html", "file://{}%20x"]
)
def test_folder_writable_by_other_users_is_rejected_in_every_url_form(tmp_path: Path, address: str) -> None:
    for name in ("wheels", "wheels x"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    (tmp_path / "wheels/page.html").touch()
    with pytest.raises(RefusedError, match="is writable by all users"):
        pip_calls(tmp_path, Pip(), find_links=[address.format(tmp_path / "wheels")])


def test_relative_find_links_path_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="pytorch_find_links: wheels is neither a URL nor the absolute path"):
        pip_calls(tmp_path, Pip(), find_links=["wheels"])
