"""What a look at a node's PyTorch environments goes by that only the controller knows: mirrors, proxies, the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.module_utils.parsing.convert_bool import boolean

from muster_controller.packages.sources import node_environment, pip_mirror

from .lock_file import LockFile, reviewed

if TYPE_CHECKING:
    from collections.abc import Mapping


def places(task_vars: Mapping[str, Any], templar: Any, loader: Any, node: str) -> dict[str, Any]:
    here = (task_vars, templar, loader, node)
    return {"mirror": pip_mirror(*here), "environment": node_environment(*here)}


def sections(arguments: Mapping[str, Any], lock: LockFile | None) -> dict[str, Any]:
    """Return what the lock has for the look; nothing where the site maintains the environment."""
    if lock is None or arguments.get("mode") == "verify":
        return {}
    shipped = reviewed() if may_be_reviewed(arguments) else ()
    locked, known = ([section.as_dict() for section in each] for each in (lock.read(), shipped))
    return {"locked": locked, "reviewed": known}


def may_be_reviewed(arguments: Mapping[str, Any]) -> bool:
    """Whether the package index is asked, or a full copy of it: no other has all that was reviewed."""
    asked, index = arguments.get("reviewed_lock"), arguments.get("index_url", "auto")
    return boolean(asked or False) and index in ("", "auto") and not arguments.get("offline_dir")
