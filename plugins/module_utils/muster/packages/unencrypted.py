"""Packages that are downloaded over unencrypted HTTP: their sources, and the risk of tampering in transit. Pure
functions.

apt packages are signed. pip cannot detect a tampered package until the hash of the package is in the lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..verdict.check import Check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.finding import Finding

OPTIONS = (
    *("cluster_mirror", "cluster_mirror_urls", "pytorch_offline_dir"),
    *("pytorch_index_url", "pytorch_extra_index_urls", "pytorch_find_links"),
)
UNENCRYPTED = Check(
    "packages.source.unencrypted",
    seen="stand-in",
    reads="the URLs in cluster_mirror_urls, pytorch_index_url, pytorch_extra_index_urls and pytorch_find_links",
    fires="a pip URL begins with http:// (warn). apt URLs with http:// pass, because apt packages are signed",
    fix="Set up TLS on the mirror (cluster_extra_ca for a private certificate authority) and use https://. Until then,"
    " compare the hashes in pytorch.lock.txt with another source before you commit the file",
)
CHECKS = (UNENCRYPTED,)
_SIGNED = ("archive", "security", "nvidia", "container_toolkit")
_FOR_PIP = ("pip", "torch", "torch_links")


def hosts(values: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the hosts from which wheels are downloaded over HTTP, and those for signed packages.

    values: values of the options in OPTIONS.
    """
    mirrors = values.get("cluster_mirror_urls") if values.get("cluster_mirror") == "custom" else {}
    mirrors = mirrors if isinstance(mirrors, dict) else {}
    wheels = [values.get("pytorch_index_url"), *(mirrors.get(name) for name in _FOR_PIP)]
    for name in ("pytorch_extra_index_urls", "pytorch_find_links"):
        listed = values.get(name)
        wheels += listed if isinstance(listed, list) else []
    if values.get("pytorch_offline_dir"):
        wheels = []
    return _hosts(wheels), _hosts([mirrors.get(name) for name in _SIGNED])


def warning(values: Mapping[str, Any]) -> str:
    """Return the warning as a clause; "" if no package is downloaded over HTTP."""
    wheels, signed = hosts(values)
    parts = []
    if wheels:
        parts.append(
            f"wheels are downloaded over HTTP from {', '.join(wheels)}: an attacker on the network can replace them"
            " until their hashes are in the lock"
        )
    if signed:
        parts.append(
            f"apt packages are downloaded over HTTP from {', '.join(signed)}: they are signed, but not encrypted"
        )
    return "; ".join(parts)


def judge(node: str, values: Mapping[str, Any]) -> Iterator[Finding]:
    wheels, signed = hosts(values)
    if wheels:
        yield UNENCRYPTED.warn(node, warning(values), observed=", ".join(wheels))
    elif signed:
        yield UNENCRYPTED.passed(node, warning(values), observed=", ".join(signed))


def _hosts(addresses: list[Any]) -> list[str]:
    """Return the hosts in URLs without TLS. Invalid URLs are ignored here and reported by another check."""
    found = []
    for address in addresses:
        try:
            place = urlsplit(str(address or ""))
            if place.scheme == "http" and place.hostname:
                found.append(place.hostname)
        except ValueError:
            continue
    return list(dict.fromkeys(found))
