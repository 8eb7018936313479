"""What modules import as ansible.module_utils.muster, tests of those modules find there, too."""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils

ansible.module_utils.__path__.append(str(Path(__file__).parents[3] / "plugins/module_utils"))
