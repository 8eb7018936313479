#!/usr/bin/env python3
"""Write roles/pytorch/files/locks/: all wheels of the default release with their hashes, for inventories without a
lock.

Run it with .venv-dev/bin/python after a change of cluster_torch_version or pytorch_packages, and review the differences
before committing. Only the package index's own build, the variant cuda, is queried. Builds of PyTorch's own index (cpu,
cu126 and so on) are not included.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import yaml

if TYPE_CHECKING:
    from muster.pytorch.lock import Wheel, WheelSection
    from muster.pytorch.request import EnvironmentRequest

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "plugins/module_utils")]

lock = importlib.import_module("muster.pytorch.lock")
requests = importlib.import_module("muster.pytorch.request")

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
GLIBC = 35  # 2.35 of Ubuntu 22.04 is the oldest supported version
HEAD = "# Wheels of PyTorch {version} for whoever has no lock of their own yet. Written by script/reviewed_locks.py.\n"
# pip can select wheels for another machine, but evaluates markers for the machine on which it runs.
PIP = """
import json, sys
from pip._vendor.packaging import markers
there, own = json.loads(sys.argv.pop(1)), markers.default_environment()
markers.default_environment = lambda: {**own, **there}
from pip._internal.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def resolve(request: EnvironmentRequest, machine: str) -> WheelSection:
    """Return the wheels that pip selects for a node with this machine, without downloading them."""
    python = request.python
    there = {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine}
    linux = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    systems = [*(f"manylinux_2_{minor}" for minor in range(GLIBC, 4, -1)), "manylinux2014", "manylinux2010", "linux"]
    environment = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "PIP_CERT"}}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        argv = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report), "--target", folder]
        argv += ["--only-binary=:all:", "--python-version", python, "--implementation", "cp"]
        argv += [word for abi in (f"cp{python.replace('.', '')}", "abi3", "none") for word in ("--abi", abi)]
        argv += [word for system in systems for word in ("--platform", f"{system}_{machine}")]
        subprocess.run(
            [sys.executable, "-c", PIP, json.dumps({**linux, **there}), *argv, *map(str, request.requirements)],
            env={**environment, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            check=True,
        )
        found = json.loads(report.read_text())["install"]
    return lock.make_section(request, machine, map(wheel_of, found))


def wheel_of(found: dict[str, Any]) -> Wheel:
    """Return a wheel of pip's report (PEP 610: download_info)."""
    file = unquote(urlsplit(found["download_info"]["url"]).path.rpartition("/")[2])
    digest = found["download_info"]["archive_info"]["hashes"]["sha256"]
    return lock.Wheel(found["metadata"]["name"], found["metadata"]["version"], digest, file)


def main() -> None:
    cluster, pytorch = (
        yaml.safe_load((ROOT / f"roles/{role}/defaults/main.yml").read_text()) for role in ("cluster", "pytorch")
    )
    version = cluster["cluster_torch_version"]
    sections = []
    for python in PYTHONS:
        request = requests.make_request(
            torch_version=version, variant="cuda", gpus=1, packages=pytorch["pytorch_packages"], python=python
        )
        sections += [resolve(request, machine) for machine in MACHINES]
        print(*(f"{section.title}: {len(section.wheels)} wheels" for section in sections[-2:]), sep="\n")
    text = lock.render(sections)
    target = ROOT / f"roles/pytorch/files/locks/torch-{version}.txt"
    target.parent.mkdir(parents=True, exist_ok=True)
    for older in target.parent.glob("torch-*.txt"):
        older.unlink()
    target.write_text(HEAD.format(version=version) + text.removeprefix(lock.HEAD))


if __name__ == "__main__":
    main()
