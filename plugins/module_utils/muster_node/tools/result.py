"""Module results: errors as one sentence that begins with the node's name, warnings, and diffs."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class RefusedError(Exception):
    """Raised to fail a module. The message is one sentence with the problem and the fix, without the final full stop.

    more: additional fields of the module's result.
    """

    def __init__(self, what: str, fix: str = "", **more: Any) -> None:
        super().__init__(f"{what}. {fix}" if fix else what)
        self.more = more


def refuse(problems: Sequence[str], differences: Sequence[str] = (), fix: str = "", **more: Any) -> None:
    """Raise RefusedError if there is any problem.

    problems: problems that the module cannot fix. differences: differences that a module found in verify mode. fix: how
    to fix the differences; added only if there are no problems.
    """
    if problems or differences:
        raise RefusedError("; ".join([*problems, *differences]), "" if problems else fix, **more)


def diff(name: str, before: str, after: str) -> dict[str, str]:
    """Return one entry of a module's diff. name: file or other item."""
    return {"before_header": name, "after_header": name, "before": before, "after": after}


def lines(texts: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def warn(module: Any, sentences: Iterable[str]) -> None:
    """Add warnings to the module's result. sentences: without the node's name and the full stop."""
    for sentence in sentences:
        module.warn(f"{module.params['node']}: {sentence}.")


@contextmanager
def one_sentence(
    module: Any, path: str = "", refusals: tuple[type[Exception], ...] = (), node: str = "node"
) -> Iterator[None]:
    """If the block raises an exception, fail the module with the sentence of the exception.

    path: subject for operating system errors without a file name. refusals: further exception types whose text is such
    a sentence. node: option that contains the node's name.
    """
    begin = module.params[node]
    try:
        yield
    except RefusedError as refused:
        module.fail_json(msg=f"{begin}: {refused}.", **refused.more)
    except refusals as refused:
        module.fail_json(msg=f"{begin}: {refused}.")
    except subprocess.TimeoutExpired as problem:
        module.fail_json(msg=f"{begin}: {problem.cmd[0]} did not respond within {problem.timeout:g} s.")
    except OSError as problem:
        where = problem.filename or path
        module.fail_json(msg=f"{begin}: {f'{where}: ' if where else ''}{problem.strerror}.")
