#!/usr/bin/python3
"""Stub of nvidia-ctk for Muster's tests: writes the same files as the real program."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

VERSION = "@VERSION@"
BUS = Path("/sys/bus/pci/devices")
LOADED = Path("/sys/module/nvidia/version")
RUNTIME = {"path": "nvidia-container-runtime", "args": []}


CONTAINERD = Path("/etc/containerd/config.toml")
IMPORTS = 'imports = ["/etc/containerd/conf.d/*.toml"]'
DROP_IN = """\
# Written by a stub of Muster's tests.
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""


def configure(options: argparse.Namespace) -> None:
    if options.runtime == "containerd":
        text = CONTAINERD.read_text() if CONTAINERD.exists() else "version = 2\n"
        if IMPORTS not in text:
            CONTAINERD.parent.mkdir(exist_ok=True)
            CONTAINERD.write_text(f"{IMPORTS}\n{text}")
        drop_in = CONTAINERD.parent / "conf.d/99-nvidia.toml"
        drop_in.parent.mkdir(exist_ok=True)
        drop_in.write_text(DROP_IN)
        return
    path = Path(options.config or f"/etc/{options.runtime}/daemon.json")
    settings = json.loads(path.read_text()) if path.exists() else {}
    settings.setdefault("runtimes", {})["nvidia"] = RUNTIME
    if options.set_as_default:
        settings["default-runtime"] = "nvidia"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=4) + "\n")


def generate(options: argparse.Namespace) -> None:
    slots = [slot for slot in sorted(BUS.iterdir()) if (slot / "class").read_text().startswith("0x0302")]
    names = [*map(str, range(len(slots))), "all"]
    lines = [
        "---",
        "# Written by a stub of Muster's tests.",
        "cdiVersion: 0.5.0",
        "kind: nvidia.com/gpu",
        "devices:",
    ]
    lines += [f'  - name: "{name}"' for name in names]
    library = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{LOADED.read_text().strip()}"
    lines += ["containerEdits:", "  mounts:", f"  - containerPath: {library}", f"    hostPath: {library}"]
    text = "\n".join(lines) + "\n"
    if options.output:
        Path(options.output).parent.mkdir(parents=True, exist_ok=True)
        Path(options.output).write_text(text)
    else:
        sys.stdout.write(text)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", action="version", version=f"NVIDIA Container Toolkit CLI version {VERSION}")
    subjects = parser.add_subparsers(required=True)
    runtime = subjects.add_parser("runtime").add_subparsers(required=True).add_parser("configure")
    runtime.add_argument("--runtime", default="docker")
    runtime.add_argument("--config")
    runtime.add_argument("--set-as-default", action="store_true")
    runtime.set_defaults(do=configure)
    cdi = subjects.add_parser("cdi").add_subparsers(required=True).add_parser("generate")
    cdi.add_argument("--output")
    cdi.set_defaults(do=generate)
    sys.stderr.write("nvidia-ctk: a stub of Muster's tests\n")
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
