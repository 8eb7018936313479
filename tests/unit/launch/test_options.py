"""The options of a launch."""

from __future__ import annotations

from typing import Any

import pytest

from muster.launch.options import LaunchOptions


@pytest.mark.parametrize(
    ("given", "script", "local"),
    [
        ({"script": "train.py"}, "", "train.py"),
        ({"script": "/srv/train.py"}, "/srv/train.py", ""),
        ({"script": "train.py", "project": "."}, "train.py", ""),
        ({"script": "train.py", "image": "x.tar"}, "train.py", ""),
        ({"script": "train.py", "chdir": "/srv"}, "train.py", ""),
        ({"script": "train.py", "script_src": "other.py"}, "train.py", "other.py"),
        ({"module": "project.train"}, "", ""),
    ],
)
def test_relative_script_is_on_the_controller(given: dict[str, Any], script: str, local: str) -> None:
    options = LaunchOptions(**given).with_local_script()
    assert (options.script, options.script_src) == (script, local)
