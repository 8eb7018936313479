"""Where actions and callbacks find what they import: the one place that sets Python's search path.

Ansible imports plugins of variables with the inventory: every command that runs tasks does so first, in the process of
which all workers are forks (seen with ansible-core 2.19.14 and 2.21.5, with ansible-playbook and ansible).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.vars import BaseVarsPlugin

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]


class VarsModule(BaseVarsPlugin):
    def get_vars(self, *_: Any) -> dict[str, Any]:
        return {}
