"""Inspect an environment that the user built at any path, without changing the environment."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tools.as_user import SilentError, as_user
from ..tools.environment_marks import marks
from ..tools.trust import foreign_writer
from .root import LookedAs, PytorchRoot

if TYPE_CHECKING:
    import pwd
    from collections.abc import Iterator


def look(prefix: str, user: str) -> dict[str, Any]:
    """Return {there, marks, everybody, other, torchrun, said, looked_as}; see muster/pytorch/existing.py."""
    looked_as = LookedAs.choose(user)
    seen = _seen(looked_as.entry, prefix)
    found: dict[str, Any] = {**seen, "everybody": "", "other": "", "said": {}, "looked_as": looked_as.name}
    if seen["there"]:
        places = list(_places(prefix))
        found["everybody"] = next((place for place in places if _open_to_all(place)), "")
        found["other"] = next(filter(None, map(_other, places)), "")
        if not found["everybody"]:
            found["said"] = PytorchRoot(prefix, looked_as).look(Path(prefix), "import")
    return found


def _seen(entry: pwd.struct_passwd | None, prefix: str) -> dict[str, Any]:
    """Inspect as the user whose launches run in the environment, because links in the environment could mislead
    root."""
    try:
        seen: dict[str, Any] = as_user(
            entry,
            lambda: {
                "there": os.path.lexists(f"{prefix}/bin/python"),
                "torchrun": os.access(f"{prefix}/bin/torchrun", os.X_OK),
                "marks": marks(prefix),
            },
        )
    except SilentError:
        seen = {"there": False, "torchrun": False, "marks": {}}
    # Files that the user cannot access still count as present; then the Python does not start.
    return {**seen, "there": seen["there"] or os.path.lexists(f"{prefix}/bin/python")}


def _places(prefix: str) -> Iterator[str]:
    """Yield the files that a process loads first. An account that can change one of these files controls what runs."""
    yield from (f"{prefix}/{name}" for name in ("bin/python", "bin/torchrun", "bin", "lib"))
    with suppress(OSError):
        with os.scandir(f"{prefix}/lib") as entries:
            names = sorted(entry.name for entry in entries if entry.name.startswith("python3"))
        for name in names[:3]:
            site = f"{prefix}/lib/{name}/site-packages"
            yield from (site, f"{site}/torch", f"{site}/torch/__init__.py")


def _open_to_all(place: str) -> bool:
    with suppress(OSError):
        return bool(Path(place).stat().st_mode & stat.S_IWOTH)
    return False


def _other(place: str) -> str:
    with suppress(OSError):
        return foreign_writer(place) or ""
    return ""
