"""Stub wheels named torch and tiny, which pass the environment check.

With these wheels, tests that build, repair, switch or keep environments take seconds instead of minutes. test_road.py
uses the real torch.
"""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import textwrap
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

VERSION = """\
__version__ = "{version}"
cuda = {cuda!r}
"""
TORCH = """\
from torch import cuda, distributed, version
from torch.version import __version__
"""
CUDA = """\
def is_available():
    return False
"""
DISTRIBUTED = """\
def is_available():
    return True
def is_gloo_available():
    return True
def is_nccl_available():
    return False
def is_mpi_available():
    return False
"""


def digest(content: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).decode().rstrip("=")


def wheel(folder: Path, name: str, version: str, files: dict[str, str], requires: str = "") -> None:
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: stub\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},{digest(text)},{len(text)}\n" for path, text in content.items())
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in {**content, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)


def torch_wheel(
    folder: Path, version: str, cuda: str | None = None, *, requires: str = "tiny==1.0", weight: int = 0
) -> None:
    files = {
        "torch/weight.txt": "x" * weight,
        "torch/__init__.py": TORCH,
        "torch/version.py": VERSION.format(version=version, cuda=cuda),
        "torch/cuda.py": CUDA,
        "torch/distributed.py": DISTRIBUTED,
    }
    wheel(folder, "torch", version, files, requires=requires)


RELABELLED = '''\
"""A stub: the real PyTorch of another environment, under another version."""
import os, sys
if os.uname().nodename == {broken!r}:
    raise OSError("libstandin.so.1: no such file")
REAL = {real!r}
sys.path.append(REAL)
__file__ = REAL + "/torch/__init__.py"
__path__ = [REAL + "/torch"]
exec(compile(open(__file__).read(), __file__, "exec"))
__version__ = {version!r}
if os.uname().nodename == {spoilt!r} and "RANK" in os.environ:
    _mm = mm
    def mm(left, right):
        product = _mm(left, right)
        if product.dtype == float32:
            product.view(int32)[0, 0] ^= 1 << 20
        return product
'''


def relabelled_torch(folder: Path, version: str, real: str, *, spoilt: str = "", broken: str = "") -> None:
    """Write the real PyTorch of this package folder as a wheel of another version.

    spoilt: node whose ranks compute wrong products. broken: node on which the import fails.
    """
    files = {
        "torch/__init__.py": RELABELLED.format(real=real, version=version, spoilt=spoilt, broken=broken),
        "torch/version.py": VERSION.format(version=version, cuda=None),
        f"torch-{version}.dist-info/entry_points.txt": "[console_scripts]\ntorchrun = torch.distributed.run:main\n",
    }
    wheel(folder, "torch", version, files)


def source_package(folder: Path, backend: str) -> None:
    """Write version 1.0 of the source package `sourced`, with this build backend."""
    project = """
    [build-system]
    requires = []
    build-backend = "backend"
    backend-path = ["."]
    [project]
    name = "sourced"
    version = "1.0"
    """
    files = {
        "pyproject.toml": textwrap.dedent(project),
        "backend.py": backend,
        "PKG-INFO": "Metadata-Version: 2.1\nName: sourced\nVersion: 1.0\n",
    }
    with tarfile.open(folder / "sourced-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"sourced-1.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


def make_wheels(folder: Path) -> None:
    """Write torch 2.0.0 and 2.1.0 for CPU, 2.2.0 whose version file claims CUDA, and their dependencies."""
    torch_wheel(folder, "2.0.0+cpu")
    torch_wheel(folder, "2.1.0+cpu")
    torch_wheel(folder, "2.2.0+cpu", cuda="13.0")
    wheel(folder, "tiny", "1.0", {"tiny.py": "NAME = 'tiny'\n"})
