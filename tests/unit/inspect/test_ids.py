"""docs/inspect.md lists every finding that a look can come to, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = ROOT / "plugins/module_utils/muster"
ID = r"(?:node|net|gpu|user|time)\.[a-z_]+(?:\.[a-z_]+)*"


def test_the_list_of_findings_is_that_of_the_code() -> None:
    listed = set(re.findall(rf"`({ID})`", (ROOT / "docs/inspect.md").read_text()))
    code = "".join((CODE / name).read_text() for name in ("inspect_node.py", "inspect_cluster.py"))
    made = set(re.findall(rf'"({ID})"', code)) | {f"user.{key}.differs" for key in ("uid", "gid")}
    assert listed == made
