"""Where pip looks for wheels, and what it means when it fails: pip's output as one sentence and its fix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .request import PLAIN, EnvironmentRequest, EnvironmentRequestError, canonical_name, public_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WHEELS_ALONE = "--only-binary=:all:"
PYTORCH_WHEELS = "https://download.pytorch.org/whl"


def pip_sources(
    variant: str,
    *,
    index_url: str,
    extra_index_urls: Sequence[str],
    find_links: Sequence[str],
    offline_dir: str,
    mirror: Mapping[str, str] | None = None,
) -> list[list[str]]:
    """pip's arguments for where to look; each list is tried when the one before it had no such torch.

    With `auto` PyTorch's own index comes second, because a site's mirror or folder may well have the build.
    It is searched *beside* pip's index, because only that one has every other package. This is safe for
    torch: it is pinned with its local part, which no public index offers but PyTorch's.

    mirror: where `auto` looks before it asks PyTorch's own (cluster_mirror): pip, an index; torch, an index of that
    build, or torch_links, a page of its wheels. only: PyTorch's own is not asked besides; empty when it is.
    """
    mirror = mirror or {}
    for url in (index_url, *extra_index_urls, *find_links):
        if urlsplit(url).password is not None:
            raise EnvironmentRequestError(
                f"the address of {urlsplit(url).hostname} carries a password, which would show in logs. "
                "Put it into .netrc or pip.conf of root on the nodes"
            )
    links = [argument for link in find_links for argument in ("--find-links", link)]
    if offline_dir:
        return [["--no-index", "--find-links", offline_dir, *links]]
    extra = [argument for index in extra_index_urls for argument in ("--extra-index-url", index)]
    if index_url not in ("", "auto"):
        return [["--index-url", index_url, *extra, *links]]
    own = [*extra, *links]
    if index_url != "auto":
        return [own]
    return _with_a_mirror(mirror, variant, own)


def _with_a_mirror(mirror: Mapping[str, str], variant: str, own: list[str]) -> list[list[str]]:
    """The same where the index is `auto`. own: what the inventory adds to every place."""
    base = ["--index-url", mirror["pip"]] if mirror.get("pip") else []
    # pip passes over a mirror without TLS unless it is told that somebody means it.
    places = [urlsplit(mirror.get(place, "")) for place in ("pip", "torch", "torch_links")]
    for host in sorted({place.netloc for place in places if place.scheme == "http"}):
        base += ["--trusted-host", host]
    if variant in ("cuda", PLAIN):
        return [[*base, *own]]
    beside = [
        argument
        for option, place in (("--extra-index-url", "torch"), ("--find-links", "torch_links"))
        if mirror.get(place)
        for argument in (option, mirror[place].replace("{variant}", variant))
    ]
    first = [*base, *beside, *own]
    if mirror.get("only"):
        return [first]
    return [first, [*base, "--extra-index-url", f"{PYTORCH_WHEELS}/{variant}", *own]]


def kinds(builds: Sequence[str]) -> list[str]:
    """pip's arguments for what it may take: wheels alone, and of these packages their source."""
    for name in builds:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise EnvironmentRequestError(f"pytorch_source_builds: '{name}' is not the name of a package")
    return [WHEELS_ALONE, *([f"--no-binary={','.join(builds)}"] if builds else [])]


def torch_not_found(output: str) -> bool:
    return "No matching distribution found for torch==" in output


