"""Plan the steps that bring the firewall of a node to the requested state, and the commands that undo these steps.

The plan depends only on the request and the observed state. Planning reads and changes nothing on the node.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypedDict

from . import table, ufw
from .look import foreign_chains, openings, ssh_openings
from .model import FirewallError
from .netfilter import Chain, Tables, parse_save
from .table import RULES_FILE, TABLE, UNIT, WANTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .look import FirewallState, Ufw
    from .model import FirewallRequest, Opening

# The state before the first change, for the removal of Muster.
RECORD = "/var/lib/muster/firewall-before.json"
SYSCTL_FILE = "/etc/sysctl.d/60-muster-firewall.conf"
# Files that `ufw default` and `ufw enable` change.
UFW_DEFAULT_FILES = ("/etc/default/ufw", "/etc/ufw/after.rules", "/etc/ufw/after6.rules")
UFW_STATE_FILES = ("/etc/ufw/ufw.conf", "/etc/ufw/user.rules", "/etc/ufw/user6.rules")
COMMANDS = {4: "iptables", 6: "ip6tables"}
RESTORES = {4: "iptables-restore", 6: "ip6tables-restore"}
PREFIXES = {4: "ufw", 6: "ufw6"}
BUILTINS = ("INPUT", "FORWARD", "OUTPUT")
# The chains to which ufw jumps from each of these, in order.
HOOKS = ("before-logging", "before", "after", "after-logging", "reject", "track")


class FirewallStep(TypedDict, total=False):
    """A step that muster_node/programs/firewall.py executes: `write` or `remove` a path, or `run` a command.

    text: content of the file, or standard input of the command.
    """

    write: str
    remove: str
    run: list[str]
    text: str
    mode: int


class Undo(TypedDict):
    """A command with which the guard undoes a change.

    text: key of the plan's text that is passed on standard input; "" for none.
    """

    argv: list[str]
    text: str


@dataclass
class FirewallPlan:
    """The steps for the node, and the data that the guard needs to undo them.

    before, after: the lines that describe the state before and after the change. disables: whether the plan deactivates
    ufw.
    """

    backend: str
    packages: list[str] = field(default_factory=list)
    steps: list[FirewallStep] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    undo: list[Undo] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    tables: dict[int, Tables] = field(default_factory=dict)
    disables: bool = False

    @property
    def changed_lines(self) -> list[str]:
        """The lines of `after` that are new, and those of `before` that are removed."""
        gone = [f"removed: {line}" for line in self.before if line not in self.after]
        return [*(line for line in self.after if line not in self.before), *gone]

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        self.files.append(path)
        self.steps.append({"write": path, "text": text, "mode": mode})

    def remove(self, path: str) -> None:
        self.files.append(path)
        self.steps.append({"remove": path})

    def run(self, *argv: str, text: str = "") -> None:
        self.steps.append({"run": list(argv), "text": text})

    def undo_by(self, *argv: str, text: str = "") -> None:
        self.undo.append({"argv": list(argv), "text": text})


def choose_backend(request: FirewallRequest, look: FirewallState) -> str:
    """Return the backend. Raises FirewallError if another firewall is active."""
    if look.firewalld:
        raise FirewallError(
            "firewalld manages the node's firewall. Open the ports in firewalld (docs/ports.md) and set firewall_mode"
            ' to "off" or verify, or disable firewalld: systemctl disable --now firewalld'
        )
    if request.backend == "nftables" and look.ufw is not None and (look.ufw.enabled or look.ufw_runs):
        raise FirewallError("firewall_backend is nftables, but ufw is active: set it to auto, or run: ufw disable")
    if request.backend != "auto":
        return request.backend
    if look.ufw is not None:
        return "ufw"
    return "nftables" if look.nftables_at_boot or look.own_rules or foreign_chains(look) else "ufw"


def make_plan(request: FirewallRequest, look: FirewallState) -> FirewallPlan:
    """Return the plan. Raises FirewallError."""
    if request.leaves:
        return plan_leaving(request, look)
    plan = FirewallPlan(choose_backend(request, look))
    if plan.backend == "ufw":
        plan_ufw(plan, request, look)
        plan_no_table(plan, look)
    else:
        plan_table(plan, request, look)
    plan_port_range(plan, request, look)
    plan_record(plan, look)
    return plan


def plan_record(plan: FirewallPlan, look: FirewallState) -> None:
    """Plan the record of the state before the first change. A state with rules of Muster is not recorded."""
    if plan.steps and not look.recorded and not look.is_managed:
        plan.files.append(RECORD)
        plan.steps.insert(0, {"write": RECORD, "text": look.to_record, "mode": 0o600})


def plan_table(plan: FirewallPlan, request: FirewallRequest, look: FirewallState) -> None:
    """Plan Muster's own nftables table, which is added beside the site's tables."""
    text = table.rules(openings(request, look))
    plan.after += ["nftables: table inet muster in force", *text.splitlines()]
    if not look.has_nft:
        plan.packages.append("nftables")
        plan.before.append("nftables: not installed")
        return
    loaded = look.own_live is not None and look.own_live == look.own_meant and look.own_active
    in_force = loaded and look.own_at_boot
    plan.before.append(f"nftables: table inet muster {'in force' if in_force else 'not in force'}")
    plan.before += (look.own_rules or "").splitlines()
    if look.own_rules != text:
        plan.write(RULES_FILE, text)
    if look.own_unit != table.UNIT_TEXT:
        plan.write(UNIT, table.UNIT_TEXT)
        plan.run("systemctl", "daemon-reload")
        plan.undo_by("systemctl", "daemon-reload")
    if look.own_rules != text or not loaded:
        # One nft transaction replaces the table atomically and leaves other tables unchanged. The unit does it, because
        # only an active unit is restarted together with the site's own rules.
        plan.run("systemctl", "restart", table.UNIT_NAME)
        if not look.own_active:
            plan.undo_by("systemctl", "stop", table.UNIT_NAME)
        plan.texts["table"] = table.restoring(look.own_live)
        plan.undo_by("nft", "-f", "-", text="table")
    if not look.own_at_boot:
        plan.run("systemctl", "--quiet", "enable", table.UNIT_NAME)
        plan.undo_by("rm", "-f", WANTED)


def plan_no_table(plan: FirewallPlan, look: FirewallState) -> None:
    """Plan the removal of Muster's nftables table on a node whose rules are now in ufw."""
    if look.own_at_boot:
        plan.run("systemctl", "--quiet", "disable", table.UNIT_NAME)
        plan.undo_by("ln", "-sfn", UNIT, WANTED)
    for path, text in ((UNIT, look.own_unit), (RULES_FILE, look.own_rules)):
        if text is not None:
            plan.remove(path)
    if look.own_live is not None:
        plan.before.append("nftables: table inet muster in force")
        plan.run("nft", "delete", "table", "inet", TABLE)
        plan.texts["table"] = table.restoring(look.own_live)
        plan.undo_by("nft", "-f", "-", text="table")


