"""Inspects a Python environment with PyTorch, using the environment's own interpreter.

The text is piped into the interpreter: `python -I - DEPTH [PACKAGE]`. Prints one line of JSON and writes no files.

`files` only reads files (0.3 s). `import` also imports torch (2 s, longer with CUDA). `build` and `load` skip the check
that every file is present: `build` takes 0.05 s, and `load` imports torch only if its build has CUDA. For packages
other than torch, only `files` and `import` return data.
"""

from __future__ import annotations

import csv
import importlib
import importlib.metadata
import json
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from ..tools.torch_version import said_in

MOST_FAULTS = 5


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def damaged_files(distribution: importlib.metadata.Distribution) -> list[str]:
    """Return files that the distribution's RECORD lists but that are missing or have another size.

    pip writes RECORD last, so the installation of a distribution without RECORD was interrupted. Bytecode is not
    compared, because Python can rewrite it at any time.
    """
    record = distribution.read_text("RECORD")
    if record is None:
        return ["RECORD"]
    damaged = []
    for name, _digest, size in csv.reader(record.splitlines()):
        if size and not name.endswith(".pyc"):
            path = Path(str(distribution.locate_file(name)))
            try:
                whole = path.stat().st_size == int(size)
            except OSError:
                whole = False
            if not whole:
                damaged.append(name)
    return damaged


def unmet_dependencies(distributions: dict[str, importlib.metadata.Distribution]) -> list[str]:
    """Return the unmet requirements of distributions. Unmet requirements indicate an interrupted installation."""
    requirements = importlib.import_module("pip._vendor.packaging.requirements")
    unmet = []
    for name, distribution in distributions.items():
        for text in distribution.requires or []:
            # Skip extras, to which most requirements belong: parsing all requirements takes 0.1 s.
            if "extra ==" in text:
                continue
            requirement = requirements.Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            other = distributions.get(canonical(requirement.name))
            if other is None:
                unmet.append(f"{name} requires {requirement.name}, which is missing")
            elif not requirement.specifier.contains(other.version, prereleases=True):
                unmet.append(f"{name} requires {requirement.name}{requirement.specifier}, but has {other.version}")
    return unmet


def torch_by_its_files(packages: dict[str, str], site: Path) -> dict[str, Any] | None:
    """Return the variables in torch's version.py, and the version of the installed NCCL wheel; None without torch."""
    said = said_in(site)
    if said is None:
        return None
    library = site / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    wheels = [version for name, version in packages.items() if name.startswith("nvidia-nccl-cu")]
    return {
        "version": said.get("__version__", ""),
        "cuda": said.get("cuda"),
        "nccl": {
            "version": wheels[0] if wheels else None,
            "file": str(library) if library.exists() else None,
        },
    }


def torch_by_importing() -> dict[str, Any]:
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    backends = {
        "gloo": dist.is_available() and dist.is_gloo_available(),
        "mpi": dist.is_available() and dist.is_mpi_available(),
        "nccl": dist.is_available() and dist.is_nccl_available(),
    }
    nccl: dict[str, Any] = {"version": None, "file": None}
    if backends["nccl"]:
        version = torch.cuda.nccl.version()
        nccl["version"] = ".".join(map(str, version[:3])) if isinstance(version, tuple) else str(version)
        # A training process loads the same file as this process.
        maps = Path("/proc/self/maps").read_text().splitlines()
        nccl["file"] = next((line.split(maxsplit=5)[5] for line in maps if "libnccl.so" in line), None)
    available = torch.cuda.is_available()
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "nccl": nccl,
        "backends": sorted(name for name, there in backends.items() if there),
        "cuda_available": available,
        "device_count": torch.cuda.device_count() if available else 0,
    }


def build(load: bool) -> dict[str, Any]:
    """Return the build of torch. load: if the build has CUDA, also import torch, and return what the process then
    sees."""
    # From folder names only, because reading every distribution's metadata takes longer than everything else.
    site = next((Path(place) for place in sys.path if Path(place, "torch", "version.py").is_file()), None)
    folders = [path.name for path in site.glob("nvidia_nccl_cu*.dist-info")] if site else []
    wheels = dict(folder.removesuffix(".dist-info").replace("_", "-").rsplit("-", 1) for folder in folders)
    answer: dict[str, Any] = {
        "python_full": sys.version.split()[0],
        "torch": torch_by_its_files(wheels, site) if site else None,
        "loaded": None,
        "error": "" if site else "torch is not installed",
    }
    if load and answer["torch"] and answer["torch"]["cuda"]:
        try:
            answer["loaded"] = {**torch_by_importing(), **devices()}
        except Exception as problem:  # an import can raise any exception
            answer["error"] = f"{type(problem).__name__}: {problem}"[:500]
    return answer


def devices() -> dict[str, Any]:
    """Return the GPU architectures that the torch build supports (such as "sm_90") and those of the GPUs (such as
    "9.0")."""
    torch: Any = importlib.import_module("torch")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "code_for": list(torch.cuda.get_arch_list()),
        "capabilities": ["{}.{}".format(*torch.cuda.get_device_capability(number)) for number in range(count)],
    }


def look(depth: str, package: str = "torch") -> dict[str, Any]:
    if depth in ("build", "load"):
        return build(depth == "load")
    found = {canonical(d.metadata["Name"] or ""): d for d in importlib.metadata.distributions()}
    packages = {name: distribution.version for name, distribution in sorted(found.items())}
    faults = [f"{name}: {files[0]} is missing or truncated" for name, d in found.items() if (files := damaged_files(d))]
    answer: dict[str, Any] = {
        "python": "{}.{}".format(*sys.version_info[:2]),
        "python_full": sys.version.split()[0],
        "prefix": sys.prefix,
        "packages": packages,
        "imported": False,
        "torch": None,
        "error": "",
        "trace": "",
    }
    try:
        faults += unmet_dependencies(found)
    except ImportError:
        faults.append("pip is not installed")
    site = next((Path(str(d.locate_file(""))) for name, d in found.items() if name == "torch"), None)
    if site is not None:
        answer["torch"] = torch_by_its_files(packages, site)
    answer["faults"] = faults[:MOST_FAULTS]
    if depth == "import":
        try:
            if package == "torch":
                answer["torch"] = torch_by_importing()
            else:
                importlib.import_module(package)
            answer["imported"] = True
        except Exception as problem:  # an import can raise any exception
            answer["error"] = f"{type(problem).__name__}: {problem}"
            answer["trace"] = traceback.format_exc()
    elif package not in packages:
        answer["error"] = f"{package} is not installed"
    return answer


def main() -> None:
    sys.stdout.write(json.dumps(look(*sys.argv[1:])) + "\n")


if __name__ == "__main__":
    main()
