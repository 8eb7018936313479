"""Muster's own nftables table, for nodes on which the site does not use ufw."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .model import Opening

TABLE = "muster"
RULES_FILE = "/etc/muster/firewall.nft"
UNIT_NAME = "muster-firewall.service"
UNIT = f"/etc/systemd/system/{UNIT_NAME}"
WANTED = f"/etc/systemd/system/sysinit.target.wants/{UNIT_NAME}"
# The site's nftables.service usually starts with "flush ruleset", so this unit reloads the table after it.
UNIT_TEXT = f"""\
# Written by Muster (firewall_backend nftables): docs/ports.md
[Unit]
Description=Muster's nftables table
DefaultDependencies=no
After=local-fs.target nftables.service
Before=network-pre.target
Wants=network-pre.target
PartOf=nftables.service
ReloadPropagatedFrom=nftables.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/nft -f {RULES_FILE}
ExecReload=/usr/sbin/nft -f {RULES_FILE}

[Install]
WantedBy=sysinit.target
"""
# Deletes and creates the table in one transaction; the first line avoids an error if no table exists.
HEAD = f"""\
# Written by Muster: docs/ports.md. The next run overwrites changes; use firewall_allow instead.
table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
\tchain input {{
\t\ttype filter hook input priority filter; policy drop;
\t\tiifname "lo" accept
\t\tct state established,related accept
\t\tct state invalid drop
\t\ticmp type {{ echo-request, destination-unreachable, time-exceeded, parameter-problem }} accept
\t\ticmpv6 type {{ echo-request, echo-reply, destination-unreachable, packet-too-big }} accept
\t\ticmpv6 type {{ time-exceeded, parameter-problem }} accept
\t\ticmpv6 type {{ nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert }} accept
\t\ticmpv6 type {{ mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report }} accept
\t\tudp sport 67 udp dport 68 accept comment "DHCP"
\t\tip6 saddr fe80::/10 udp sport 547 udp dport 546 accept comment "DHCP"
"""
TAIL = "\t}\n}\n"


def rules(openings: Sequence[Opening]) -> str:
    """Return the content of the rules file."""
    return HEAD + "".join(f"\t\t{_rule(opening)}\n" for opening in openings) + TAIL


def _rule(opening: Opening) -> str:
    words = []
    if opening.interface:
        words.append(f'iifname "{opening.interface}"')
    if opening.source:
        words.append(f"{'ip6' if ':' in opening.source else 'ip'} saddr {opening.source}")
    if len(opening.protos) > 1:
        words.append(f"meta l4proto {{ {', '.join(opening.protos)} }}")
    if opening.ports:
        spans = [str(low) if low == high else f"{low}-{high}" for low, high in opening.ports]
        proto = opening.protos[0] if len(opening.protos) == 1 else "th"
        words.append(f"{proto} dport {spans[0] if len(spans) == 1 else '{ ' + ', '.join(spans) + ' }'}")
    comment = "".join(letter for letter in opening.comment if letter not in '"\\')[:120]
    return " ".join([*words, "accept", f'comment "{comment}"'])


def restoring(live: str | None) -> str:
    """Return nft input that restores the table as it is in force."""
    absent = f"table inet {TABLE}\ndelete table inet {TABLE}\n"
    return absent if live is None else absent + live
