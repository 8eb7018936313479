"""What pip is asked for when nothing is locked yet, and where."""

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
    """Gives these answers, and keeps what it was asked."""

    def __init__(self, *answers: CommandResult) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []
        self.settings: dict[str, str] = {}

    def pip(self, argv: list[str], environment: dict[str, str], settings: dict[str, str]) -> CommandResult:
        assert not environment
        self.asked.append(argv)
        self.settings = settings
        return self.answers.pop(0)


def asked(tmp_path: Path, pip: Pip, **params: Any) -> list[list[str]]:
    packages = ["numpy==2.3.5", "torchvision==0.28.0+cpu"]
    request = make_request(torch_version="2.13.0", variant="cpu", gpus=0, packages=packages, python="3.12")
    given: dict[str, Any] = {**PARAMS, "source_builds": [], **params}
    house = wheelhouse.Wheelhouse(SimpleNamespace(root=tmp_path), given, request, SimpleNamespace())
    house._resolve(pip, ["pip"], {})
    return pip.asked


def test_of_the_index_of_pytorch_only_its_builds_are_taken(tmp_path: Path) -> None:
    everywhere, theirs, others = asked(
        tmp_path, Pip(CommandResult("", "", MISSING, 1), CommandResult("", code=0), CommandResult("", code=0))
    )
    assert all("--only-binary=:all:" in each for each in (everywhere, theirs, others))
    own = f"{PYTORCH_WHEELS}/cpu"
    assert [own in each for each in (everywhere, theirs, others)] == [False, True, False]
    assert theirs[-3:] == ["--no-deps", "torch==2.13.0+cpu", "torchvision==0.28.0+cpu"]
    assert others[-3:] == ["torch==2.13.0+cpu", "numpy==2.3.5", "torchvision==0.28.0+cpu"]


def test_what_is_built_does_not_see_the_passwords_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheelhouse, "own_settings", lambda: {".netrc": "machine index login me password secret"})
    trusted, builds = Pip(CommandResult("", code=0)), Pip(CommandResult("", code=0))
    asked(tmp_path, trusted)
    asked(tmp_path, builds, source_builds=["sourced"])
    assert list(trusted.settings) == [".netrc"]
    assert not builds.settings
    assert "--no-binary=sourced" in builds.asked[0]


def test_pip_that_does_not_run_is_an_answer(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="pip cannot run \\(systemd-run is not there\\)"):
        asked(tmp_path, Pip(CommandResult("", "systemd-run is not there", missing=True)))


@pytest.mark.parametrize(
    "address", ["{}", "file://{}", "file:{}", "file://localhost{}", "file://{}/page.html", "file://{}%20x"]
)
def test_a_folder_that_others_may_write_is_refused_however_its_address_is_written(tmp_path: Path, address: str) -> None:
    for name in ("wheels", "wheels x"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    (tmp_path / "wheels/page.html").touch()
    with pytest.raises(RefusedError, match="is writable by all users"):
        asked(tmp_path, Pip(), find_links=[address.format(tmp_path / "wheels")])


def test_a_folder_is_named_by_its_whole_path(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="pytorch_find_links: wheels is neither a URL nor the absolute path"):
        asked(tmp_path, Pip(), find_links=["wheels"])
