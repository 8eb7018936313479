"""Measure the controller's cost of watching a quiet launch: processor seconds of the supervisor, and number of checks.

    .venv-dev/bin/python tests/bench/watching.py 8 64

The nodes are stubs behind Ansible's real SSH connections (tests/standins/many_nodes.py), so the cost of ssh and of the
node program is not included. The result is the difference between a longer and a shorter launch, so that start and end
do not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STANDIN = ROOT / "tests/standins/many_nodes.py"
ROOMS = ("plugins/module_utils", "plugins/plugin_utils", "tests/standins")
SHORT, LONG = 10, 70  # seconds


def launch(nodes: int, seconds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, str(STANDIN), folder, str(nodes), str(seconds)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / room) for room in ROOMS)}
        done = subprocess.run(argv, check=True, capture_output=True, text=True, env=env)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    print("nodes  checks/s  processor s/s  megabytes")
    for nodes in [int(word) for word in sys.argv[1:]] or [8]:
        short, long = launch(nodes, SHORT), launch(nodes, LONG)
        seconds = long["seconds"] - short["seconds"]
        looks, cpu = (round((long[name] - short[name]) / seconds, 3) for name in ("looks", "cpu"))
        print(f"{nodes:5}  {looks:8}  {cpu:13}  {long['megabytes']:9}")


if __name__ == "__main__":
    main()
