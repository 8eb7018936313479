"""The command line of this run without secrets, so that it can be stored and run again.

Each function takes the options as parsed by Ansible.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import context

from muster.inventory.secrets import is_secret
from muster.verdict.masking import MASK, SECRET_NAME, masked_argv, masked_text

if TYPE_CHECKING:
    from collections.abc import Mapping


def inventories(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values of -i. A value with a comma is a list of hosts."""
    return tuple(source if "," in source else short(source) for source in options.get("inventory") or ())


def playbooks(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the playbooks of the run. If the program is ansible, there is a host pattern instead of playbooks."""
    given = options.get("args") or ()
    return () if isinstance(given, str) else tuple(short(str(book)) for book in given)


def short(path: str) -> str:
    """Return a path below the working directory as a relative path. Other paths are returned unchanged."""
    try:
        here = Path.cwd()
    except OSError:  # the directory was removed
        return path
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def tags_of(options: Mapping[str, Any]) -> list[str]:
    return [tag for tag in options.get("tags") or () if tag != "all"]


def chosen_tags() -> tuple[list[str], list[str]]:
    """Return the selected tags and the skipped tags of this run."""
    return list(context.CLIARGS.get("tags") or ["all"]), list(context.CLIARGS.get("skip_tags") or [])


def doing(options: Mapping[str, Any]) -> str:
    """Return a short description of this run for other administrators, such as `site.yml --tags network`."""
    words = [*(Path(book).name for book in playbooks(options)), *_selection(options)]
    return " ".join(words)[:200]


def without_selection(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of this run without those that select nodes or tasks."""
    return {**options, "subset": None, "tags": (), "skip_tags": ()}


def other_options(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arguments after the inventory that describe the run."""
    more = (part for word in options.get("extra_vars") or () for part in extra_word(str(word)))
    return (*_selection(options), *more)


def _selection(options: Mapping[str, Any]) -> list[str]:
    words = ["--tags", ",".join(tags)] if (tags := tags_of(options)) else []
    words += ["--limit", str(options["subset"])] if options.get("subset") else []
    return words + (["--check"] if options.get("check") else [])


def extra_word(word: str) -> list[str]:
    """Return an -e argument to use again. If it might contain a secret, return nothing, and the user must add the
    argument."""
    if word.startswith("@"):
        return ["-e", f"@{short(word[1:])}"]
    try:
        given = json.loads(word) if word.startswith("{") else dict(pair.split("=", 1) for pair in shlex.split(word))
    except ValueError:
        return []
    return [] if MASK in json.dumps(shown("", given)) else ["-e", word]


def shown(name: str, value: Any) -> Any:
    """Return the value of an option, with secrets and values that look like secrets masked."""
    if isinstance(value, bool) or value is None:
        return value
    # Vault values have their own class. Other texts are plain, or carry their place.
    if type(value).__name__.startswith("Encrypted") or SECRET_NAME.search(name):
        return MASK
    if name == "launch_env":
        return dict.fromkeys(value, MASK) if isinstance(value, dict) else MASK
    if name == "launch_args":
        words = value if isinstance(value, (list, tuple)) else re.split(r"[\s,]+", str(value))
        return masked_argv([str(word) for word in words])
    if isinstance(value, dict):
        return {str(key): shown(str(key), entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(name, entry) for entry in value]
    if isinstance(value, (int, float)):
        return value
    text = re.sub(r"\s+", " ", str(value))
    return MASK if is_secret(name, text) else masked_text(text)[:200]


def sentence(options: Mapping[str, Any], name: str) -> str:
    """Return the value of -e NAME=... up to the next NAME=, or an empty string if the variable was given in another
    way. This is necessary because the shell removes quotes, and Ansible's own parser would end the value at the first
    space."""
    for word in reversed([str(word) for word in options.get("extra_vars") or ()]):
        if word.startswith(f"{name}=") and word[len(name) + 1 :][:1] not in {"'", '"'}:
            return re.split(r"\s+(?=[A-Za-z_]\w*=)", word[len(name) + 1 :])[0].strip()
    return ""
