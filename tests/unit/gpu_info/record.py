"""Record the output of real nvidia-smi programs with a stub of libnvidia-ml (tests/standins/nvml.c), without a GPU.

    PYTHONPATH=tests python tests/unit/gpu_info/record.py PROGRAM...

Each PROGRAM is a real nvidia-smi from the package of a driver branch. Requires a C compiler. The format of the output
is that of the branch's program; the values come from the stub. Recordings of tests/gpu on a real GPU are stored next
to these, as their provenance.yml states.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from recordings import RECORDED, shorten

STANDIN = Path(__file__).parents[2] / "standins/nvml.c"
QUESTIONS = {
    "query": ["-q", "-x"],
    "topology": ["topo", "-m"],
    "nvlink_status": ["nvlink", "-s"],
    "nvlink_errors": ["nvlink", "-e"],
}
# By branch: the scenarios, with the variables that configure the stub. Two GPUs by default.
SCENARIOS: dict[str, dict[str, dict[str, str]]] = {
    "470": {
        "v100-healthy": {"MODEL": "v100"},
        "v100-retirement-pending": {"MODEL": "v100", "REMAP": "1"},
        "v100-lost": {"MODEL": "v100", "LOST": "1"},
        # Newer programs list processes with functions that the stub does not have.
        "v100-process": {"MODEL": "v100", "PROCESS": "1", "PID": "4242"},
        "v100-process-with-markup": {
            "MODEL": "v100",
            "PROCESS": "1",
            "NAME": "/a</process_name><pid>1</pid>& --token=x",
        },
    },
    "535": {
        "a100-healthy": {"MODEL": "a100"},
        "a100-remap-failed": {"MODEL": "a100", "REMAP_FAILED": "0"},
        "a100-reset-required": {"MODEL": "a100", "RECOVERY": "1"},
        "a100-lost": {"MODEL": "a100", "LOST": "1"},
    },
    "550": {"h100-healthy": {}, "h100-mig": {"MIG": "0"}, "h100-alone": {"GPUS": "1", "INACTIVE": "0"}},
    "580": {
        "h100-pair": {},
        "h100-healthy": {"GPUS": "8"},
        "h100-lost": {"GPUS": "8", "LOST": "3"},
        "h100-none": {"GPUS": "0"},
        "h100-first-lost": {"GPUS": "3", "LOST": "0"},
        "h100-link-inactive": {"INACTIVE": "1:17"},
        "h100-links-inactive": {"INACTIVE": "1"},
        "h100-link-errors": {"ERRORS": "0:4"},
        "h100-remap-pending": {"REMAP": "1"},
        "h100-ecc": {"ECC": "1"},
        "h100-hot": {"HOT": "0"},
        "h100-mig": {"MIG": "1"},
        "h100-prohibited": {"PROHIBITED": "1"},
        "h100-narrow": {"NARROW": "0"},
        "h100-power": {"POWER": "1"},
        "h100-reset": {"RECOVERY": "1"},
        "h100-not-persistent": {"NOT_PERSISTENT": "0"},
        "h100-fabric-in-progress": {"FABRIC": "1"},
        "h100-held": {"HELD": "1"},
        "h100-lost-while-listed": {"BROKEN": "1"},
        "h100-without-a-name": {"BROKEN_NAME": "1"},
        "h100-unusable": {"UNUSABLE": "0"},
    },
    "595": {"b200-healthy": {"MODEL": "b200"}},
    "615": {"h100-pcie-healthy": {"MODEL": "h100-pcie", "UNBRIDGED": "1"}, "rtx4090-healthy": {"MODEL": "rtx4090"}},
}
# The recording of each branch that its other recordings are stored as patches of.
SIBLINGS = {
    "470": "470-v100-healthy",
    "535": "535-a100-healthy",
    "550": "550-h100-healthy",
    "580": "580-h100-pair",
    "615": "615-h100-pcie-healthy",
}


def build(program: Path, folder: Path) -> None:
    """Build the stub library. NVML functions that the stub does not define return "not supported"."""
    asked = set(re.findall(rb"\x00(nvml[A-Z]\w+)(?=\x00)", program.read_bytes()))
    answered = set(re.findall(r"\b(nvml\w+)\(", STANDIN.read_text()))
    missing = sorted({name.decode() for name in asked} - answered)
    (folder / "standin_missing.h").write_text(
        "".join(f"int {name}(void) {{ return UNSUPPORTED; }}\n" for name in missing)
    )
    library = folder / "libnvidia-ml.so.1"
    argv = ["cc", "-shared", "-fPIC", "-w", f"-I{folder}", "-o", str(library), str(STANDIN)]
    subprocess.run(argv, check=True)


def version_of(program: Path) -> str:
    """Return the version from strings in the program file, because nvidia-smi prints no version without a driver."""
    versions: list[bytes] = re.findall(rb"\x00(\d{3}\.\d{2,3}(?:\.\d{2})?)\x00", program.read_bytes())
    if not versions:
        sys.exit(f"{program} contains no version")
    return max(set(versions), key=versions.count).decode()


def ask(program: Path, argv: list[str], environment: dict[str, str]) -> tuple[str, str, int]:
    done = subprocess.run(
        [program, *argv], check=False, capture_output=True, text=True, timeout=30, env={**os.environ, **environment}
    )
    return done.stdout, done.stderr, done.returncode


def record(program: Path, version: str, name: str, settings: dict[str, str], library: Path) -> None:
    branch = version.partition(".")[0]
    folder = RECORDED / f"{branch}-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    scenario = {f"STANDIN_{key}": value for key, value in {"GPUS": "2", "DRIVER": version, **settings}.items()}
    codes = []
    for question, argv in QUESTIONS.items():
        out, err, code = ask(program, argv, {"LD_LIBRARY_PATH": str(library), **scenario})
        codes.append(f"{question}: {code}")
        suffix = "xml" if question == "query" else "txt"
        (folder / f"{question}.{suffix}").write_text(out)
        if err:
            (folder / f"{question}.aside.txt").write_text(err)
    told = " ".join(f"{key}={value!r}" for key, value in scenario.items())
    (folder / "provenance.yml").write_text(
        f"---\nprinted_by: nvidia-smi {version}, sha256 {hashlib.sha256(program.read_bytes()).hexdigest()}\n"
        f"over: tests/standins/nvml.c, there was no GPU\n"
        f"scenario: {told.replace(': ', ':')}\n"
        f"when: {datetime.now(timezone.utc):%Y-%m-%d}\n"
        f"exit: {{{', '.join(codes)}}}\n"
    )
    sibling = SIBLINGS.get(branch, "")
    shorten(folder, sibling if sibling != folder.name else "")


def main() -> None:
    for program in map(Path, sys.argv[1:]):
        version = version_of(program)
        with tempfile.TemporaryDirectory() as library:
            build(program, Path(library))
            for name, settings in SCENARIOS.get(version.partition(".")[0], {}).items():
                record(program, version, name, settings, Path(library))


if __name__ == "__main__":
    main()
