"""Tracing of packets through firewall rules that real programs wrote.

recorded/nft: JSON output of nft 1.0.6 after loading the .nft file of the same name. server.nft is a handwritten
/etc/nftables.conf with commonly recommended rules; the others are tables of fail2ban, kube-proxy and netavark. The
iptables rules are those of docker, libvirt, fail2ban and kube-proxy.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster.firewall.netfilter import parse_save, walk_tables
from muster.firewall.nft import Ruleset
from muster.firewall.walk import Packet

RECORDED = Path(__file__).parent / "recorded/nft"
PEER, OTHER, STRANGER, BANNED = "10.0.0.12", "10.0.0.99", "203.0.113.77", "203.0.113.5"


@pytest.mark.parametrize(
    ("name", "proto", "source", "port", "interface", "verdict", "rule"),
    [
        ("server", "tcp", PEER, 29500, "eth0", "drop", "policy drop"),
        ("server", "tcp", PEER, 29500, "eth1", "accept", "ip saddr { 10.0.0.11, 10.0.0.12 } accept"),
        ("server", "tcp", OTHER, 29500, "eth1", "drop", "policy drop"),
        ("server", "tcp", STRANGER, 22, "eth0", "accept", "tcp dport { 22, 443 } accept"),
        ("server", "tcp", "2001:db8::77", 22, "eth0", "accept", "tcp dport { 22, 443 } accept"),
        ("server", "tcp", "198.51.100.9", 22, "eth0", "drop", "ip saddr @blocked drop"),
        ("server", "tcp", PEER, 9105, "eth0", "accept", "tcp dport 9100-9110 ip saddr 10.0.0.0/8 accept"),
        ("server", "udp", STRANGER, 22, "eth0", "drop", "policy drop"),
        # A rate limit and a connection count: the state is unknown.
        ("server", "tcp", STRANGER, 8080, "eth0", "unknown", "tcp dport 8080 limit accept"),
        ("server", "tcp", STRANGER, 8443, "eth0", "unknown", "tcp dport 8443 ct count reject"),
        ("fail2ban", "tcp", BANNED, 22, "eth0", "reject", "tcp dport 22 ip saddr @addr-set-sshd reject"),
        ("fail2ban", "tcp", STRANGER, 22, "eth0", "accept", "policy accept"),
        ("fail2ban", "tcp", BANNED, 29500, "eth0", "accept", "policy accept"),
        ("kube_proxy", "tcp", PEER, 29500, "eth0", "accept", "policy accept"),
        # The port matches; whether the address belongs to a service is unknown.
        (
            *("kube_proxy", "tcp", STRANGER, 443, "eth0", "unknown"),
            "ip daddr . l4proto . th dport vmap @service-ips",
        ),
        (
            *("kube_proxy", "tcp", STRANGER, 30080, "eth0", "unknown"),
            "ip daddr @nodeport-ips l4proto . th dport vmap @service-nodeports",
        ),
        ("netavark", "tcp", STRANGER, 8080, "eth0", "redirect", "tcp dport 8080 dnat"),
        ("netavark", "tcp", PEER, 29500, "eth0", "accept", "policy accept"),
    ],
)
def test_packets_are_traced_in_nft_rules(
    name: str, proto: str, source: str, port: int, interface: str, verdict: str, rule: str
) -> None:
    ruleset = Ruleset(json.loads((RECORDED / f"{name}.json").read_text())["nftables"])
    outcome = ruleset.outcome(Packet(proto, source, port, interface))
    assert (outcome.verdict, outcome.rule) == (verdict, rule)
    assert outcome.place.startswith("nft ")


IPTABLES = """\
*nat
:PREROUTING ACCEPT [0:0]
:DOCKER - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-X - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j KUBE-SVC-X
-A KUBE-SVC-X -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.0.0.11:6443
COMMIT
*filter
:INPUT DROP [0:0]
:LIBVIRT_INP - [0:0]
:f2b-sshd - [0:0]
:KUBE-FIREWALL - [0:0]
:recent - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -j LIBVIRT_INP
-A INPUT -p tcp -m multiport --dports 22 -j f2b-sshd
-A INPUT -m recent --name seen --update --seconds 60 -j recent
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -p tcp -m tcp --dport 8443 -m hashlimit --hashlimit-upto 5/min --hashlimit-name x -j ACCEPT
-A INPUT -s 10.0.0.0/24 ! -i eth0 -p tcp -m multiport --dports 29400:29599,32768:40959 -j ACCEPT
-A INPUT -p tcp -m tcp --dport 9100 -g recent
-A INPUT -p tcp -m tcp --dport 9100 -j ACCEPT
-A LIBVIRT_INP -i virbr0 -p udp -m udp --dport 53 -j ACCEPT
-A f2b-sshd -s 203.0.113.5/32 -j REJECT --reject-with icmp-port-unreachable
-A f2b-sshd -j RETURN
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
COMMIT
"""
MARKED = "-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP"


@pytest.mark.parametrize(
    ("source", "port", "interface", "verdict", "rule"),
    [
        (PEER, 29500, "eth1", "accept", "-A INPUT -s 10.0.0.0/24 ! -i eth0 -p tcp -m multiport --dports 29400:29599"),
        (PEER, 29500, "eth0", "drop", "policy DROP"),
        (STRANGER, 29500, "eth1", "drop", "policy DROP"),
        (STRANGER, 22, "eth0", "accept", "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT"),
        (BANNED, 22, "eth0", "reject", "-A f2b-sshd -s 203.0.113.5/32 -j REJECT"),
        (STRANGER, 8080, "eth0", "redirect", "-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT"),
        (STRANGER, 8080, "docker0", "drop", "policy DROP"),
        (STRANGER, 8443, "eth0", "unknown", "-A INPUT -p tcp -m tcp --dport 8443 -m hashlimit"),
        # After a goto, processing does not return to the chain.
        (STRANGER, 9100, "eth0", "drop", "policy DROP"),
    ],
)
def test_packets_are_traced_in_iptables_rules(source: str, port: int, interface: str, verdict: str, rule: str) -> None:
    # Without kube-proxy's mark rule, whose result is unknown for every packet.
    tables = parse_save(IPTABLES.replace(f"{MARKED}\n", ""))
    outcome = walk_tables(tables, Packet("tcp", source, port, interface), "iptables")
    assert outcome.verdict == verdict
    assert outcome.rule.startswith(rule)


def test_unknown_outcome_names_the_unsupported_rule() -> None:
    outcome = walk_tables(parse_save(IPTABLES), Packet("tcp", PEER, 29500, "eth1"), "iptables")
    assert (outcome.verdict, outcome.rule) == ("unknown", MARKED)
    assert outcome.place == "iptables -t filter, chain KUBE-FIREWALL, rule 1"
