"""The rules require only the standard library of Python 3.10, so that a single file can run them on a node."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipapp
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cases import document_of
from muster.health.node import judge_looks
from paths import ROOT

HERE = Path(__file__).parent
UTILS = ROOT / "plugins/module_utils"
MAIN = "from muster.health.__main__ import main\nmain()\n"
REQUEST = document_of(HERE / "recorded/request.yml")


def archive() -> bytes:
    """Build the zipapp and return its path."""
    files = {path.relative_to(UTILS): path.read_text() for room in UTILS.iterdir() for path in room.rglob("*.py")}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in sorted({**files, Path("__main__.py"): MAIN}.items()):
            packed.writestr(zipfile.ZipInfo(str(name)), text, zipfile.ZIP_DEFLATED)
    content.seek(0)
    app = io.BytesIO()
    zipapp.create_archive(content, app, interpreter="/usr/bin/env python3")
    return app.getvalue()


def oldest_python() -> str:
    """Return pyenv's Python 3.10 if installed, otherwise the Python that runs the tests."""
    there = sorted((Path.home() / ".pyenv/versions").glob("3.10.*/bin/python3"))
    return str(there[-1]) if there else sys.executable


def judged_alone(app: Path, looks: Any) -> Any:
    done = subprocess.run(
        [oldest_python(), "-I", "-S", app],
        input=json.dumps({"looks": looks, "request": REQUEST}),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("user", ["there", "missing"])
def test_zipapp_and_controller_return_the_same_verdict(user: str, tmp_path: Path) -> None:
    looks = document_of(HERE / "recorded/node.yml")
    if user == "missing":
        looks["users"]["training_user"] = None
    app = tmp_path / "judge.pyz"
    app.write_bytes(archive())
    alone = judged_alone(app, looks)
    assert alone == json.loads(json.dumps(judge_looks(looks, REQUEST)))
    assert alone["verdict"]["status"] == {"there": "healthy", "missing": "failed"}[user]


def test_zipapp_is_built_reproducibly() -> None:
    assert archive() == archive()
