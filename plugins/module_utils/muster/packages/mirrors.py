"""Where a node's packages come from: the distribution's own, NVIDIA's, pip's and PyTorch's. Pure.

The rows are in roles/package_sources/files/mirrors.yml. A profile that lacks something takes that from upstream, and
says so. For the distribution's archive and for pip upstream is what the node is set up with: an empty uri.
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
# What cluster_mirror_urls may name.
CUSTOM_PLACES = ("archive", "security", "nvidia", "container_toolkit", "pip", "torch", "torch_links")
# Debian's names of machines, and those of NVIDIA's repositories.
_MACHINES = {"x86_64": ("amd64", "x86_64"), "aarch64": ("arm64", "sbsa")}
_WHAT = {
    "archive": "the distribution's packages",
    "security": "its security updates",
    "nvidia": "NVIDIA's packages",
    "container_toolkit": "the container toolkit",
    "pip": "Python packages",
    "torch": "PyTorch",
}


class MirrorError(ValueError):
    """What cannot be, and what to write instead."""


@dataclass(frozen=True)
class MirrorsRequest:
    """The cluster's options: cluster_mirror, cluster_mirror_urls, cluster_offline_dir."""

    profile: str = UPSTREAM
    urls: Mapping[str, str] = field(default_factory=dict)
    offline: str = ""


@dataclass(frozen=True)
class PackageOrigin:
    """Where something is taken from. uri: empty means what the node is set up with, or nothing when it is offline.

    profile: the one that named it. links: whether it is a page of links to wheels (pip's --find-links), and no index.
    """

    uri: str = ""
    profile: str = UPSTREAM
    links: bool = False


@dataclass(frozen=True)
class Sources:
    """Everything that a node of one system takes packages from.

    archive, security: of the distribution. offline: folder on the node that stands for all of them; empty for none.
    notes: what a profile lacks, one sentence each.
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
    """Return where a node with this system (`ubuntu-24.04`) and machine (as uname has it) takes things from."""
    if table["schema"] != SCHEMA:
        raise MirrorError(f"the table of mirrors has schema {table['schema']}, and {SCHEMA} is understood")
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
    # Ubuntu's security pocket is part of every full mirror of its archive; Debian's is an archive of its own.
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
            why = next((rows[key]["lacks"] for key in keys if "lacks" in rows.get(key, {})), "it names none")
            there = "upstream" if upstream else "where the node is set up to"
            elsewhere.setdefault((there, why), []).append(_WHAT[what])
    notes = [
        f"cluster_mirror {request.profile}: {', '.join(what)} from {there}, because {why}"
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
        raise MirrorError(f"cluster_mirror is {request.profile!r}, not one of {known}")
    rows: Mapping[str, Any] = profiles[request.profile]
    return rows


def _filled(uri: str, names: Mapping[str, str]) -> str:
    """Put the names in. {variant} stays: it is known when PyTorch is."""
    return re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], found[0]), uri)


def proxy_environment(http: str, https: str, no_proxy: Sequence[str]) -> dict[str, str]:
    """Return the variables that lead programs through these proxies; none where there is no proxy."""
    if not http and not https:
        return {}
    # The kind without a proxy is set as well, to empty: a variable of the login must not lead anywhere else.
    return {"http_proxy": http, "https_proxy": https, "no_proxy": ",".join(no_proxy)}
