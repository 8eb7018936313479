"""Lines NAME=value, as a file of environment variables has them: read as they stand, and nothing in them is expanded.

No message holds anything of the text but the number of a line.
"""

from __future__ import annotations

import re

from .plan import ENV_NAME, PlanError

LINE = re.compile(r"\s*(?:export\s+)?([^=\s]+)\s*=\s*(.*)")
ESCAPED = {r"\n": "\n", r"\t": "\t", r"\"": '"', r"\\": "\\", r"\$": "$"}


def holds_lines(text: str) -> bool:
    """Whether the first line that says something is NAME=value; else the text is a mapping, as YAML or JSON."""
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            found = LINE.fullmatch(line)
            return found is not None and ENV_NAME.match(found[1]) is not None
    return False


def parse_lines(text: str) -> dict[str, str]:
    """The variables. Raises PlanError with a sentence for each line that cannot be read."""
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
    """Name and value. Raises ValueError with why not."""
    match = LINE.fullmatch(line)
    if match is None:
        raise ValueError("it is not NAME=value")
    value = match[2].rstrip()
    quote = value[:1]
    if quote not in ("'", '"'):
        if re.search(r"\s#", value):
            raise ValueError("put the value in quotes, for a # in it might begin a comment")
        return match[1], value
    if not re.fullmatch(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", value):
        raise ValueError("its quotes do not end with the line")
    inner = value[1:-1]
    return match[1], inner if quote == "'" else re.sub(r"\\.", lambda found: ESCAPED.get(found[0], found[0]), inner)


def add(variables: dict[str, str], name: str, value: str) -> None:
    """Add a variable. Raises ValueError with why not."""
    if not ENV_NAME.match(name):
        raise ValueError("what it sets is no name of an environment variable")
    if name in variables:
        raise ValueError(f"{name} is set once more")
    if "\0" in value:
        raise ValueError(f"the value of {name} holds a NUL")
    variables[name] = value