def plan_leaving(request: FirewallRequest, look: FirewallState) -> FirewallPlan:
    """Plan the removal of Muster's rules, and the recorded state of ufw. While ufw is active, the SSH rule is kept."""
    plan = FirewallPlan("nftables" if look.ufw is None else "ufw")
    plan_no_table(plan, look)
    if look.ufw is not None:
        active = look.ufw.enabled or look.ufw_runs
        plan.disables = active and look.before is not None and not look.before.enabled
        found = ssh_openings(look) if active and not plan.disables else []
        plan.before.append(f"ufw: {_ufw_state(look)}")
        plan.after.append(f"ufw: {'inactive' if plan.disables else _ufw_state(look)}")
        reloads = [version for version in _versions(look.ufw) if _plan_rules(plan, found, look, version)]
        _plan_reloads(plan, [] if plan.disables else reloads)
        if look.before is not None:
            _plan_ufw_before(plan, look.before, look.ufw)
        if reloads or plan.disables:
            _plan_live_undo(plan, look)
    plan_port_range(plan, request, look)
    if look.recorded:
        plan.remove(RECORD)
    return plan


def _plan_ufw_before(plan: FirewallPlan, before: Ufw, there: Ufw) -> None:
    """Plan the recorded state and default policy of ufw, which the role has changed."""
    if plan.disables:
        plan.files += UFW_STATE_FILES
        plan.run("ufw", "--force", "disable")
        plan.undo_by("/lib/ufw/ufw-init", "start")
    if before.input_policy == "ACCEPT" != there.input_policy:
        plan.files += UFW_DEFAULT_FILES
        plan.run("ufw", "default", "allow", "incoming")
    if there.at_boot and not before.at_boot:
        plan.run("systemctl", "--quiet", "disable", "ufw.service")
        plan.undo_by("systemctl", "--quiet", "enable", "ufw.service")


