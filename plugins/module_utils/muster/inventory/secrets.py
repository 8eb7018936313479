"""Find secrets in clear text in the inventory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..verdict.commands import vault
from .model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory

_SECRET_WORDS = {"pass", "password", "passwd", "passphrase", "secret", "token"}
_SECRET_PAIRS = re.compile(r"(api|access|private|secret)_?key$")
# Variables with these last words name the location or a property of a secret.
_HARMLESS_END = re.compile("file|path|dir|name|env|var|command|cmd|prompt|url|id|type|policy")
# Numbers with these last words are a rule for secrets, such as password_max_age.
_MEASURE = re.compile("age|attempts|count|days|hours|length|lifetime|max|min|minutes|retries|seconds|size|timeout|ttl")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_PATH = re.compile(r"(~|/)[\w./~-]*", re.ASCII)
_URL_WITH_PASSWORD = re.compile(r"\w+://[^/\s:@]*:[^/\s@]+@")
_TEMPLATE = re.compile(r"\{[{%]")
_NOTHING = ("", "none", "null", "true", "false", "yes", "no", "omit")


def is_secret(name: str, text: str) -> bool:
    """Return whether a variable is a clear-text secret, based on its name and value.

    Lookups and templates are not secrets.
    """
    if _TEMPLATE.search(text):
        return False
    if _PRIVATE_KEY.search(text) or _URL_WITH_PASSWORD.search(text):
        return True
    # hfToken, HF_TOKEN and hf-token are the same three words.
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").split("_")
    if _HARMLESS_END.fullmatch(words[-1]) or text.strip().lower() in _NOTHING or _PATH.fullmatch(text):
        return False
    if _MEASURE.fullmatch(words[-1]) and text.strip().isdecimal():
        return False
    return bool(_SECRET_WORDS.intersection(words)) or _SECRET_PAIRS.search("_".join(words)) is not None


def none_in_clear_text(inventory: Inventory) -> Iterator[Problem]:
    for secret in inventory.secrets:
        what = f"{secret.variable} is a secret in clear text"
        fix = f"Replace the value with the output of this command for the name {secret.variable}: {vault()}"
        yield Problem(secret.file, what, fix)
