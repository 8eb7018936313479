"""Reject an inventory whose YAML cannot be parsed, with one sentence per file.

Ansible tries each inventory plugin in turn and prints the errors of all of them, and names no file for an error in
group_vars (seen with ansible-core 2.19 and 2.21). This plugin runs before the others, and does not provide any hosts.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.utils.display import Display

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENTATION = """
    name: yaml_syntax
    short_description: Checks the YAML syntax of an inventory
    description:
      - Ends the run with one sentence per file whose YAML cannot be parsed. Lists no hosts.
    options: {}
"""
VARIABLES = ("group_vars", "host_vars")
SUFFIXES = (".yml", ".yaml")
PARSER_ERROR = 4  # Ansible's exit status for it
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class InventoryModule(BaseInventoryPlugin):
    NAME = "yaml_syntax"

    def verify_file(self, path: str) -> bool:
        if errors := [sentence for file in files_of(Path(path)) if (sentence := syntax_error(file))]:
            for sentence in errors:
                Display().error(f"{sentence} No node was contacted.", wrap_text=False)
            raise SystemExit(PARSER_ERROR)
        return False

    def parse(self, *_: Any, **__: Any) -> None:
        """Never called, because verify_file accepts no file."""


def files_of(source: Path) -> Iterator[Path]:
    """Yield the YAML files of an inventory source: the file itself, and group_vars and host_vars next to it."""
    if source.is_file() and source.suffix in SUFFIXES:
        yield source
    for folder in VARIABLES:
        yield from sorted(
            one for one in (source.parent / folder).rglob("*") if one.suffix in SUFFIXES and one.is_file()
        )


def syntax_error(path: Path) -> str:
    """Return the YAML error of a file as a sentence, or "" if the file can be parsed or is encrypted."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        if text.startswith("#!"):  # an inventory script
            return ""
        for _ in yaml.parse(text, Loader=LOADER):
            pass
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        if "\t" in "".join(text.splitlines()[line : line + 1]):
            return f"{path} line {line + 1}: YAML does not allow tabs here. Replace the tab with spaces."
        return f"{path} line {line + 1}: invalid YAML ({error.problem}). Correct this line or the one before it."
    except (yaml.YAMLError, OSError, UnicodeDecodeError, RecursionError) as error:
        return f"{path}: cannot be read as YAML ({' '.join(str(error).split())}). Correct the file."
    return ""
