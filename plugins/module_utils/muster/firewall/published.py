"""Ports that a container engine leads on past the firewall."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.check import Check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..network.listeners import ListeningSocket
    from .netfilter import Tables

PUBLISHED = Check(
    "firewall.published",
    seen="sandbox",
    reads="the nat tables",
    fires="a container engine leads a port past the firewall (warn)",
    fix="Publish it on one address only, or close it in DOCKER-USER",
)


def published(
    tables: Mapping[int, Tables], listeners: Sequence[ListeningSocket]
) -> list[tuple[str, tuple[int, int], str]]:
    """Every port that is led on to somewhere else: protocol, ports, and what does it. tables: by IP version."""
    found: dict[tuple[str, tuple[int, int]], str] = {}
    for version, named in tables.items():
        for name, chain in named.get("nat", {}).items():
            for rule in chain.rules:
                if rule.target == "DNAT" and rule.dports and not rule.destination.startswith(("127.", "::1")):
                    tool = "ip6tables" if version == 6 else "iptables"
                    for span in rule.dports:
                        found.setdefault((rule.proto or "tcp", span), f"{tool} -t nat, chain {name}")
    for listener in listeners:
        if listener.process == "docker-proxy" and not listener.local_only:
            found.setdefault((listener.proto, (listener.port, listener.port)), "docker-proxy")
    return [(proto, span, place) for (proto, span), place in sorted(found.items())]
