"""Running and orphaned ranks, the process on the rendezvous port, and ports that bypass the firewall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..firewall.netfilter import parse_save
from ..firewall.published import PUBLISHED, published
from ..launch.unit import LAUNCH_UNITS
from ..network.listeners import parse_ss
from ..verdict import processes
from ..verdict.check import Check, skip_all
from ..verdict.commands import playbook, shell
from ..verdict.finding import evidence
from ..verdict.masking import masked_command
from ..verdict.words import age, few, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

STALE = Check(
    "job.stale",
    seen="sandbox",
    reads="processes with torchrun's environment variables whose torchrun has ended (parent PID 1)",
    fires="fail: orphaned ranks are running on a node with GPUs and hold GPU memory. warn: on other nodes",
    fix="End the processes by PID",
)
OTHER = Check(
    "job.other",
    seen="recording",
    reads="processes with torchrun's environment variables that are not part of a Muster launch",
    fires="warn: another job is running on the node, so both jobs slow down or fail",
    fix="Wait until the job ends, or end the job. Show its processes with",
)
STOPPED = Check(
    "job.stopped",
    seen="recording",
    reads="the state of every rank",
    fires="warn: a rank is stopped (by SIGSTOP or a debugger), and all other ranks wait for this rank",
    fix="Continue the process, or end the job",
)
PORT_HELD = Check(
    "job.port.held",
    seen="sandbox",
    reads="the process that listens on cluster_master_port",
    fires="fail on the head node, warn on other nodes: the process is not part of a Muster launch",
    fix="Stop the process, or set another cluster_master_port",
)
USER_MISSING = Check(
    "job.user.missing",
    seen="recording",
    reads="the account of cluster_user",
    fires="fail: the account does not exist, so no launch can start",
    fix="Create the account with",
    command=playbook("site.yml", tags="baseline"),
)
CHECKS = (STALE, OTHER, STOPPED, PORT_HELD, USER_MISSING, PUBLISHED)
LOOKS = ("jobs", "listeners", "published")
PROBE = "muster-probe"  # as plugins/module_utils/muster_node/programs/probe_listener.py calls itself


def facts_of(looks: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    look, rules = looks["jobs"], looks["published"]
    heard = parse_ss(looks["listeners"]["ss"])
    tables = {int(version): parse_save(text) for version, text in rules["rules"].items()}
    return {
        "processes": [_covered(each) for each in look["processes"]],
        "saw_all": look["saw_all"],
        "why": look.get("why", ""),
        "port": [
            {"address": each.address, "process": each.process, "pid": each.pid}
            for each in heard
            if each.proto == "tcp" and each.port == request["port"]
        ],
        "port_holders": [_covered(each) for each in look["port_holders"]],
        # At least sshd listens on a reachable machine.
        "listeners_why": looks["listeners"]["why"] or ("" if heard else "ss lists no listening sockets"),
        "published": [
            {"proto": proto, "low": span[0], "high": span[1], "place": place}
            for proto, span, place in published(tables, heard)
        ],
        "published_why": rules["why"],
    }


def _covered(process: Mapping[str, Any]) -> dict[str, Any]:
    """Return the process with the secrets in its command line masked."""
    return {**process, "command": masked_command(process["command"])}


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    seen = facts["jobs"]
    if facts["training_user"] is None:
        yield USER_MISSING.fail(
            node,
            f"the training user {request['user']} does not exist, so no launch can start",
        )
    if not seen["saw_all"]:
        why = seen["why"] or "only root can see the processes of other users"
        yield from skip_all((STALE, OTHER, STOPPED), why)
    else:
        yield from _processes(node, seen["processes"], request)
    yield from _port(node, seen, request)
    yield from _published(node, facts, request)


def _processes(node: str, seen: list[dict[str, Any]], request: Mapping[str, Any]) -> Iterator[Said]:
    foreign = [each for each in seen if not each["launch"]]
    # Their torchrun has ended: PID 1 or the user's systemd is their parent now.
    stale = [each for each in foreign if each["rank"] and (each["parent"] == 1 or each["parent_name"] == "systemd")]
    if stale:
        pids = [each["pid"] for each in stale]
        named = few([str(pid) for pid in pids])
        first = stale[0]
        report = STALE.fail if request["gpus"] else STALE.warn
        yield report(
            node,
            f"{plural(len(stale), 'orphaned rank')} of a torchrun that has ended: PID {named} of "
            f"{first['user']}, running for {age(first['age'])}",
            f"End the processes. {processes.advice(pids, 'sudo kill -9')}",
            processes.look(pids),
            observed=" ".join(map(str, pids)),
            expected="none",
            evidence=evidence("/proc", "; ".join(f"{each['pid']}: {each['command']}" for each in stale[:3])),
        )
    others = [each for each in foreign if each not in stale]
    if others:
        first = min(others, key=lambda each: int(each["pid"]))
        # A rank's data loaders have the same variables.
        ranks = len({each["rank"] for each in others if each["rank"]})
        yield OTHER.warn(
            node,
            f"a job not started by Muster is running: {plural(ranks, 'rank')} of {first['user']} "
            f"(PID {first['pid']}, {first['command'][:80]}, running for {age(first['age'])})",
            command=processes.look([each["pid"] for each in others[:8]]),
            observed=f"{len(others)} processes",
            expected="none",
        )
    stopped = [each for each in seen if each["rank"] and each["state"] in ("T", "t")]
    if stopped:
        pids = [each["pid"] for each in stopped]
        yield STOPPED.warn(
            node,
            f"rank {', '.join(each['rank'] for each in stopped[:8])} of the job {stopped[0]['run'] or '(unnamed)'} "
            f"is stopped (PID {' '.join(map(str, pids))}), and all other ranks wait for it",
            f"Continue the process. {processes.advice(pids, 'sudo kill -CONT')}",
            processes.look(pids),
            observed="stopped",
            expected="running",
        )


def _port(node: str, seen: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    if seen["listeners_why"]:
        yield PORT_HELD.skip(seen["listeners_why"])
        return
    if not seen["port"]:
        return
    running = sorted({each["launch"] for each in seen["processes"] if each["launch"]})
    holders = seen["port_holders"]
    if running and any(LAUNCH_UNITS in holder["unit"] for holder in holders):
        yield PORT_HELD.skip(f"the running launch {', '.join(running)} uses the port")
        return
    if all(each["process"] == PROBE for each in seen["port"]):
        yield PORT_HELD.skip("an interrupted network probe still uses the port until its timeout expires")
        return
    who = "; ".join(_holder(holder) for holder in holders) or "an unknown process"
    stop = next(
        (
            shell("sudo systemctl stop {unit}", unit=each["unit"])
            for each in holders
            if processes.may_be_stopped(each["unit"])
        ),
        "",
    )
    pids = [holder["pid"] for holder in holders]
    fix, command = "Set another cluster_master_port, or stop the process", stop
    if stop:
        fix += " with"
    elif pids:
        fix += f". {processes.advice(pids, 'sudo kill')}"
        command = processes.look(pids)
    else:
        fix += ". Find the process with"
        command = shell("sudo ss -lptn {what}", what=f"sport = :{request['port']}")
    report = PORT_HELD.fail if request["head"] else PORT_HELD.warn
    yield report(
        node,
        f"the port {request['port']} (cluster_master_port) is in use by {who}"
        + ("" if request["head"] else "; this matters only if the node becomes the head node"),
        fix,
        command,
        observed=who,
        expected="no process",
        evidence=evidence("ss -lntp", ", ".join(f"{each['address']} {each['process']}" for each in seen["port"])),
    )


def _holder(holder: Mapping[str, Any]) -> str:
    unit = f", unit {holder['unit']}" if holder["unit"] else ""
    command = holder["command"] or "no command line"
    return f"PID {holder['pid']} of {holder['user'] or 'an unknown user'} ({command[:100]}{unit})"


def _published(node: str, facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    seen = facts["jobs"]
    if seen["published_why"] and not seen["published"]:
        yield PUBLISHED.skip(seen["published_why"])
        return
    if not facts["firewall"]["in_force"]:
        yield PUBLISHED.skip("no firewall is active on the node")
        return
    for each in seen["published"]:
        low, high, proto = each["low"], each["high"], each["proto"]
        if any(allows(entry, proto, low, high) for entry in request["allow"]):
            continue
        span = str(low) if low == high else f"{low}-{high}"
        yield PUBLISHED.warn(
            node,
            f"port {span}/{proto}, published by {each['place']}, bypasses the firewall and is open to everyone",
            f"Publish the port on one address only (for example -p 127.0.0.1:{low}:...), or block it with",
            f"iptables -I DOCKER-USER -p {proto} -m conntrack --ctorigdstport {low} --ctdir ORIGINAL -j DROP",
            observed=each["place"],
            expected="not published",
        )


def allows(entry: Mapping[str, Any], proto: str, low: int, high: int) -> bool:
    """Return whether an entry of firewall_allow opens these ports to everyone."""
    first, _, last = str(entry.get("port", "")).partition("-")
    if entry.get("from") or not first.isdigit():
        return False
    return entry.get("proto", "tcp") in (proto, "any") and int(first) <= low and high <= int(last or first)
