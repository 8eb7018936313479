"""Where things are, for everything that drives the sandbox."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SANDBOXES = ROOT / "inventory/sandbox"
NAME = os.environ.get("MUSTER_SANDBOX", "muster")
SANDBOX = ROOT / ".sandbox" / NAME
# Where tests of several sandboxes run beside each other, each has a list of its own of the nodes beyond the second one.
INVENTORY = SANDBOX / "inventory" if "MUSTER_OWN_INVENTORY" in os.environ else SANDBOXES
# What is kept of it on this machine, as a cluster.
ARTIFACTS = ROOT / "artifacts" / ("sandbox" if NAME == "muster" else NAME)
BIN = Path(sys.executable).parent
ENVIRONMENT = {
    "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
    # Unless that is asked for, ansible-runner does not check host keys, whatever ansible.cfg says.
    "ANSIBLE_HOST_KEY_CHECKING": "True",
    # It also takes its own folder of callbacks instead of that of ansible.cfg.
    "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "plugins/callback"),
    "PATH": f"{BIN}:{os.environ['PATH']}",
}
