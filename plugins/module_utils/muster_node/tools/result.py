"""What modules answer: refusals in one sentence that begins with the node's name, warnings, diffs."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class RefusedError(Exception):
    """What stands in the way and what to do about it, as one sentence without its full stop.

    more: parts of the module's result that go with it.
    """

    def __init__(self, what: str, fix: str = "", **more: Any) -> None:
        super().__init__(f"{what}. {fix}" if fix else what)
        self.more = more


def refuse(problems: Sequence[str], differences: Sequence[str] = (), fix: str = "", **more: Any) -> None:
    """Raise RefusedError if there is anything wrong.

    problems: what is not ours to fix. differences: what a module finds that only verifies; `fix` says how to have them
    put right, and helps nobody as long as there are problems.
    """
    if problems or differences:
        raise RefusedError("; ".join([*problems, *differences]), "" if problems else fix, **more)


def diff(name: str, before: str, after: str) -> dict[str, str]:
    """One part of a module's diff. name: of the file, or of what else is different."""
    return {"before_header": name, "after_header": name, "before": before, "after": after}


def lines(texts: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def warn(module: Any, sentences: Iterable[str]) -> None:
    """sentences: without the node's name and the full stop."""
    for sentence in sentences:
        module.warn(f"{module.params['node']}: {sentence}.")


@contextmanager
def one_sentence(
    module: Any, path: str = "", refusals: tuple[type[Exception], ...] = (), node: str = "node"
) -> Iterator[None]:
    """End the module with the sentence of what is raised within.

    path: what an error of the operating system is about that names no file. refusals: further errors whose text is
    such a sentence. node: the option that has the node's name.
    """
    begin = module.params[node]
    try:
        yield
    except RefusedError as refused:
        module.fail_json(msg=f"{begin}: {refused}.", **refused.more)
    except refusals as refused:
        module.fail_json(msg=f"{begin}: {refused}.")
    except subprocess.TimeoutExpired as problem:
        module.fail_json(msg=f"{begin}: {problem.cmd[0]} gave no answer within {problem.timeout:g} s.")
    except OSError as problem:
        where = problem.filename or path
        module.fail_json(msg=f"{begin}: {f'{where}: ' if where else ''}{problem.strerror}.")