def _plan_reloads(plan: FirewallPlan, versions: Sequence[int]) -> None:
    for version in versions:
        # --noflush keeps other chains; ufw's chains are replaced atomically, so no traffic is opened or cut off.
        plan.run(RESTORES[version], "--noflush", f"/etc/ufw/{'user6.rules' if version == 6 else 'user.rules'}")


def plan_port_range(plan: FirewallPlan, request: FirewallRequest, look: FirewallState) -> None:
    """Plan setting the ephemeral port range in tight mode, or restoring it after tight mode was turned off."""
    low, high = request.ephemeral
    text = f"# Written by Muster (firewall_tight): docs/ports.md\nnet.ipv4.ip_local_port_range = {low} {high}\n"
    wanted = request.ephemeral if request.tight else look.port_range_others
    if look.port_range_file is not None or request.tight:
        plan.before.append(f"ports of outgoing connections: {look.port_range[0]}-{look.port_range[1]}")
        plan.after.append(f"ports of outgoing connections: {wanted[0]}-{wanted[1]}")
    if request.tight and look.port_range_file != text:
        plan.write(SYSCTL_FILE, text)
    if not request.tight and look.port_range_file is not None:
        plan.remove(SYSCTL_FILE)
    if look.port_range != wanted and (request.tight or look.port_range_file is not None):
        set_range = ["sysctl", "--quiet", "--write"]
        key = "net.ipv4.ip_local_port_range"
        plan.run(*set_range, f"{key}={wanted[0]} {wanted[1]}")
        plan.undo_by(*set_range, f"{key}={look.port_range[0]} {look.port_range[1]}")


def plan_ufw(plan: FirewallPlan, request: FirewallRequest, look: FirewallState) -> None:
    found = openings(request, look)
    if look.ufw is None:
        plan.packages.append("ufw")
        plan.before.append("ufw: not installed")
        plan.after.append("ufw: active")
        for version in (4, 6):
            plan.after += [entry.in_words for entry in ufw_entries(found, version)]
        return
    if look.ufw.masked:
        raise FirewallError("ufw.service is masked, so ufw would be inactive after a reboot. Run: systemctl unmask ufw")
    _refuse_a_flush(look)
    if not look.ufw.ipv6 and any(":" in address for address in (request.address, *request.peers.values())):
        raise FirewallError(
            "IPV6=no in /etc/default/ufw blocks IPv6, but the cluster uses IPv6 addresses. Set it to yes."
        )
    plan.before.append(f"ufw: {_ufw_state(look)}")
    plan.after.append("ufw: active, deny (incoming)")
    reloads = [version for version in _versions(look.ufw) if _plan_rules(plan, found, look, version)]
    _plan_ufw_state(plan, look.ufw, look, reloads)


