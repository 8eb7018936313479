"""apt repositories on a node: fetch and verify keys, write the entries, and test the repositories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.packages import repositories as domain

from ..tools import files
from ..tools.result import RefusedError, diff
from .apt import read_lists

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Fetch = Callable[[str], bytes]

APT = Path("/etc/apt")
LISTS = Path("/var/lib/apt/lists")
NOT_SIGNED = (
    "NO_PUBKEY",
    "is not signed",
    "BADSIG",
    "EXPKEYSIG",
    "couldn't be verified",
    "Missing key",
    "Bad signature",
)


def read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def entries() -> Iterator[domain.AptSource]:
    for path in (APT / "sources.list", *sorted((APT / "sources.list.d").glob("*"))):
        if path.suffix in (".list", ".sources"):
            yield from domain.sources(str(path), read(str(path)))


def repository_of(given: Mapping[str, Any], there: list[domain.AptSource]) -> domain.AptRepository:
    if given["of_archive"]:
        found = domain.of_archive(given["name"], tuple(given["of_archive"]), there)
        if found is None:
            raise RefusedError("/etc/apt/sources.list* has no entry for the distribution's archive")
        return found
    plain = {name: given[name] for name in ("name", "uri", "label", "priority")}
    return domain.AptRepository(**plain, fingerprints=tuple(given["fingerprints"]))


def key_of(repository: domain.AptRepository, given: Mapping[str, Any], fetch: Fetch) -> bytes:
    """Return the given key, or else the repository's trusted key from the first URL that responds."""
    if given["key"]:
        return str(given["key"]).encode()
    trouble = ["no URL is configured for the signing key"]
    for url in given["key_urls"]:
        try:
            key = fetch(url)
        except Exception as error:  # any kind of network error
            trouble = [f"the key cannot be downloaded from {url}: {error}"]
            continue
        try:
            there = domain.fingerprints(key)
        except domain.KeyFileError as error:
            trouble = [f"the file at {url} is not a key: {error}"]
            continue
        if repository.trusts(key):
            return key
        raise RefusedError(
            f"the key at {url} has fingerprint {', '.join(there) or 'none'} instead of "
            f"{' or '.join(repository.fingerprints)} and was rejected. Check the connection "
            f"from the node to {repository.uri}. For a mirror's own key, use gpu_stack_repository_keys"
        )
    raise RefusedError(
        f"{trouble[0]}. Give the node access to the URL (cluster_mirror, cluster_https_proxy), or provide the key"
    )


def have_lists_read(repository: domain.AptRepository) -> None:
    """Update the lists of this repository only."""
    wrong = read_lists(repository.sources_path, complaints)
    if not wrong:
        return
    what, fix = "cannot be read", "Give the node access to the repository (cluster_mirror, cluster_https_proxy)"
    if any(sign in line for line in wrong for sign in NOT_SIGNED):
        what = "is not signed with its key"
        fix = "Nothing was installed from this repository. Check for proxies between the node and the URL"
    # apt repeats an error in several forms; the shortest line has all details.
    shortest = min((line for line in wrong if any(sign in line for sign in NOT_SIGNED)), key=len, default=wrong[-1])
    raise RefusedError(f"the repository {repository.name} at {repository.uri} {what} (apt: {shortest}). {fix}")


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    said = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:"))]
    return [line[3:].strip() for line in said if done.returncode or any(sign in line for sign in NOT_SIGNED)]


def has_lists(repository: domain.AptRepository) -> bool:
    """Return whether apt has read the repository's lists. An interrupted run might have written only the configuration
    files."""
    return any((LISTS / name).exists() for name in repository.list_names)


def add(repository: domain.AptRepository, given: Mapping[str, Any], paths: list[str], fetch: Fetch) -> None:
    before = {path: Path(path).read_bytes() if Path(path).exists() else None for path in paths}
    texts: dict[str, bytes] = {path: text.encode() for path, text in repository.texts.items()}
    if repository.key_path in paths:
        texts[repository.key_path] = key_of(repository, given, fetch)
    try:
        for path in paths:
            files.replace(path, texts[path], mode=0o644, keep=True, parents=True)
        have_lists_read(repository)
    except BaseException:
        # A broken entry would make every later call of apt fail.
        for path, content in before.items():
            if content is None:
                Path(path).unlink(missing_ok=True)
            else:
                files.replace(path, content, mode=0o644, keep=True, parents=True)
        raise


def set_up(wanted: Iterable[Mapping[str, Any]], fetch: Fetch, *, check: bool) -> dict[str, Any]:
    """Configure these repositories in apt.

    wanted: see library/apt_repositories.py. fetch: function that returns the content of a URL or raises an exception.
    """
    there = list(entries())
    written: list[str] = []
    used: dict[str, str] = {}
    shown: list[dict[str, str]] = []
    for given in wanted:
        repository = repository_of(given, there)
        other = domain.foreign(repository, there)
        if other:
            used[repository.name] = other.path
            continue
        texts = {path: read(path) for path in (*repository.texts, repository.key_path)}
        paths = repository.lacks(texts)
        if not check and (paths or not has_lists(repository)):
            add(repository, given, paths, fetch)
        written += paths
        after = {**repository.texts, repository.key_path: f"{given['key'] or '(unknown in check mode)'}\n"}
        shown += [
            diff(path, texts.get(path, ""), after[path]) for path in paths if path != repository.key_path or check
        ]
    return {"changed": bool(written), "written": written, "used": used, "diff": shown}
