"""Files that may be in an inventory folder besides the host lists."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_key_and_certificate_files_are_not_read_as_inventory(tmp_path: Path) -> None:
    folder = tmp_path / "rack"
    shutil.copytree(ROOT / "inventory/lab", folder)
    for name in ("known_hosts", "ca.pem", "proxy.crt", "proxy.key"):
        (folder / name).write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-inventory", "-i", folder, "--list"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["gpu_nodes"]["hosts"] == ["node1", "node2"]
