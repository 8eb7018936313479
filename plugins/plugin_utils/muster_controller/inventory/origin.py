"""Find the file and line of inventory values, and find secrets in clear text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.parsing.vault import is_encrypted_file

from muster.inventory import Secret
from muster.inventory.secrets import is_secret
from muster_controller.playbook.command_line import short

try:
    # Ansible's record of where a value was read. It is not a public interface and may be missing; then no origin is
    # known, and no secrets are reported.
    from ansible._internal._datatag._tags import Origin
    from ansible.parsing.vault import EncryptedString
except ImportError:
    Origin = EncryptedString = None

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEEPEST = 20  # maximum nesting of a variable; usual inventories have three levels


def clear_secrets(variables: Mapping[str, Any], folders: tuple[Path, ...]) -> Iterator[Secret]:
    """Yield the secrets in a host's raw variables that a file below these folders contains in clear text."""
    for variable, value in variables.items():
        for name, text in _texts(str(variable), value, DEEPEST):
            path = _file(text, folders)
            if path is not None and is_secret(name, str(text)) and not _is_vault(path):
                yield Secret(name, short(str(path)))


def _texts(name: str, value: Any, levels: int) -> Iterator[tuple[str, Any]]:
    """Yield each string and number in a nested value, with the key of the innermost mapping that contains it."""
    if levels == 0 or isinstance(value, bool) or (EncryptedString is not None and isinstance(value, EncryptedString)):
        return
    if isinstance(value, (str, int)):
        yield name, value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _texts(str(key), entry, levels - 1)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _texts(name, entry, levels - 1)


def _file(value: Any, folders: tuple[Path, ...]) -> Path | None:
    """Return the file from which the value was read, or None if the value is from a script or the command line."""
    origin = Origin.get_tag(value) if Origin is not None else None
    path = Path(origin.path) if origin is not None and origin.path else None
    return path if path is not None and any(path.is_relative_to(folder) for folder in folders) else None


def written_at(value: Any) -> str:
    """Return the file and line of the value, such as "job.yml line 3", or "" if the value is not from a file."""
    origin = Origin.get_tag(value) if Origin is not None else None
    if origin is None or not origin.path:
        return ""
    return f"{short(origin.path)} line {origin.line_num}" if origin.line_num else short(origin.path)


def _is_vault(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return bool(is_encrypted_file(stream))
    except OSError:
        return False
