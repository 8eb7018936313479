"""The tags of the project's playbooks and roles, and those of a run that do not exist."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from .variables import project_root

if TYPE_CHECKING:
    from collections.abc import Iterable

OF_ANSIBLE = frozenset({"all", "always", "never", "tagged", "untagged"})
OF_MOLECULE = frozenset({"molecule-notest", "notest", "molecule-idempotence-notest"})  # skipped in each of its runs
FILES = ("site.yml", "playbooks/*.yml", "roles/*/tasks/*.yml")
TAGS = re.compile(r"\btags: *\[?([\w, ]+)")  # parsing the files takes half a second


def unknown_tags(given: Iterable[str]) -> str:
    """Return a sentence on the tags that select nothing; "" if all exist."""
    asked = [tag for tag in given if tag not in OF_ANSIBLE | OF_MOLECULE]
    paths = [path for pattern in FILES for path in project_root().glob(pattern)] if asked else []
    known = {tag for path in paths for tags in TAGS.findall(path.read_text("utf-8")) for tag in re.split(r"\W+", tags)}
    words = []
    for tag in asked:
        if tag not in known:
            near = difflib.get_close_matches(tag, known, 1)
            words.append(f"{tag} (did you mean {near[0]}?)" if near else tag)
    noun = "tag" if len(words) == 1 else "tags"
    verb = "is" if len(words) == 1 else "are"
    return f"There {verb} no {noun} {', '.join(words)}. No node was contacted." if words else ""
