"""Mutations of Python source: conditions, comparisons, constants, statements and return values.

Docstrings, annotations, f-strings, imports and `if TYPE_CHECKING` blocks are not mutated.
"""

from __future__ import annotations

import ast
import re
from functools import partial
from typing import TYPE_CHECKING

from mutations.mutant import Candidate, Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OPPOSITES = {"==": "!=", "<": "<=", ">": ">=", "in": "not in", "is": "is not"}
DOCUMENTATION = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
TYPES_ONLY = {"TypeVar", "NewType", "ParamSpec"}


def candidates(data: bytes) -> list[Candidate]:
    """Return all candidates. A candidate is a mutant only if the result is valid Python with another meaning."""
    tree = ast.parse(data)
    return [Candidate(each, partial(differs, data, tree, each)) for each in Finder(data).of(tree)]


def differs(data: bytes, tree: ast.Module, change: Change) -> bool:
    try:
        return ast.dump(ast.parse(change.applied(data))) != ast.dump(tree)
    except SyntaxError:
        return False


class Finder:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.starts = [0]
        for line in data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def begin(self, node: ast.expr | ast.stmt) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        return self.starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def change(self, kind: str, start: int, end: int, new: str) -> Change:
        return Change(kind, start, end, self.data[start:end].decode(), new)

    def replace(self, kind: str, node: ast.expr | ast.stmt, new: str) -> Change:
        return self.change(kind, self.begin(node), self.end(node), new)

    def of(self, node: ast.AST) -> Iterator[Change]:
        """Yield the mutations of a node and its descendants."""
        if isinstance(node, ast.JoinedStr) or is_text_alone(node):
            return
        yield from self.own(node)
        for child in below(node):
            yield from self.of(child)

    def own(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.If():
                yield from self.branches(node)
            case ast.IfExp() | ast.While():
                yield self.negated(node.test)
            case ast.comprehension():
                yield from map(self.negated, node.ifs)
            case ast.match_case(guard=ast.expr() as guard):
                yield self.negated(guard)
            case ast.BoolOp(op=ast.And()):
                yield from self.between("logic", node.values, "and", "or")
            case ast.BoolOp():
                yield from self.between("logic", node.values, "or", "and")
            case ast.Compare(ops=[op]):
                old = written(op)
                yield from self.between("compare", [node.left, *node.comparators], old, opposite(old))
            case ast.Constant():
                yield from self.constant(node)
            case ast.stmt():
                yield from self.statement(node)

    def statement(self, node: ast.stmt) -> Iterator[Change]:
        match node:
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield self.replace("return", value, "None")
            case ast.Expr() | ast.Raise() | ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break():
                yield self.replace("delete", node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self.replace("delete", node, "pass")

    def branches(self, node: ast.If) -> Iterator[Change]:
        if not names(node.test, {"TYPE_CHECKING"}):
            yield self.negated(node.test)
            yield from self.dropped(node.body)
        if node.orelse and not isinstance(node.orelse[0], ast.If):
            yield from self.dropped(node.orelse)

    def negated(self, test: ast.expr) -> Change:
        source = self.data[self.begin(test) : self.end(test)].decode()
        return self.replace("negate", test, f"(not ({source}))")

    def dropped(self, body: Sequence[ast.stmt]) -> Iterator[Change]:
        """Replace a branch with `pass`. Decorated definitions are skipped, because their first line is above their
        position."""
        if not getattr(body[0], "decorator_list", []):
            yield self.change("drop", self.begin(body[0]), self.end(body[-1]), "pass")

    def between(self, kind: str, values: Sequence[ast.expr], old: str, new: str) -> Iterator[Change]:
        """Replace the operator between the first two values, unless the text between them contains the operator
        twice."""
        start, end = self.end(values[0]), self.begin(values[1])
        word = re.compile(rb"(?<![\w=<>!])" + old.replace(" ", r"\s+").encode() + rb"(?![\w=<>!])")
        found = list(word.finditer(self.data[start:end]))
        if len(found) == 1:
            yield self.change(kind, start + found[0].start(), start + found[0].end(), new)

    def constant(self, node: ast.Constant) -> Iterator[Change]:
        match node.value:
            case bool() as value:
                yield self.replace("constant", node, str(not value))
            case int() | float() as number:
                yield self.replace("constant", node, repr(number + 1))
            case str() as text:
                yield self.replace("constant", node, '""' if text else '"mutant"')
            case bytes() as text:
                yield self.replace("constant", node, 'b""' if text else 'b"mutant"')


def written(op: ast.cmpop) -> str:
    """Return the source text of an operator."""
    name = ast.Name("x")
    return ast.unparse(ast.Compare(name, [op], [name])).removeprefix("x ").removesuffix(" x")


def opposite(old: str) -> str:
    return {**OPPOSITES, **{new: was for was, new in OPPOSITES.items()}}[old]


def names(node: ast.expr | None, wanted: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in wanted


def is_text_alone(node: ast.AST) -> bool:
    """Return whether the node is a docstring or `...`."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def below(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the child nodes that are executed, without annotations and code for type checkers."""
    match node:
        case ast.If() if names(node.test, {"TYPE_CHECKING"}):
            yield from node.orelse
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]
        case ast.ClassDef():
            yield from node.body
        case ast.AnnAssign():
            yield from [node.value] if node.value else []
        case ast.Assign() if any(names(target, DOCUMENTATION) for target in node.targets):
            return
        case ast.Call() if names(node.func, TYPES_ONLY):
            return
        case ast.Call() if names(node.func, {"cast"}):
            yield from node.args[1:]
        case ast.Import() | ast.ImportFrom():
            return
        case _:
            yield from ast.iter_child_nodes(node)
