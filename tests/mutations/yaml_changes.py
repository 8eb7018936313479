"""Mutations of a role's YAML: remove a task or a line of a task, list or mapping, or invert a condition."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

import yaml

from mutations.mutant import Candidate, Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Keys of a task beside its module, which is required. Removing the name would have no effect.
KEYWORDS = re.compile(
    "args|async|become|become_user|changed_when|check_mode|delay|delegate_facts|delegate_to|diff|environment|failed_when"
    "|loop|loop_control|no_log|notify|poll|register|rescue|always|retries|run_once|tags|throttle|until|vars|when"
)
TASK_LISTS = {"block", "rescue", "always"}
Path = tuple[Any, ...]


def candidates(data: bytes) -> list[Candidate]:
    """Return all candidates in the file. A candidate is a mutant only if it changes nothing else in the file."""
    text = data.decode()
    loaded, tree = yaml.safe_load(text), yaml.compose(text)
    if tree is None or isinstance(tree, yaml.ScalarNode):
        return []
    is_tasks = isinstance(loaded, list) and all(isinstance(each, dict) for each in loaded)
    return list(Finder(text, loaded).of(tree, (), text.count("\n") + 1, tasks=is_tasks))


class Finder:
    def __init__(self, text: str, loaded: Any) -> None:
        self.text, self.loaded = text, loaded
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def of(self, node: yaml.Node, path: Path, last: int, *, tasks: bool) -> Iterator[Candidate]:
        """Yield the mutations of a node. last: the line after the node. tasks: whether the items of the node are
        tasks."""
        if isinstance(node, yaml.SequenceNode) and not node.flow_style:
            yield from self.items(node, path, last, tasks=tasks)
        if isinstance(node, yaml.MappingNode) and not node.flow_style:
            yield from self.keys(node, path, last, is_task=tasks)

    def items(self, node: yaml.SequenceNode, path: Path, last: int, *, tasks: bool) -> Iterator[Candidate]:
        starts = [item.start_mark.line for item in node.value]
        for at, (item, end) in enumerate(zip(node.value, [*starts[1:], last], strict=True)):
            if len(starts) > 1:
                yield from self.removed("task" if tasks else "line", starts[at], end, (*path, at))
            yield from self.of(item, (*path, at), end, tasks=tasks and isinstance(item, yaml.MappingNode))

    def keys(self, node: yaml.MappingNode, path: Path, last: int, *, is_task: bool) -> Iterator[Candidate]:
        starts = [key.start_mark.line for key, _ in node.value]
        for at, ((key, value), end) in enumerate(zip(node.value, [*starts[1:], last], strict=True)):
            name = key.value
            if at > 0 and (KEYWORDS.fullmatch(str(name)) or not is_task):
                yield from self.removed("line", starts[at], end, (*path, name))
            if is_task and name in {"when", "failed_when", "changed_when", "until"}:
                yield from self.inverted(value, (*path, name))
            yield from self.of(value, (*path, name), end, tasks=is_task and name in TASK_LISTS)

    def removed(self, kind: str, first: int, behind: int, path: Path) -> Iterator[Candidate]:
        """Yield the removal of a part. Comments after the part belong to the next part."""
        lines = self.lines[first:behind]
        while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
            lines.pop()
        start = self.starts[first]
        if "<<" not in path:  # merged mappings have no path of their own in the loaded data
            end = start + len("".join(lines))
            yield self.candidate(kind, start, end, "", lambda: without(self.loaded, path))

    def inverted(self, node: yaml.Node, path: Path) -> Iterator[Candidate]:
        if isinstance(node, yaml.ScalarNode) and node.style is None and ": " not in node.value:
            new = f"not ({node.value})"
            start, end = node.start_mark.index, node.end_mark.index
            yield self.candidate("condition", start, end, new, lambda: replaced(self.loaded, path, new))

    def candidate(self, kind: str, start: int, end: int, new: str, expected: Callable[[], Any]) -> Candidate:
        """Return a candidate. expected: returns the parsed content that the file must have after the change."""

        def is_one() -> bool:
            try:
                return bool(yaml.safe_load(self.text[:start] + new + self.text[end:]) == expected())
            except yaml.YAMLError:
                return False

        before, old = len(self.text[:start].encode()), self.text[start:end]
        return Candidate(Change(kind, before, before + len(old.encode()), old, new), is_one)


def parent(loaded: Any, path: Path) -> tuple[Any, Any]:
    whole = copy.deepcopy(loaded)
    inner = whole
    for step in path[:-1]:
        inner = inner[step]
    return whole, inner


def without(loaded: Any, path: Path) -> Any:
    whole, inner = parent(loaded, path)
    del inner[path[-1]]
    return whole


def replaced(loaded: Any, path: Path, value: Any) -> Any:
    whole, inner = parent(loaded, path)
    inner[path[-1]] = value
    return whole
