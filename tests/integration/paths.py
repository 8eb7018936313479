"""Where things are, for everything that drives the sandbox."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
INVENTORY = ROOT / "inventory/sandbox"
BIN = Path(sys.executable).parent
ENVIRONMENT = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "PATH": f"{BIN}:{os.environ['PATH']}"}
