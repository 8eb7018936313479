"""Packages that come over HTTP: from where, and what that is worth to whoever sits between. Pure.

apt's are signed. What pip gets is what it is sent, until its hash is in the lock.
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
    reads="the addresses in cluster_mirror_urls, pytorch_index_url, pytorch_extra_index_urls and pytorch_find_links",
    fires="pip is sent to one that begins with http:// (warn). One of apt's is reported, and passes: it has signatures",
    fix="Give the mirror a certificate (cluster_extra_ca for one of your own) and write https://. Until then, compare"
    " what pytorch.lock.txt has got with another source before you commit it",
)
CHECKS = (UNENCRYPTED,)
_SIGNED = ("archive", "security", "nvidia", "container_toolkit")
_FOR_PIP = ("pip", "torch", "torch_links")


def hosts(values: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the hosts that wheels come from over HTTP, and those that signed packages do. values: of OPTIONS."""
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
    """Return what to warn of, as the middle of a sentence; nothing where there is nothing."""
    wheels, signed = hosts(values)
    parts = []
    if wheels:
        parts.append(
            f"wheels come over HTTP from {', '.join(wheels)}: whoever sits between can put any code in their place,"
            " until their hashes are in the lock"
        )
    if signed:
        parts.append(
            f"apt's packages come over HTTP from {', '.join(signed)}: they are signed, but everybody sees which"
        )
    return "; ".join(parts)


def judge(node: str, values: Mapping[str, Any]) -> Iterator[Finding]:
    wheels, signed = hosts(values)
    if wheels:
        yield UNENCRYPTED.warn(node, warning(values), observed=", ".join(wheels))
    elif signed:
        yield UNENCRYPTED.passed(node, warning(values), observed=", ".join(signed))


def _hosts(addresses: list[Any]) -> list[str]:
    """The hosts of those without TLS; an address that is none is a problem of its own."""
    found = []
    for address in addresses:
        try:
            place = urlsplit(str(address or ""))
            if place.scheme == "http" and place.hostname:
                found.append(place.hostname)
        except ValueError:
            continue
    return list(dict.fromkeys(found))