def _refuse_a_flush(look: FirewallState) -> None:
    """Raise FirewallError if starting or reloading ufw would flush rules that are not ufw's."""
    if look.ufw is None or (look.ufw_runs and look.ufw.input_policy != "ACCEPT"):
        return
    if look.ufw.manages_builtins:
        raise FirewallError(
            "MANAGE_BUILTINS=yes in /etc/default/ufw makes ufw flush other rules when it starts. Set it to no."
        )
    foreign = [name for name, chain in look.tables[6].get("filter", {}).items() if _is_foreign(name, chain)]
    if foreign and not look.ufw.ipv6:
        raise FirewallError(
            f"IPV6=no in /etc/default/ufw makes ufw flush other IPv6 rules when it starts (ip6tables, chain"
            f" {foreign[0]}). Set it to yes."
        )


def _is_foreign(name: str, chain: Chain) -> bool:
    """Return whether a chain has rules that are not ufw's."""
    return not name.startswith("ufw6-") and any(
        rule.text not in ("-A INPUT -i lo -j ACCEPT", "-A OUTPUT -o lo -j ACCEPT")
        and not rule.target.startswith("ufw6-")
        for rule in chain.rules
    )


def _ufw_state(look: FirewallState) -> str:
    if look.ufw is None or not look.ufw_runs:
        return "inactive"
    state = "active" if look.ufw.enabled and look.ufw.at_boot else "active, but not enabled at boot"
    if look.ufw.input_policy != "ACCEPT" and any(_lets_all_in(look, version) for version in _versions(look.ufw)):
        return f"{state}, but packets without a matching rule are accepted"
    words = {"DROP": "deny", "REJECT": "deny", "ACCEPT": "allow"}
    return f"{state}, {words.get(look.ufw.input_policy, look.ufw.input_policy)} (incoming)"


def _plan_rules(plan: FirewallPlan, found: Sequence[Opening], look: FirewallState, version: int) -> bool:
    """Plan the change of one of ufw's rules files. Return whether the file must be loaded."""
    if look.ufw is None:
        return False
    name = "user6.rules" if version == 6 else "user.rules"
    path = f"/etc/ufw/{name}"
    try:
        there = ufw.parse_rules(look.ufw.files[name])
    except ValueError as exc:
        raise FirewallError(f"{path} cannot be read: {exc}.") from exc
    merged = ufw.merge(there.entries, ufw_entries(found, version))
    wanted = replace(there, entries=merged)
    plan.before += [entry.in_words for entry in there.entries]
    plan.after += [entry.in_words for entry in merged]
    plan.tables[version] = parse_save(ufw.render_rules(wanted))
    if merged != there.entries:
        plan.write(path, ufw.render_rules(wanted), 0o640)
    if not look.ufw_runs:
        return False
    chain = look.tables[version]["filter"][f"{'ufw6' if version == 6 else 'ufw'}-user-input"]
    return not ufw.is_loaded(wanted, chain.rules, version)


def _plan_ufw_state(plan: FirewallPlan, there: Ufw, look: FirewallState, reloads: Sequence[int]) -> None:
    planned = len(plan.steps)
    _plan_ufw_start(plan, there, look)
    _plan_reloads(plan, reloads)
    for version in _versions(there):
        if look.ufw_runs and _lets_all_in(look, version) and there.input_policy != "ACCEPT":
            plan.run(COMMANDS[version], "--policy", "INPUT", "DROP")
    if len(plan.steps) > planned:
        _plan_live_undo(plan, look)
    if not there.at_boot:
        plan.run("systemctl", "--quiet", "enable", "ufw.service")
        plan.undo_by("systemctl", "--quiet", "disable", "ufw.service")


