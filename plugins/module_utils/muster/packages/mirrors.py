"""Choose the package sources of a node: for the distribution, NVIDIA, pip and PyTorch. Pure functions.

The mirror profiles are in roles/package_sources/files/mirrors.yml. If a profile has no entry for a source, the upstream
source is used, and a note is added. For the distribution's archive and for pip, upstream means the node's own
configuration; the URI is then "".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA = 1
UPSTREAM = "upstream"
CUSTOM = "custom"
# Supported keys of cluster_mirror_urls.
CUSTOM_PLACES = ("archive", "security", "nvidia", "container_toolkit", "pip", "torch", "torch_links")
# Machine names of Debian and of NVIDIA's repositories.
_MACHINES = {"x86_64": ("amd64", "x86_64"), "aarch64": ("arm64", "sbsa")}
_WHAT = {
    "archive": "the distribution's packages",
    "security": "the distribution's security updates",
    "nvidia": "NVIDIA's packages",
    "container_toolkit": "the container toolkit",
    "pip": "Python packages",
    "torch": "PyTorch",
}


class MirrorError(ValueError):
    """The request is impossible. The message names the setting to change."""


@dataclass(frozen=True)
class MirrorsRequest:
    """The options of the cluster: cluster_mirror, cluster_mirror_urls and cluster_offline_dir."""

    profile: str = UPSTREAM
    urls: Mapping[str, str] = field(default_factory=dict)
    offline: str = ""


@dataclass(frozen=True)
class PackageOrigin:
    """Where packages of one source come from. uri: "" means the node's own configuration or, in offline mode, nothing.

    profile: the profile that defines the source. links: whether the URI is a page with links to wheels (pip's
    --find-links) instead of an index.
    """

    uri: str = ""
    profile: str = UPSTREAM
    links: bool = False


@dataclass(frozen=True)
class Sources:
    """All package sources of a node.

    archive, security: URIs of the distribution's archive. offline: folder on the node that replaces all sources; "" for
    none. notes: one clause for each source that is missing from the profile.
    """

    archive: PackageOrigin = PackageOrigin()
    security: PackageOrigin = PackageOrigin()
    nvidia: PackageOrigin = PackageOrigin()
    container_toolkit: PackageOrigin = PackageOrigin()
    pip: PackageOrigin = PackageOrigin()
    torch: PackageOrigin = PackageOrigin()
    offline: str = ""
    notes: tuple[str, ...] = ()


def resolve(table: Mapping[str, Any], request: MirrorsRequest, system: str, machine: str = "x86_64") -> Sources:
    """Return the package sources for a system (`ubuntu-24.04`) and a machine type (as printed by uname)."""
    if table["schema"] != SCHEMA:
        raise MirrorError(f"the mirror table has schema {table['schema']}, but only {SCHEMA} is supported")
    if request.offline:
        return Sources(offline=request.offline)
    rows = _rows(table["profiles"], request)
    distribution, _, version = system.partition("-")
    debarch, arch = _MACHINES.get(machine, (machine, machine))
    names = {
        "distribution": distribution,
        "distro": distribution + version.replace(".", ""),
        "debarch": debarch,
        "arch": arch,
    }
    ported = distribution == "ubuntu" and machine != "x86_64"
    # Every full mirror of Ubuntu's archive contains its security pocket. Debian has a separate security archive.
    archive = "ubuntu_ports" if ported else distribution
    wanted = {
        "archive": ("archive", archive),
        "security": ("security", archive if distribution == "ubuntu" else f"{distribution}_security"),
        "nvidia": ("nvidia",),
        "container_toolkit": ("container_toolkit",),
        "pip": ("pip",),
        "torch": ("torch", "torch_links"),
    }
    places: dict[str, PackageOrigin] = {}
    elsewhere: dict[tuple[str, str], list[str]] = {}
    for what, keys in wanted.items():
        key = next((key for key in keys if rows.get(key, {}).get("uri")), None)
        if key is not None:
            uri = _filled(rows[key]["uri"], names)
            places[what] = PackageOrigin(uri, request.profile, links=key == "torch_links" or uri.startswith("file:"))
            continue
        upstream = table["profiles"][UPSTREAM].get(keys[0], {})
        places[what] = PackageOrigin(_filled(upstream.get("uri", ""), names))
        if request.profile != UPSTREAM:
            why = next((rows[key]["lacks"] for key in keys if "lacks" in rows.get(key, {})), "the profile has no entry")
            there = "upstream" if upstream else "the node's own configuration"
            elsewhere.setdefault((there, why), []).append(_WHAT[what])
    notes = [
        f"cluster_mirror {request.profile}: using {there} for {', '.join(what)}, because {why}"
        for (there, why), what in elsewhere.items()
    ]
    return Sources(
        archive=places["archive"],
        security=places["security"],
        nvidia=places["nvidia"],
        container_toolkit=places["container_toolkit"],
        pip=places["pip"],
        torch=places["torch"],
        notes=tuple(notes),
    )


def _rows(profiles: Mapping[str, Any], request: MirrorsRequest) -> Mapping[str, Any]:
    if request.profile == CUSTOM:
        return {name: {"uri": uri} for name, uri in request.urls.items()}
    if request.profile not in profiles:
        known = ", ".join((*profiles, CUSTOM))
        raise MirrorError(f"cluster_mirror is {request.profile!r}; supported: {known}")
    rows: Mapping[str, Any] = profiles[request.profile]
    return rows


def _filled(uri: str, names: Mapping[str, str]) -> str:
    """Replace the placeholders in a URI. {variant} is kept, because the PyTorch build is chosen later."""
    return re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], found[0]), uri)


def proxy_environment(http: str, https: str, no_proxy: Sequence[str]) -> dict[str, str]:
    """Return the environment variables for these proxies; {} if there is no proxy."""
    if not http and not https:
        return {}
    # A protocol without a proxy is set to empty, to override a variable of the login shell.
    return {"http_proxy": http, "https_proxy": https, "no_proxy": ",".join(no_proxy)}
