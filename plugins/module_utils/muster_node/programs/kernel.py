"""Reports the kernel packages of this node for an upgrade. Changes nothing. Every verb prints one JSON object.

look      root  reports packages that install kernels, available versions, and boot menu entries
simulate  root  reports what apt-get install would do for these packages
"""

from __future__ import annotations

import os
from typing import Any

from ..tools.boot import menu
from ..tools.program import answer
from ..tools.run import read, run

# Packages that depend on a kernel or are built for one, and the driver.
PATTERNS = ("linux-*", "dkms", "*nvidia*", "libcuda1")
SHOW = "--showformat=${Package}\\t${Version}\\t${db:Status-Want}\\t${db:Status-Status}\\t${Depends}\\n"
APT = (
    *("apt-get", "--simulate", "--quiet=2", "--no-install-recommends"),
    *("-o", "Debug::NoLocking=true"),
)
SECONDS = 60.0


def look(_: dict[str, Any]) -> dict[str, Any]:
    packages = run("dpkg-query", "--show", SHOW, *PATTERNS).text
    kernels = [name for name in names_of(packages) if name.startswith("linux-")]
    return {
        "packages": packages,
        "files": run("apt-cache", "policy", seconds=SECONDS).text,
        "policy": run("apt-cache", "policy", *kernels, seconds=SECONDS).text if kernels else "",
        "boot_free": boot_free(),
        "menu": menu()["text"],
        "version": read("/proc/version").text,
        "machine": read("/etc/machine-id").text,
    }


def names_of(shown: str) -> list[str]:
    """Return the installed packages in the output of dpkg-query."""
    rows = [line.split("\t") for line in shown.splitlines()]
    return [row[0] for row in rows if len(row) == 5 and row[3] == "installed"]


def simulate(request: dict[str, Any]) -> dict[str, Any]:
    """Return apt's output of a simulation. request: {words: arguments of apt-get install}."""
    said = run(*APT, "install", *request["words"], seconds=SECONDS)
    return {"out": said.text, "err": said.aside or said.why, "code": -1 if said.code is None else said.code}


def boot_free() -> int | None:
    try:
        room = os.statvfs("/boot")
    except OSError:
        return None
    return room.f_bavail * room.f_frsize


def main() -> None:
    answer({"look": look, "simulate": simulate})


if __name__ == "__main__":
    main()
