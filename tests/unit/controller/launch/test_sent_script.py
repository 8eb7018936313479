"""Copying of a script, or of a folder of Python files, to the nodes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from muster_controller.launch import sent_script
from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an application with two modules, and with other files that are not copied."""
    files = {
        "__main__.py": "from parts.said import WORD\nprint(WORD)\n",
        "parts/__init__.py": "",
        "parts/said.py": "WORD = 'said'\n",
        "parts/data.bin": "large",
        "notes.md": "",
        ".venv/lib/torch.py": "raise SystemExit",
        "parts/.hidden.py": "",
    }
    for name, text in files.items():
        path = tmp_path / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "app"


def test_single_script_is_copied_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(b"print('x')\r\n")
    assert sent_script.sent_name(script) == "train.py"
    assert sent_script.sent_body(script) == b"print('x')\r\n"
    assert sent_script.unsendable(script) == ""


def test_folder_becomes_a_runnable_zipapp_of_its_python_files(folder: Path, tmp_path: Path) -> None:
    assert sent_script.sent_name(folder) == "app.pyz"
    body = sent_script.sent_body(folder)
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.namelist() == ["__main__.py", "parts/__init__.py", "parts/said.py"]
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_DEFLATED}
    packed = tmp_path / "app.pyz"
    packed.write_bytes(body)
    done = subprocess.run([sys.executable, str(packed)], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "said\n"


def test_zipapp_is_built_reproducibly(folder: Path) -> None:
    body = sent_script.sent_body(folder)
    os.utime(folder / "__main__.py", (1, 2_000_000_000))
    (folder / "parts/said.py").chmod(0o600)
    assert sent_script.sent_body(folder) == body


def test_unusable_script_is_reported(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "__main__.py").rename(folder / "main.py")
    assert sent_script.unsendable(folder) == (
        f"{folder} is neither a file nor a folder with a __main__.py on the controller (script_src)."
    )
    (folder / "main.py").rename(folder / "__main__.py")
    script = tmp_path / "train.py"
    script.write_text("x" * 41)
    monkeypatch.setattr(sent_script, "MOST", 40)
    assert sent_script.unsendable(script) == (
        f"The script {script} has 41 bytes; the limit is 40 bytes (script_src). Copy larger files to every node, and"
        " set their path there (script)."
    )
    assert sent_script.unsendable(folder) == (
        f"The Python files in {folder} have 54 bytes; the limit is 40 bytes (script_src). Copy larger files to every"
        " node, and set their path there (script)."
    )


def test_acceptance_test_script_can_be_copied() -> None:
    assert sent_script.unsendable(ROOT / "roles/ddp_smoke/files/acceptance") == ""
