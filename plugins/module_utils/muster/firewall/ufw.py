"""Parse and render ufw's rules files in exactly the format that ufw writes.

`ufw allow` writes /etc/ufw/user.rules (and user6.rules), `ufw status` shows these files, and ufw loads them with
iptables-restore. A rule is a "tuple" line followed by iptables lines. Muster recognizes its own rules by their comment.
All other rules are kept byte for byte and in place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .netfilter import Rule, parse_rule

OWN = "muster: "
_TUPLE = "### tuple ### "
_BEGIN = "### RULES ###\n"
_END = "\n### END RULES ###\n"


@dataclass(frozen=True)
class UfwEntry:
    """One rule: its tuple line, its comment and its iptables lines."""

    words: str
    comment: str
    rules: tuple[str, ...]

    @property
    def own(self) -> bool:
        return self.comment.startswith(OWN)

    @property
    def in_words(self) -> str:
        """The rule as readable text, similar to `ufw status`."""
        action, proto, port, target, _, source, *_, interface = self.words.split()
        where = "" if target in ("0.0.0.0/0", "::/0") else f" to {target}"
        peer = {"0.0.0.0/0": "anywhere", "::/0": "anywhere (v6)"}.get(source, source)
        through = interface.partition("_")[2]
        ports = f"{'every port' if port == 'any' else port}{'' if proto == 'any' else '/' + proto}"
        rule = f"{action} {ports}{where} from {peer}{' on ' + through if through else ''}"
        return f"{rule}  # {self.comment}" if self.comment else rule

    def does_as(self, other: UfwEntry) -> bool:
        """Return whether this entry, which Muster did not write, has the effect of the other one.

        Only the comment or a rate limit may differ.
        """
        return re.sub(r"^limit ", "allow ", self.words) == other.words


@dataclass(frozen=True)
class RulesFile:
    head: str
    entries: tuple[UfwEntry, ...]
    tail: str


def parse_rules(text: str) -> RulesFile:
    head, found, rest = text.partition(_BEGIN)
    if not found:
        raise ValueError("the line '### RULES ###' is missing")
    body, found, tail = rest.partition(_END)
    if not found:  # as packaged: ufw adds the end marker with its first rule
        return RulesFile(head, (), rest)
    entries = []
    for block in body.split(f"\n{_TUPLE}")[1:]:
        first, *rules = block.split("\n")
        words, _, code = first.partition(" comment=")
        entries.append(UfwEntry(words, _decoded(code.strip()), tuple(line for line in rules if line)))
    return RulesFile(head, tuple(entries), tail)


def render_rules(file: RulesFile) -> str:
    blocks = []
    for entry in file.entries:
        comment = f" comment={entry.comment.encode().hex()}" if entry.comment else ""
        blocks.append(f"\n{_TUPLE}{entry.words}{comment}\n" + "".join(f"{line}\n" for line in entry.rules))
    return file.head + _BEGIN + "".join(blocks) + _END + file.tail


def allow(version: int, proto: str, port: str, source: str, interface: str, comment: str) -> UfwEntry:
    """Return the entry that `ufw allow` would write.

    port: any, 22, 9100:9110 or a sorted list. source: any or a CIDR.
    """
    anywhere = "::/0" if version == 6 else "0.0.0.0/0"
    chain = "ufw6-user-input" if version == 6 else "ufw-user-input"
    source = anywhere if source == "any" else source
    words = f"allow {proto} {port} {anywhere} any {source} {'in_' + interface if interface else 'in'}"
    many = "," in port or ":" in port
    rules = []
    for each in [proto] if proto != "any" else ["tcp", "udp"] if port != "any" else [""]:
        parts = [f"-A {chain}"]
        parts += [f"-i {interface}"] if interface else []
        parts += [f"-p {each}"] if each else []
        parts += [f"-m multiport --dports {port}"] if many else []
        parts += [f"--dport {port}"] if not many and port != "any" else []
        parts += [f"-s {source}"] if source != anywhere else []
        rules.append(" ".join([*parts, "-j ACCEPT"]))
    return UfwEntry(words, OWN + comment.replace("'", ""), tuple(rules))


def merge(there: tuple[UfwEntry, ...], wanted: list[UfwEntry]) -> tuple[UfwEntry, ...]:
    """Return the merged entries.

    Entries of others keep their order. Muster's entries are kept in place, removed or appended.
    """
    foreign = [entry for entry in there if not entry.own]
    missing = [entry for entry in dict.fromkeys(wanted) if not any(other.does_as(entry) for other in foreign)]
    merged = []
    for entry in there:
        if entry.own and entry not in missing:
            continue
        if entry.own:
            missing.remove(entry)
        merged.append(entry)
    return (*merged, *missing)


def is_loaded(file: RulesFile, live: list[Rule], version: int) -> bool:
    """Return whether the input chain in force matches the file.

    Rules that iptables prints differently from the way ufw writes them are compared only by position.
    """
    chain = f"-A {'ufw6' if version == 6 else 'ufw'}-user-input "
    wanted = [parse_rule(line) for entry in file.entries for line in entry.rules if line.startswith(chain)]
    if len(wanted) != len(live):
        return False
    return all(mine.like(theirs) for mine, theirs in zip(wanted, live, strict=False) if mine.simple and theirs.simple)


def _decoded(code: str) -> str:
    try:
        return bytes.fromhex(code).decode()
    except ValueError:
        return code
