"""Parse a file with NAME=value lines for environment variables. Values are taken literally, without expansion.

Messages contain line numbers and variable names, but no other text from the file.
"""

from __future__ import annotations

import re

from .plan import ENV_NAME, PlanError

LINE = re.compile(r"\s*(?:export\s+)?([^=\s]+)\s*=\s*(.*)")
ESCAPED = {r"\n": "\n", r"\t": "\t", r"\"": '"', r"\\": "\\", r"\$": "$"}


def holds_lines(text: str) -> bool:
    """Return whether the first line with content has the form NAME=value.

    Otherwise the text is a YAML or JSON mapping.
    """
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            found = LINE.fullmatch(line)
            return found is not None and ENV_NAME.match(found[1]) is not None
    return False


def parse_lines(text: str) -> dict[str, str]:
    """Return the variables. Raises PlanError with one sentence for each invalid line."""
    found: dict[str, str] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            name, value = parse_line(line)
            add(found, name, value)
        except ValueError as problem:
            problems.append(f"line {number}: {problem}.")
    if problems:
        raise PlanError(problems)
    return found


def parse_line(line: str) -> tuple[str, str]:
    """Return the name and the value in a line. Raises ValueError with the reason if the line is invalid."""
    match = LINE.fullmatch(line)
    if match is None:
        raise ValueError("not in the form NAME=value")
    value = match[2].rstrip()
    quote = value[:1]
    if quote not in ("'", '"'):
        if re.search(r"\s#", value):
            raise ValueError("the value contains #, which may start a comment: put it in quotes")
        return match[1], value
    if not re.fullmatch(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", value):
        raise ValueError("the quotes are not closed at the end of the line")
    inner = value[1:-1]
    return match[1], inner if quote == "'" else re.sub(r"\\.", lambda found: ESCAPED.get(found[0], found[0]), inner)


def add(variables: dict[str, str], name: str, value: str) -> None:
    """Add a variable. Raises ValueError with the reason if the variable is invalid or already set."""
    if not ENV_NAME.match(name):
        raise ValueError("the name is not a valid name of an environment variable")
    if name in variables:
        raise ValueError(f"{name} is already set")
    if "\0" in value:
        raise ValueError(f"the value of {name} contains a NUL character")
    variables[name] = value
