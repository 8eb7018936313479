"""Paths for all tests that use the sandbox."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SANDBOXES = ROOT / "inventory/sandbox"
NAME = os.environ.get("MUSTER_SANDBOX", "muster")
SANDBOX = ROOT / ".sandbox" / NAME
# Each sandbox lists its nodes after the second one separately, so that tests of several sandboxes can run in parallel.
INVENTORY = SANDBOX / "inventory"
# The artifacts of the sandbox cluster on this machine.
ARTIFACTS = ROOT / "artifacts" / ("sandbox" if NAME == "muster" else NAME)
BIN = Path(sys.executable).parent
ENVIRONMENT = {
    "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
    # Without this, ansible-runner disables host key checking, regardless of ansible.cfg.
    "ANSIBLE_HOST_KEY_CHECKING": "True",
    # ansible-runner also replaces the callback folder of ansible.cfg.
    "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "plugins/callback"),
    "PATH": f"{BIN}:{os.environ['PATH']}",
}