def explain_pip(output: str, request: EnvironmentRequest) -> tuple[str, str]:
    """What went wrong and how to fix it, each one sentence without its full stop."""
    if request.locked and "DO NOT MATCH THE HASHES" in output:
        return "a wheel that was found is another file than the one in the lock", _RESOLVE_ANEW
    for pattern, what, fix in _FAILURES:
        said = re.search(pattern, output)
        if said:
            return what.format(*said.groups()), fix
    nothing = re.search(r"No matching distribution found for (\S+)", output)
    if nothing is None:
        errors = [line for line in output.splitlines() if line.startswith("ERROR: ")]
        words = (errors or output.strip().splitlines() or ["it said nothing"])[-1]
        return f"pip failed: {words.removeprefix('ERROR: ')}", "Everything it said is in pip_output of the result"

    requirement = nothing[1]
    what = f"pip finds no {requirement}"
    versions = re.search(r"\(from versions: (.*)\)", output)
    offered = versions[1].split(", ") if versions and versions[1] != "none" else []
    if offered:
        what += f", and is offered {'..., ' if len(offered) > 4 else ''}{', '.join(offered[-4:])}"
    # pip goes on without an index that it cannot reach, and then misses what that one has.
    for pattern, trouble, fix in _UNREACHABLE:
        if re.search(pattern, output):
            return f"{what}; {trouble}", _or_the_default_build(requirement, request, offered, fix)
    return what, _or_the_default_build(requirement, request, offered, _fix_missing(requirement, request, output))


_FAILURES = (
    (
        r"No space left on device",
        "the disk is full",
        "Free some space: a CPU environment takes about 1 GB, one with CUDA about 8 GB",
    ),
    (
        r"ERROR: Cannot install (.+) because these package versions have conflicting dependencies",
        "{0} contradict each other",
        "Change pytorch_packages or cluster_torch_version; pip_output of the result says who wants what",
    ),
    (
        r"DO NOT MATCH THE HASHES",
        "a download was not what its index promised",
        "Run again; if it stays, the mirror or pip's cache is damaged",
    ),
)
_RESOLVE_ANEW = (
    "Let the node fetch it from a peer (ssh_mesh_mode), look elsewhere (pytorch_extra_index_urls, pytorch_find_links),"
    " or take the environment out of pytorch_lock and set pytorch_reviewed_lock to false: then it is resolved anew"
)
_OTHER_INDEX = (
    "Give the node a way there, or set pytorch_index_url, pytorch_find_links or pytorch_offline_dir to another place"
)
_UNREACHABLE = (
    (
        r"CERTIFICATE_VERIFY_FAILED|problem confirming the ssl certificate",
        "the certificate of a package index is not trusted",
        "If a proxy inspects TLS, set pytorch_extra_ca to its certificates on the node",
    ),
    (
        r"\b40[13] (?:Client Error|Unauthorized|Forbidden)",
        "a package index refuses access",
        "Put the credentials into .netrc or pip.conf of root on the node",
    ),
    (
        r"Temporary failure in name resolution|Name or service not known|No address associated",
        "the name of a package index is not known",
        _OTHER_INDEX,
    ),
    (
        r"new connection|Connection refused|unreachable|timed out|ProxyError|Max retries",
        "a package index cannot be reached",
        _OTHER_INDEX,
    ),
)


def _or_the_default_build(requirement: str, request: EnvironmentRequest, offered: Sequence[str], fix: str) -> str:
    """The same fix, after the one that needs nothing else: the build that is offered, where only it is."""
    name, _, version = requirement.partition("==")
    public = public_version(version)
    if name != "torch" or public == version or public not in offered or "torch" in request.locked:
        return fix
    build = f"the build of {public} that is offered"
    return (
        f"Set pytorch_variant to cuda, for {build} (about 8 GB; it trains without a GPU as well), "
        f"{fix[0].lower()}{fix[1:]}"
    )


def _fix_missing(requirement: str, request: EnvironmentRequest, output: str) -> str:
    name, _, version = requirement.partition("==")
    variable = "cluster_torch_version" if name == "torch" else "pytorch_packages"
    other_python = re.search(rf" {re.escape(version)} Requires-Python ([^\s;]+)", output)
    if version and other_python:
        needs = f"It needs Python {other_python[1]}, and the node's is {request.python}"
        return f"{needs}: change {variable} or pytorch_python"
    if canonical_name(name) in request.locked:
        return _RESOLVE_ANEW
    if name != "torch":
        return f"Correct {variable}, or say where else to look: pytorch_extra_index_urls, pytorch_find_links"
    place = "pytorch_index_url, pytorch_find_links or pytorch_offline_dir"
    return f"Choose another {variable}, or set {place} to a place that has this build for Python {request.python}"