def _plan_ufw_start(plan: FirewallPlan, there: Ufw, look: FirewallState) -> None:
    """Plan the start of ufw. ufw loads its rules before it sets the policy, and keeps the chains of other software."""
    if not look.ufw_runs:
        for version in _versions(there):
            _plan_hooks(plan, look.tables[version].get("filter", {}), version)
    if there.input_policy == "ACCEPT":
        plan.files += UFW_DEFAULT_FILES
        plan.run("ufw", "default", "deny", "incoming")
    if not there.enabled or not look.ufw_runs:
        plan.files += UFW_STATE_FILES
    if not there.enabled:
        plan.run("ufw", "--force", "enable")
    # ufw considers itself started if its chains exist, even if no rule jumps to them.
    lingers = any(f"{PREFIXES[version]}-user-input" in look.tables[version].get("filter", {}) for version in (4, 6))
    if not look.ufw_runs and (there.enabled or lingers):
        plan.run("ufw", "reload")


def _versions(there: Ufw) -> tuple[int, ...]:
    return (4, 6) if there.ipv6 else (4,)


def _lets_all_in(look: FirewallState, version: int) -> bool:
    """Return whether the policy of INPUT in force is ACCEPT. ufw's settings do not show the policy in force."""
    chain = look.tables[version].get("filter", {}).get("INPUT")
    return chain is not None and chain.policy == "ACCEPT"


def _plan_hooks(plan: FirewallPlan, chains: Mapping[str, Chain], version: int) -> None:
    """Plan restoring the jumps to ufw's chains, in their order, after INPUT was flushed.

    ufw adds these jumps only when it creates its chains.
    """
    prefix, command = PREFIXES[version], COMMANDS[version]
    if f"{prefix}-before-logging-input" not in chains:
        return
    for builtin in BUILTINS:
        targets = [rule.target for rule in chains[builtin].rules]
        wanted = [name for place in HOOKS if (name := f"{prefix}-{place}-{builtin.lower()}") in chains]
        for number, name in enumerate(wanted):
            if name in targets:
                continue
            ahead = [targets.index(other) + 1 for other in wanted[:number] if other in targets]
            behind = [targets.index(other) for other in wanted[number:] if other in targets]
            place = ahead[-1] if ahead else min(behind, default=len(targets))
            targets.insert(place, name)
            plan.run(command, "--insert", builtin, str(place + 1), "--jump", name)
            plan.undo_by(command, "--delete", builtin, "--jump", name)


def _plan_live_undo(plan: FirewallPlan, look: FirewallState) -> None:
    """Plan the undo that restores the ufw chains and policies that are now in force, regardless of ufw's files."""
    if not look.ufw_runs:
        plan.undo_by("/lib/ufw/ufw-init", "force-stop")
    for version, command in RESTORES.items():
        chains = look.tables[version].get("filter")
        if chains:
            plan.texts[f"rules{version}"] = _live_text(chains, f"{PREFIXES[version]}-")
            plan.undo_by(command, "--noflush", text=f"rules{version}")


def _live_text(chains: Mapping[str, Chain], prefix: str) -> str:
    """Return input for iptables-restore that restores the policies of the built-in chains and the rules of ufw's
    chains. Rules in built-in chains are not changed.
    """
    lines = [f":{name} {chains[name].policy} [0:0]" for name in BUILTINS if name in chains]
    own = [name for name in chains if name.startswith(prefix)]
    lines += [f":{name} - [0:0]" for name in own]
    lines += [rule.text for name in own for rule in chains[name].rules]
    return "".join(f"{line}\n" for line in ("*filter", *lines, "COMMIT"))


def ufw_entries(found: Sequence[Opening], version: int) -> list[ufw.UfwEntry]:
    """Return the openings of one IP version as ufw entries."""
    entries = []
    for opening in found:
        if opening.source and (":" in opening.source) != (version == 6):
            continue
        spans = [str(low) if low == high else f"{low}:{high}" for low, high in opening.ports]
        port = ",".join(spans) or "any"
        # ufw allows ranges and lists only with a single protocol.
        both = opening.protos == ("tcp", "udp") and ":" not in port and "," not in port
        entries += [
            ufw.allow(version, proto, port, opening.source or "any", opening.interface, opening.comment)
            for proto in (("any",) if both or not opening.protos else opening.protos)
        ]
    return entries
