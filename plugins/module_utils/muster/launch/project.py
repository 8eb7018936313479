"""Select the project files that are copied with a launch, excluding secrets and within size limits.

The patterns work as in .gitignore. A plain name matches at any depth. A pattern with a slash inside is relative to the
project's folder. A trailing slash matches only folders. * and ? match within a name; ** matches across folders. The
last matching pattern decides. A pattern that begins with ! includes files again. A match of a folder also applies to
its content.
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
# Names of files that usually contain passwords, keys and tokens.
SECRETS = (
    *(".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", ".envrc"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "*.jks", "*.ppk", "*.gpg"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "id_*_rsa", "id_*_ed25519"),
    *(".netrc", ".pgpass", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd", ".aws/", ".ssh/", ".kube/", ".gnupg/"),
    *("credentials", "credentials.json", "credentials.y*ml", ".credentials", "client_secret*.json", "kaggle.json"),
    *("service[-_]account*.json", "secrets.json", "secrets.y*ml", "secrets.toml", "vault_pass*", ".vault_pass*"),
)
PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
LARGEST = 5  # number of files named in a message
MEGABYTE = 1_000_000


class Pattern(NamedTuple):
    """A pattern.

    folders: whether it matches only folders. includes: whether it includes files that earlier patterns exclude.
    """

    matches: re.Pattern[str]
    folders: bool
    includes: bool


class Chosen(NamedTuple):
    """kept: files to copy. secrets: files that look like secrets and therefore are not copied."""

    kept: list[str]
    secrets: list[str]


def choose(paths: Iterable[str], ignore: str = "") -> Chosen:
    """Select the files to copy from the paths of a project. ignore: content of the project's .musterignore."""
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
    """Return whether a line with ! in .musterignore includes the path and no later line excludes it."""
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
    """Convert one path component of a pattern to a regular expression."""
    known = {"**/": "(?:.*/)?", "/**": "/.*", "*": "[^/]*", "?": "[^/]"}
    if text in known:
        return known[text]
    if re.fullmatch(r"\[[^\]/]+\]", text):
        inner = text[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(text)


def _verdict(path: str, given: Sequence[Pattern]) -> bool | None:
    """Return whether the patterns exclude a path; None if no pattern matches."""
    parts = path.split("/")
    above = ["/".join(parts[:end]) for end in range(1, len(parts))]
    for one in reversed(given):
        if any(map(one.matches.fullmatch, above)) or (not one.folders and one.matches.fullmatch(path)):
            return not one.includes
    return None


def left_out(source: str, secrets: Sequence[str], links: Sequence[str]) -> list[str]:
    """Return sentences about the files that are not copied."""
    said = []
    if secrets:
        said.append(
            f"launch_project: {few(secrets)} {_are(secrets)} not copied (possible secrets). Put secret values"
            f" into launch_env_file. To copy the file, add the line !{secrets[0]} to {source}/{IGNORE_FILE}"
        )
    if links:
        said.append(
            f"launch_project: {few(links)} {_are(links)} not copied: a link is copied, as a regular file, only if its"
            " target is a copied file. Refer to data by its path on the nodes"
        )
    return said


def too_much(source: str, sizes: Mapping[str, int], most_mb: int, most_files: int) -> list[str]:
    """Return a problem that names the largest files if the project exceeds a limit. sizes: file sizes by path."""
    total = sum(sizes.values())
    how = f"Exclude files that no rank needs (.gitignore, {IGNORE_FILE})"
    if len(sizes) > most_files:
        folders: dict[str, int] = {}
        for path in sizes:
            folders[path.partition("/")[0]] = folders.get(path.partition("/")[0], 0) + 1
        largest = sorted(folders.items(), key=lambda item: -item[1])[:LARGEST]
        most = ", ".join(f"{name} ({count})" for name, count in largest)
        has = f"launch_project {source} has {len(sizes)} files; the maximum is {most_files}"
        return [f"{has}. Folders with the most files: {most}. {how}."]
    if total <= most_mb * MEGABYTE:
        return []
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:LARGEST]
    named = ", ".join(f"{path} ({gigabytes(size)})" for path, size in largest)
    has = f"launch_project {source} has {gigabytes(total)} in {plural(len(sizes), 'file')}"
    most = f"the maximum is {gigabytes(most_mb * MEGABYTE)}"
    return [f"{has}; {most}. Largest files: {named}. {how}, or increase launch_project_max_mb."]


def script_problem(script: str, source: str, paths: Collection[str], option: str = "launch_script") -> str:
    """Return a problem if the script is not in the project; "" if it is. option: the option that names the script."""
    if script in paths:
        return ""
    near = difflib.get_close_matches(script, [path for path in paths if path.endswith(".py")], n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"{option} {script} is not among the copied files of launch_project {source}.{meant}"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
