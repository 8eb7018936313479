"""Masks secrets in environment variables and program arguments. A secret is recognized by its name or format.

redaction.py masks secrets that the user declared, by their value, wherever they appear.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET_NAME = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|WEBHOOK|CONNECTION[_-]?STRING|(API|ACCESS|PRIVATE)[_-]?KEY"
    r"|(^|[_-])(PASS|PAT|KEY|AUTH|SAS|DSN|CREDS?)$|[_-]PWD$|^-*AUTH(?!ORS?$)",
    re.IGNORECASE,
)
# A password in a URL, a bearer token, and tokens with a known prefix.
SECRET_TEXT = re.compile(
    r"(://[^/@\s:]*:(?=[^/@\s]+@)|\bbearer +)([^\s@'\"]+)"
    r"|\b(?:hf_|gh[opsu]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|AIza)[\w-]{16,}",
    re.IGNORECASE,
)
MASK = "********"
LONG_NUMBER = 8  # digits from which a number after a secret's name is not a count (--max-tokens 512)


def masked_env(env: dict[str, str]) -> dict[str, str]:
    return {name: MASK if SECRET_NAME.search(name) else masked_text(value) for name, value in env.items()}


def secrets_of_env(env: dict[str, str]) -> list[str]:
    found = [[value] if SECRET_NAME.search(name) else secrets_of_text(value) for name, value in env.items()]
    return [secret for each in found for secret in each]


def masked_argv(argv: list[str]) -> list[str]:
    """Mask secrets in forms such as --api-key=X and --api-key X."""
    return [word[:begin] + MASK if begin < len(word) else masked_text(word) for word, begin in _words(argv)]


def secrets_of_argv(argv: list[str]) -> list[str]:
    return [
        secret
        for word, begin in _words(argv)
        for secret in ([word[begin:]] if begin < len(word) else secrets_of_text(word))
    ]


def secret_options(argv: list[str]) -> list[str]:
    """Return the options whose values are secrets."""
    shown = masked_argv(argv)
    return [
        before if word == MASK else word.partition("=")[0]
        for before, word, typed in zip(["an argument", *shown], shown, argv, strict=False)
        if word != typed
    ]


def masked_command(text: str) -> str:
    """Mask secrets in a command line as ps shows it, in which the original word boundaries are lost."""
    return " ".join(masked_argv(text.split()))


def masked_text(text: str) -> str:
    return SECRET_TEXT.sub(lambda found: (found[1] or "") + MASK, text)


def secrets_of_text(text: str) -> list[str]:
    return [found[2] or found[0] for found in SECRET_TEXT.finditer(text)]


def _words(argv: list[str]) -> Iterator[tuple[str, int]]:
    """Yield each word and the index where its secret begins. If the word contains no secret, the index is the length of
    the word."""
    announced = False
    for word in argv:
        begin = 0 if announced and not word.startswith("-") else _behind_a_secret_name(word)
        number = word[begin:].isdigit() and len(word) - begin < LONG_NUMBER
        yield word, len(word) if number else begin
        announced = "=" not in word and (
            (word.startswith("-") and SECRET_NAME.search(word) is not None) or word == "Bearer"
        )


def _behind_a_secret_name(word: str) -> int:
    """Return the index of VALUE in --api-key=VALUE or --env=HF_TOKEN=VALUE. If the word has no secret name, return its
    length."""
    begin = 0
    for sign in re.finditer("=", word):
        if SECRET_NAME.search(word[begin : sign.start()]):
            return sign.end()
        begin = sign.end()
    return len(word)
