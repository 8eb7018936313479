"""Find ports that a container engine publishes, bypassing the firewall."""

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
    fires="a container engine publishes a port that bypasses the firewall (warn)",
    fix="Publish the port on one address only, or block it in DOCKER-USER",
)


def published(
    tables: Mapping[int, Tables], listeners: Sequence[ListeningSocket]
) -> list[tuple[str, tuple[int, int], str]]:
    """Return each redirected port as protocol, ports, and the program that redirects it.

    tables: tables by IP version.
    """
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
