"""Who has a file of NVIDIA's driver open, and what is known of a process."""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path
from typing import Any

from ..tools.run import names, read


def look() -> dict[str, Any]:
    """Look at every process. Of others' processes, root alone may see what they have open."""
    holders = []
    for pid in filter(str.isdigit, names("/proc")):
        opened = set()
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    opened.add(str(entry.readlink()))
        devices = sorted(path for path in opened if path.startswith("/dev/nvidia"))
        if devices:
            holders.append({**process(int(pid)), "devices": devices})
    return {"holders": holders, "saw_all_holders": os.geteuid() == 0}


def process(pid: int) -> dict[str, Any]:
    """Return what everybody may see of a process; nothing of one that is gone."""
    folder = f"/proc/{pid}"
    # The name stands in brackets, and may hold anything; the start is the 22nd word, 20th after them.
    status = read(f"{folder}/stat").text.rpartition(")")[2].split()
    try:
        owner = user_name(Path(folder).stat().st_uid)
    except OSError:
        owner = ""
    return {
        "pid": pid,
        "name": read(f"{folder}/comm").text.strip(),
        "owner": owner,
        "started": int(status[19]) / os.sysconf("SC_CLK_TCK") if len(status) > 19 else None,
        "cgroup": read(f"{folder}/cgroup").text,
    }


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
