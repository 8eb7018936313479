"""Listening sockets, from ss. Only root can see the processes that listen."""

from __future__ import annotations

from typing import Any

from ..tools.run import run


def look() -> dict[str, Any]:
    answer = run("ss", "-H", "-l", "-n", "-t", "-u", "-p")
    return {"ss": answer.text, "why": answer.why}
