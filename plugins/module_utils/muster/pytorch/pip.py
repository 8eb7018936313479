"""pip's arguments for package indexes, and an explanation and a fix for each of pip's errors."""

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
    """Return lists of pip arguments, one for each set of sources. A list is tried only if the previous
    sources do not offer the requested torch.

    With `auto`, PyTorch's own index is second, because a mirror or folder of the site may have the build. That index is
    searched *in addition to* pip's index, because only pip's index has all other packages. This is safe for torch,
    which is pinned with its local version: no public index except PyTorch's offers that version.

    mirror: sources that `auto` tries before PyTorch's own index (cluster_mirror). pip: an index for pip. torch: an
    index of this build. torch_links: a page with links to the wheels of this build. only: not empty if PyTorch's own
    index must not be used.
    """
    mirror = mirror or {}
    for url in (index_url, *extra_index_urls, *find_links):
        if urlsplit(url).password is not None:
            raise EnvironmentRequestError(
                f"the URL of {urlsplit(url).hostname} contains a password, which would appear in logs. "
                "Put the password into .netrc or pip.conf of root on the nodes"
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
    """Return the arguments for `auto`. own: arguments from the inventory that are added to every set of sources."""
    base = ["--index-url", mirror["pip"]] if mirror.get("pip") else []
    # pip ignores a mirror without TLS unless the host is explicitly trusted.
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
    """Return pip's arguments for file types.

    Only wheels are allowed, except for packages that may be built from source.
    """
    for name in builds:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise EnvironmentRequestError(f"pytorch_source_builds: '{name}' is not the name of a package")
    return [WHEELS_ALONE, *([f"--no-binary={','.join(builds)}"] if builds else [])]


def torch_not_found(output: str) -> bool:
    return "No matching distribution found for torch==" in output


def explain_pip(output: str, request: EnvironmentRequest) -> tuple[str, str]:
    """Return the problem and its fix. Each is one sentence without a full stop."""
    if request.locked and "DO NOT MATCH THE HASHES" in output:
        return "a wheel does not match its hash in the lock", _RESOLVE_ANEW
    for pattern, what, fix in _FAILURES:
        said = re.search(pattern, output)
        if said:
            return what.format(*said.groups()), fix
    nothing = re.search(r"No matching distribution found for (\S+)", output)
    if nothing is None:
        errors = [line for line in output.splitlines() if line.startswith("ERROR: ")]
        words = (errors or output.strip().splitlines() or ["no output"])[-1]
        return f"pip failed: {words.removeprefix('ERROR: ')}", "The full output is in pip_output of the result"

    requirement = nothing[1]
    what = f"pip cannot find {requirement}"
    versions = re.search(r"\(from versions: (.*)\)", output)
    offered = versions[1].split(", ") if versions and versions[1] != "none" else []
    if offered:
        what += f"; available: {'..., ' if len(offered) > 4 else ''}{', '.join(offered[-4:])}"
    # pip continues without an index that it cannot reach, and then reports missing packages.
    for pattern, trouble, fix in _UNREACHABLE:
        if re.search(pattern, output):
            return f"{what}: {trouble}", _or_the_default_build(requirement, request, offered, fix)
    return what, _or_the_default_build(requirement, request, offered, _fix_missing(requirement, request, output))


_FAILURES = (
    (
        r"No space left on device",
        "the disk is full",
        "Free disk space: a CPU environment requires about 1 GB, a CUDA environment about 8 GB",
    ),
    (
        r"ERROR: Cannot install (.+) because these package versions have conflicting dependencies",
        "{0} have conflicting dependencies",
        "Change pytorch_packages or cluster_torch_version; pip_output of the result lists the conflicts",
    ),
    (
        r"DO NOT MATCH THE HASHES",
        "a download does not match the hash in the index",
        "Run again. If the error persists, the mirror or pip's cache is corrupt",
    ),
)
_RESOLVE_ANEW = (
    "Let the node fetch it from a peer (ssh_mesh_mode), add a source (pytorch_extra_index_urls, pytorch_find_links),"
    " or remove the environment from pytorch_lock and set pytorch_reviewed_lock to false to resolve the packages again"
)
_OTHER_INDEX = (
    "Give the node access to it, or set another source: pytorch_index_url, pytorch_find_links or pytorch_offline_dir"
)
_UNREACHABLE = (
    (
        r"CERTIFICATE_VERIFY_FAILED|problem confirming the ssl certificate",
        "the certificate of a package index is not trusted",
        "If a proxy inspects TLS, set pytorch_extra_ca to its certificates on the node",
    ),
    (
        r"\b40[13] (?:Client Error|Unauthorized|Forbidden)",
        "a package index denies access",
        "Put the credentials into .netrc or pip.conf of root on the node",
    ),
    (
        r"Temporary failure in name resolution|Name or service not known|No address associated",
        "the host name of a package index cannot be resolved",
        _OTHER_INDEX,
    ),
    (
        r"new connection|Connection refused|unreachable|timed out|ProxyError|Max retries",
        "a package index cannot be reached",
        _OTHER_INDEX,
    ),
)


def _or_the_default_build(requirement: str, request: EnvironmentRequest, offered: Sequence[str], fix: str) -> str:
    """If the index offers only its default build, mention this build before the fix."""
    name, _, version = requirement.partition("==")
    public = public_version(version)
    if name != "torch" or public == version or public not in offered or "torch" in request.locked:
        return fix
    build = f"the available build of {public}"
    return (
        f"Set pytorch_variant to cuda to use {build} (about 8 GB; it also trains without a GPU), "
        f"{fix[0].lower()}{fix[1:]}"
    )


def _fix_missing(requirement: str, request: EnvironmentRequest, output: str) -> str:
    name, _, version = requirement.partition("==")
    variable = "cluster_torch_version" if name == "torch" else "pytorch_packages"
    other_python = re.search(rf" {re.escape(version)} Requires-Python ([^\s;]+)", output)
    if version and other_python:
        needs = f"This version requires Python {other_python[1]}, but the node has {request.python}"
        return f"{needs}: change {variable} or pytorch_python"
    if canonical_name(name) in request.locked:
        return _RESOLVE_ANEW
    if name != "torch":
        return f"Correct {variable}, or add a source with pytorch_extra_index_urls or pytorch_find_links"
    place = "pytorch_index_url, pytorch_find_links or pytorch_offline_dir"
    return f"Choose another {variable}, or set {place} to a source that has this build for Python {request.python}"
