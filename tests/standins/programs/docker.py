#!/usr/bin/python3
"""Stub of docker for Muster's tests. Installed as dockerd, it reads its configuration at the start and on reload.

Containers listed in /run/standin/containers count as running. If /run/standin/deaf exists, the stub ignores reloads.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

FILE = Path("/etc/docker/daemon.json")
KNOWN = Path("/run/standin/docker.json")
CONTAINERS = Path("/run/standin/containers")
DEAF = Path("/run/standin/deaf")


def read(*_: Any) -> None:
    settings = json.loads(FILE.read_text()) if FILE.exists() else {}
    KNOWN.parent.mkdir(exist_ok=True)
    known = {
        "Runtimes": {"runc": {"path": "runc"}, **settings.get("runtimes", {})},
        "LiveRestoreEnabled": settings.get("live-restore", False),
    }
    KNOWN.write_text(json.dumps(known))


def reload(*_: Any) -> None:
    if not DEAF.exists():
        read()


def end(*_: Any) -> None:
    KNOWN.unlink()
    sys.exit()


def serve() -> None:
    read()
    signal.signal(signal.SIGHUP, reload)
    signal.signal(signal.SIGTERM, end)
    while True:
        signal.pause()


def main() -> None:
    sys.stderr.write("docker: a stub of Muster's tests\n")
    if Path(sys.argv[0]).name == "dockerd":
        serve()
    elif sys.argv[1] == "ps":
        sys.stdout.write(CONTAINERS.read_text() if CONTAINERS.exists() else "")
    elif KNOWN.exists():
        sys.stdout.write(KNOWN.read_text())
    else:
        sys.stdout.write(json.dumps({"ServerErrors": ["Cannot connect to the Docker daemon"]}))
        sys.exit(1)


if __name__ == "__main__":
    main()
