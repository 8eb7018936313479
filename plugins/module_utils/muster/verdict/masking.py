"""What must not be shown: secrets among the variables and arguments of programs, covered wherever they would appear."""

from __future__ import annotations

import re

SECRET_NAME = re.compile(
    r"TOKEN(?!IZER)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API[_-]?KEY|(ACCESS|PRIVATE)[_-]KEY|[_-](PASS|KEY|AUTH)$|^AUTH",
    re.IGNORECASE,
)
PASSWORD_IN_URL = re.compile(r"(?<=://)([^/@\s:]*:)[^/@\s]+(?=@)")
MASK = "********"


def masked_env(env: dict[str, str]) -> dict[str, str]:
    return {name: MASK if SECRET_NAME.search(name) else masked_url(value) for name, value in env.items()}


def masked_argv(argv: list[str]) -> list[str]:
    """--api-key=X and --api-key X; a number is none (--max-tokens 512)."""
    shown = []
    secret = False
    for word in argv:
        name, sign, value = word.partition("=")
        if secret and not word.startswith("-") and not word.isdigit():
            shown.append(MASK)
        elif name.startswith("-") and sign and SECRET_NAME.search(name) and not value.isdigit():
            shown.append(f"{name}={MASK}")
        else:
            shown.append(masked_url(word))
        secret = name.startswith("-") and not sign and SECRET_NAME.search(name) is not None
    return shown


def masked_url(text: str) -> str:
    return PASSWORD_IN_URL.sub(rf"\g<1>{MASK}", text)
