"""The launch program as it is sent to a node."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from typing import TYPE_CHECKING

from muster_node.programs import launch as node
from muster_node.tools.pack import sent
from muster_node.tools.program import BOOTSTRAP

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH_ID = "20260101-120000-abcd"


def test_prepare_prints_json(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    request = {
        "user": me,
        "executable": sys.executable,
        "run_root": str(tmp_path),
        "address": "127.0.0.1",
        "port": 0,
        "gpus": False,
    }
    command = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, "prepare"]
    done = subprocess.run(command, input=sent(node.__name__, request), capture_output=True, check=True)
    facts = json.loads(done.stdout)
    assert facts["executable"]["usable"] is True
    assert (facts["interface_of_address"], facts["port"], facts["script"]) == ("lo", None, None)
    assert facts["python"][:2] == list(sys.version_info[:2])
