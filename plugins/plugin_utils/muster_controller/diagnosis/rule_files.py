"""Reads the site's rule files listed in diagnose_rules, with the line number of every entry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from muster.diagnosis.site_reading import RuleFile, rules_of
from muster.diagnosis.site_rules import Rules
from muster.inventory.model import CONTROLLER_FILES, Problem
from muster_controller.playbook.trusted import who_else_writes
from muster_controller.playbook.variables import load_roles, project_root, read_node
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

MOST = 1_000_000  # bytes of a file
FILES, COMMANDS = "diagnose_rules", "diagnose_rules_commands"


class SiteRules(NamedTuple):
    """The rules of a site. commands: whether commands may run on the nodes. problems: if there are any, no rules are
    used."""

    rules: Rules = Rules()
    commands: bool = False
    problems: tuple[Problem, ...] = ()


NO_RULES = SiteRules()


def site_rules(task_vars: Mapping[str, Any], templar: Templar, loader: DataLoader, host: str) -> SiteRules:
    """Read the rule files that are set in the inventory."""
    reading = read_node(task_vars, templar, load_roles(loader, "diagnose"), host, (FILES, COMMANDS))
    commands = reading.values.get(COMMANDS) is True
    rules, problems = read_rules(reading.values.get(FILES) or (), commands=commands)
    return SiteRules(rules, commands, tuple(problems))


def read_rules(names: Sequence[str], *, commands: bool, folder: Path | None = None) -> tuple[Rules, list[Problem]]:
    """Return the rules of all files, and all problems. commands: whether the commands in the rules may run. If so, only
    the owner of the playbooks may have write access to the files. folder: base of relative paths; the default is the
    folder of ansible.cfg."""
    found: list[RuleFile] = []
    problems: list[Problem] = []
    for name in dict.fromkeys(names):
        path = (folder or project_root()) / Path(name).expanduser()
        try:
            file, wrong = read_file(path, name)
            stranger = who_else_writes(path) if commands else None
        except (OSError, UnicodeDecodeError) as exc:
            why = getattr(exc, "strerror", None) or "not UTF-8"
            problems.append(Problem(name, f"the site rules cannot be read ({why})", CONTROLLER_FILES))
        except (yaml.YAMLError, RecursionError) as exc:
            problems.append(Problem(where(name, exc), f"invalid YAML: {said(exc)}", "Correct it"))
        else:
            found.append(file)
            problems += [*wrong, *([Problem(name, *stranger)] if stranger else [])]
    rules, wrong = rules_of(found)
    problems += wrong
    return (Rules(), problems) if problems else (rules, [])


def read_file(path: Path, name: str) -> tuple[RuleFile, list[Problem]]:
    """Return the content of the file, and problems that the YAML parser ignores. Raises OSError, UnicodeDecodeError and
    YAMLError."""
    text = files.read(str(path), most=MOST, links=True).decode("utf-8")
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        file = RuleFile(name, loader.construct_document(node) if node else None, dict(lines_of(node)))
        return file, list(twice(name, node))
    finally:
        loader.dispose()


def lines_of(node: Any) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """Yield ((part, number of the entry, key), line)."""
    for part, value in pairs(node):
        yield (part.value,), part.start_mark.line + 1
        for number, entry in enumerate(value.value if isinstance(value, yaml.SequenceNode) else (), 1):
            yield (part.value, number), entry.start_mark.line + 1
            for key, _ in pairs(entry):
                yield (part.value, number, key.value), key.start_mark.line + 1


def twice(name: str, node: Any) -> Iterator[Problem]:
    """Yield a problem for each duplicate key of a mapping. The YAML parser would keep only the last one."""
    seen: dict[str, int] = {}
    for key, value in pairs(node):
        line = key.start_mark.line + 1
        if key.value in seen:
            what = f"duplicate key {key.value}, first used in line {seen[key.value]}"
            yield Problem(f"{name} line {line}", what, "Merge the two entries, or remove one")
        seen.setdefault(str(key.value), line)
        for entry in value.value if isinstance(value, yaml.SequenceNode) else ():
            yield from twice(name, entry)


def pairs(node: Any) -> list[tuple[Any, Any]]:
    return list(node.value) if isinstance(node, yaml.MappingNode) else []


def where(name: str, exc: Exception) -> str:
    mark = getattr(exc, "problem_mark", None)
    return f"{name} line {mark.line + 1}" if mark else name


def said(exc: Exception) -> str:
    return str(getattr(exc, "problem", None) or "nesting too deep")
