"""Install accelerate on sandbox nodes, in a copy of their environment."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from paths import SANDBOX

if TYPE_CHECKING:
    from pathlib import Path

    from machines import Machine

VERSION = "1.15.0"
# Dependencies of accelerate besides torch and numpy, which the environment contains.
NEEDS = ("huggingface_hub", "safetensors", "psutil", "pyyaml", "packaging")
FOLDER = "/opt/muster-test-accelerate"
TORCHRUN = f"{FOLDER}/bin/torchrun"
CURRENT = "/opt/muster/pytorch/current"
PROGRAM = f"#!{FOLDER}/bin/python\nfrom accelerate.commands.accelerate_cli import main\n\nmain()\n"


def install(machine: Machine) -> None:
    """Copy the node's environment and install accelerate in the copy, unless the copy already contains accelerate."""
    if machine.inside("test", "-x", f"{FOLDER}/bin/accelerate", check=False).returncode == 0:
        return
    machine.inside("rm", "--recursive", "--force", FOLDER)
    # A virtual environment locates its packages relative to its python.
    machine.inside("sh", "-c", f"cp --archive $(readlink --canonicalize {CURRENT}) {FOLDER}")
    asked = machine.inside(f"{FOLDER}/bin/python", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    version = asked.stdout.strip()
    target = f"{machine.container}:{FOLDER}/lib/python{version}/site-packages/"
    subprocess.run(["podman", "cp", f"{downloaded(version)}/.", target], check=True)
    machine.inside("sh", "-c", f'printf %s "$1" >{FOLDER}/bin/accelerate', "sh", PROGRAM)
    machine.inside("chmod", "--recursive", "a+rX", FOLDER)
    machine.inside("chmod", "755", f"{FOLDER}/bin/accelerate")


def downloaded(version: str) -> Path:
    """Download the packages for this Python version, and cache them in the sandbox folder."""
    folder = SANDBOX / f"accelerate-{VERSION}-{version}"
    if not folder.exists():
        begun = folder.with_suffix(".begun")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(begun)]
        pip += ["--python-version", version, "--only-binary", ":all:"]
        subprocess.run([*pip, *NEEDS], check=True)
        subprocess.run([*pip, "--no-deps", f"accelerate=={VERSION}"], check=True)
        begun.rename(folder)
    return folder
