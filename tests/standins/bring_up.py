"""Turn nodes of a running sandbox into simulated GPU nodes. The outsider, a machine that is not a node, serves the
repositories.

.venv-dev/bin/python tests/standins/bring_up.py [node ...] (default: node1 node2; see --help)
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from gpu_node import RELEASES, make_gpu_node
from package_list import read_packages, renamed
from served import Served

ROOT = Path(__file__).parents[2]
# Packages that tests publish later: old and new version.
LATER = {
    "newer-branch": ("615", "620"),
    "newer-kernel": ("6.8.0-90", "6.8.0-94"),
    "newer-version": ("580.178", "580.190"),
}


def address_of(container: str) -> str:
    template = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    argv = ["podman", "inspect", "--format", template, container]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", nargs="*")
    parser.add_argument("--sandbox", default=os.environ.get("MUSTER_SANDBOX", "muster"))
    parser.add_argument("--system", choices=RELEASES, default="ubuntu-24.04")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--gpu", default="0x2330", help="PCI device id")
    parser.add_argument("--nvswitches", type=int, default=4)
    parser.add_argument("--nouveau", action="store_true", help="nouveau holds the GPUs until it is blacklisted")
    parser.add_argument("--publish", choices=LATER, action="append", default=[], help="additional packages to publish")
    parser.add_argument("--wrongly-signed", action="store_true")
    parser.add_argument("--only-publish", action="store_true")
    options = parser.parse_args()
    outsider = f"{options.sandbox}-outsider"
    served = Served(ROOT / ".sandbox" / options.sandbox / "standins", outsider, address_of(outsider))
    packages = read_packages()
    packages += [package for name in options.publish for package in renamed(packages, *LATER[name])]
    repositories = served.repositories
    served.publish(packages, signed_by=repositories.stranger if options.wrongly_signed else None)
    for node in [] if options.only_publish else options.nodes or ["node1", "node2"]:
        make_gpu_node(
            f"{options.sandbox}-{node}",
            served.url,
            repositories.key.public,
            system=options.system,
            gpus=options.gpus,
            gpu=options.gpu,
            nvswitches=options.nvswitches,
            nouveau=options.nouveau,
        )
    sys.stdout.write(
        f"{served.url}, signed with {repositories.key.fingerprint}; plays need -e @tests/standins/cluster.yml\n"
    )


if __name__ == "__main__":
    main()
