"""Set Python's search path for the imports of actions.

Ansible imports vars plugins before it loads the action of a task, in the process that all workers are forked from (seen
with ansible-core 2.19.14 and 2.21.5, with ansible-playbook and ansible). Callbacks may be loaded earlier, for example
when the inventory is a list of hosts, and set the path themselves.
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
