"""Each measurement of tests/bench can be imported as its docstring starts it. tests/slow/test_benches.py runs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benches import FOLDER, NAMES, ROOT, environment

IMPORT = "import runpy, sys; sys.path[0] = sys.argv[1].rpartition('/')[0]; runpy.run_path(sys.argv[1])"


@pytest.mark.parametrize("name", NAMES)
def test_measurement_can_be_imported_as_its_docstring_starts_it(name: str) -> None:
    argv = [sys.executable, "-c", IMPORT, str(FOLDER / f"{name}.py")]
    done = subprocess.run(argv, cwd=ROOT, env=environment(name), check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
