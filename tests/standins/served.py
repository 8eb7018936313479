"""Serve the stub repositories to sandbox machines from a machine that is not a node."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from deb_repositories import FOLDERS, KEYS, Repositories
from gpu_node import inside, put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deb_repositories import Key
    from package_list import Package

SERVER = Path(__file__).with_name("repository_server.py")
ROOT = "/srv/standins"
LOG = "/var/log/standin-repositories.jsonl"
PROGRAM = "/usr/local/sbin/repository_server"
UNIT = "standin-repositories.service"
UNIT_TEXT = """\
[Unit]
Description=Stub repositories of Muster's tests

[Service]
ExecStart={program} {address} {root} {log}
Restart=always

[Install]
WantedBy=multi-user.target
"""


class Served:
    """The served repositories, which exist as long as their machine. The server listens only on the machine's sandbox
    address."""

    def __init__(self, folder: Path, container: str, address: str) -> None:
        self.repositories = Repositories(folder)
        self.container = container
        self.url = f"http://{address}"
        unit = UNIT_TEXT.format(program=PROGRAM, address=address, root=ROOT, log=LOG)
        put(container, PROGRAM, SERVER.read_bytes(), "0755")
        put(container, f"/etc/systemd/system/{UNIT}", unit)
        inside(
            container, f"mkdir -p {ROOT}; systemctl daemon-reload; systemctl -q enable {UNIT}; systemctl restart {UNIT}"
        )

    def publish(self, packages: Sequence[Package] | None = None, *, signed_by: Key | None = None) -> None:
        """Serve these packages (default: all packages) from now on."""
        self.repositories.publish(packages, signed_by=signed_by)
        packed = BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(self.repositories.root, ".")
        unpack = f"rm -rf {ROOT}.new; mkdir {ROOT}.new; tar -C {ROOT}.new -x; rm -rf {ROOT}/*; mv {ROOT}.new/* {ROOT}"
        argv = ["podman", "exec", "--interactive", self.container, "sh", "-euc", unpack]
        subprocess.run(argv, check=True, capture_output=True, input=packed.getvalue())

    def location(self, repository: str) -> str:
        return f"{self.url}/{FOLDERS[repository]}/"

    def key_location(self, repository: str) -> str:
        return f"{self.url}/{KEYS[repository]}"

    @property
    def requests(self) -> list[dict[str, str | int]]:
        """Return all requests so far: client, path, status, bytes."""
        text = inside(self.container, f"cat {LOG} 2>/dev/null || true")
        return [json.loads(line) for line in text.splitlines()]

    @property
    def bytes_by_client(self) -> Counter[str]:
        counted: Counter[str] = Counter()
        for request in self.requests:
            counted[str(request["client"])] += int(request["bytes"])
        return counted

    def forget(self) -> None:
        """Delete the logged requests."""
        inside(self.container, f"rm -f {LOG}")
