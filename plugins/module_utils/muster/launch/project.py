"""Which files of a project are sent with a launch: what people mean by it, no secret, and no more than they expect.

A pattern is one of .gitignore's kind: a name matches at any depth, one with a slash within it from the project's folder
on; a slash behind it means folders alone; * and ? match within a name, ** over folders. Of several that match the last
one counts, and one that begins with ! includes. What lies in a folder that matches does so, too.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ..verdict.words import few, gigabytes, plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

IGNORE_FILE = ".musterignore"
NEVER = ("/.git", ".git", ".hg", ".svn", ".jj", "__pycache__/", "*.pyc")
# By their names: what holds passwords, keys and tokens where people train.
SECRETS = (
    *(".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", ".envrc"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "*.jks", "*.ppk", "*.gpg"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "id_*_rsa", "id_*_ed25519"),
    *(".netrc", ".pgpass", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd", ".aws/", ".ssh/", ".kube/", ".gnupg/"),
    *("credentials", "credentials.json", "credentials.y*ml", ".credentials", "client_secret*.json", "kaggle.json"),
    *("service[-_]account*.json", "secrets.json", "secrets.y*ml", "secrets.toml", "vault_pass*", ".vault_pass*"),
)
PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
LARGEST = 5  # files that are named
MEGABYTE = 1_000_000


class Pattern(NamedTuple):
    """includes: whether it takes back what others before it leave out."""

    matches: re.Pattern[str]
    folders: bool
    includes: bool


class Chosen(NamedTuple):
    """kept: what is sent. secrets: what looks like one, and is not."""

    kept: list[str]
    secrets: list[str]


def choose(paths: Iterable[str], ignore: str = "") -> Chosen:
    """Choose among the paths of a project. ignore: the text of its .musterignore."""
    own = patterns(_lines(ignore))
    kept: list[str] = []
    secrets: list[str] = []
    for path in sorted(paths):
        if _verdict(path, patterns(NEVER)) or _verdict(path, own):
            continue
        secret = _verdict(path, patterns(SECRETS)) and not is_included(path, ignore)
        (secrets if secret else kept).append(path)
    return Chosen(kept, secrets)


def is_included(path: str, ignore: str) -> bool:
    """Whether a line of .musterignore includes it by a !, and none behind that leaves it out."""
    return _verdict(path, patterns(_lines(ignore))) is False


def _lines(ignore: str) -> tuple[str, ...]:
    return tuple(line for line in map(str.strip, ignore.splitlines()) if line and not line.startswith("#"))


@cache
def patterns(lines: tuple[str, ...]) -> tuple[Pattern, ...]:
    return tuple(map(_pattern, lines))


def _pattern(line: str) -> Pattern:
    includes = line.startswith("!")
    text = line.removeprefix("!").removeprefix("\\")
    folders = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    body = "".join(_part(part) for part in re.split(r"(\*\*/|/\*\*|\[[^\]/]+\]|\*|\?)", text.lstrip("/")))
    return Pattern(re.compile(body if anchored else f"(?:.*/)?{body}"), folders, includes)


def _part(text: str) -> str:
    """Return one piece of a pattern as a regular expression."""
    known = {"**/": "(?:.*/)?", "/**": "/.*", "*": "[^/]*", "?": "[^/]"}
    if text in known:
        return known[text]
    if re.fullmatch(r"\[[^\]/]+\]", text):
        inner = text[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(text)


def _verdict(path: str, given: Sequence[Pattern]) -> bool | None:
    """Whether the patterns leave a path out; None where none of them matches."""
    parts = path.split("/")
    above = ["/".join(parts[:end]) for end in range(1, len(parts))]
    for one in reversed(given):
        if any(map(one.matches.fullmatch, above)) or (not one.folders and one.matches.fullmatch(path)):
            return not one.includes
    return None


def left_out(source: str, secrets: Sequence[str], links: Sequence[str]) -> list[str]:
    """Return what people should know about what is not sent, as sentences."""
    said = []
    if secrets:
        said.append(
            f"launch_project: {few(secrets)} {_are(secrets)} not sent, because that looks like a secret. Put values"
            f" into launch_env_file; a file that is none is sent with a line !{secrets[0]} in {source}/{IGNORE_FILE}"
        )
    if links:
        said.append(
            f"launch_project: {few(links)} {_are(links)} not sent: only a link to a file that is sent itself goes with"
            " the project, as that file's content. Name data by its path on the nodes"
        )
    return said


def too_much(source: str, sizes: Mapping[str, int], most_mb: int, most_files: int) -> list[str]:
    """Return why so many bytes are not sent, with the largest files; or nothing. sizes: by path."""
    total = sum(sizes.values())
    how = f"Leave out what no rank needs (.gitignore, {IGNORE_FILE})"
    if len(sizes) > most_files:
        folders: dict[str, int] = {}
        for path in sizes:
            folders[path.partition("/")[0]] = folders.get(path.partition("/")[0], 0) + 1
        largest = sorted(folders.items(), key=lambda item: -item[1])[:LARGEST]
        most = ", ".join(f"{name} ({count})" for name, count in largest)
        has = f"launch_project {source} has {len(sizes)} files, and at most {most_files} are sent"
        return [f"{has}. Most: {most}. {how}."]
    if total <= most_mb * MEGABYTE:
        return []
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:LARGEST]
    named = ", ".join(f"{path} ({gigabytes(size)})" for path, size in largest)
    has = f"launch_project {source} has {gigabytes(total)} in {plural(len(sizes), 'file')}"
    most = f"at most {gigabytes(most_mb * MEGABYTE)} are sent"
    return [f"{has}, and {most}. The largest: {named}. {how}, or raise launch_project_max_mb."]


def script_problem(script: str, source: str, paths: Collection[str], option: str = "launch_script") -> str:
    """Return why a script is none of the project, as a sentence; or nothing. option: what names it."""
    if script in paths:
        return ""
    near = difflib.get_close_matches(script, [path for path in paths if path.endswith(".py")], n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"{option} {script} is not among the files of launch_project {source} that are sent.{meant}"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
