"""May this node take part in the launch: findings from what `prepare` saw on it (muster_node/programs/launch.py)."""

from __future__ import annotations

from typing import Any

from ..verdict.entry import Entry
from ..verdict.finding import Finding, evidence, fix_with

FINDINGS = {
    "launch.preflight": Entry(
        "everything below, on each participant, right before a launch",
        "never: it is the pass of a node on which nothing stands against the launch",
        "",
    ),
    "launch.privilege": Entry(
        "the node, once more right before the launch",
        "the launch is not started as root, which making a unit needs (fail)",
        "Set ansible_become: true for the node",
    ),
    "launch.systemd": Entry(
        "/run/systemd/system",
        "systemd does not run (fail)",
        "Boot the node with systemd",
    ),
    "launch.python": Entry(
        "the Python that Ansible uses there",
        "it is older than 3.10 (fail)",
        "Set ansible_python_interpreter to a newer one",
    ),
    "launch.user": Entry(
        "the account of the training user (cluster_user)",
        "it does not exist, or is root (fail)",
        "Make it with ansible-playbook site.yml --tags baseline",
    ),
    "launch.torchrun": Entry(
        "the file cluster_torchrun, as the training user",
        "it is not there, or may not be executed (fail)",
        "Build the environment with ansible-playbook site.yml --tags pytorch",
    ),
    "launch.script": Entry(
        "the file launch_script, as the training user",
        "it is not there, or may not be read (fail)",
        "Copy it to the same path on every node",
    ),
    "launch.chdir": Entry(
        "the folder launch_chdir, as the training user",
        "it is not there, or may not be entered (fail)",
        "Copy it to the same path on every node",
    ),
    "launch.disk": Entry(
        "the file system of cluster_run_root",
        "it is read-only, has no inodes, or less room than the logs need (fail)",
        "Free some, or set cluster_run_root elsewhere",
    ),
    "launch.address": Entry(
        "the addresses of the interfaces",
        "none is cluster_address (fail)",
        "Set cluster_address to an address of the node",
    ),
    "launch.interface": Entry(
        "the interface that has cluster_address",
        "it is not cluster_interface (fail)",
        "Set cluster_interface to it, or leave it empty",
    ),
    "launch.gpus": Entry(
        "/dev/nvidia0 and so on",
        "under NCCL there are fewer than ranks (fail); under Gloo there are some, which are not used (warn)",
        "Look with nvidia-smi, or correct cluster_gpus",
    ),
    "launch.port": Entry(
        "an attempt to listen on cluster_master_port on the head node, and /proc/net/tcp",
        "another process holds the port: it is named with its owner (fail)",
        "Wait for it or stop it, or take another cluster_master_port",
    ),
}

PYTHON_WANTED = (3, 10)
LAST_PORT = 65535


def judge(entry: dict[str, Any], facts: dict[str, Any], request: dict[str, Any]) -> list[Finding]:
    """Every reason against a start on this node, at once; a single `pass` when there is none.

    entry: the node's part of the plan. request: {user, port, backend, min_free_bytes, script_is_sent}.
    """
    found = [
        finding
        for rule in (privilege, system, user, programs, disk, interface, gpus, port)
        for finding in rule(entry, facts, request)
    ]
    if any(finding.status == "fail" for finding in found):
        return found
    return [*found, Finding("launch.preflight", "pass", entry["node"], "ready to launch")]


def fail(entry: dict[str, Any], name: str, summary: str, text: str, command: str = "", **more: Any) -> Finding:
    return Finding(f"launch.{name}", "fail", entry["node"], summary, fix=fix_with(text, command), **more)


def privilege(entry: dict[str, Any], facts: dict[str, Any], _request: dict[str, Any]) -> list[Finding]:
    if facts["uid"] == 0:
        return []
    return [
        fail(
            entry,
            "privilege",
            "the launch is started as root, which needs sudo",
            "Set ansible_become: true for this node",
        )
    ]


def system(entry: dict[str, Any], facts: dict[str, Any], _request: dict[str, Any]) -> list[Finding]:
    found = []
    if not facts["systemd"]:
        found.append(
            fail(
                entry, "systemd", "systemd does not run here", "A launch is a systemd unit: boot the node with systemd"
            )
        )
    if tuple(facts["python"][:2]) < PYTHON_WANTED:
        seen = ".".join(str(part) for part in facts["python"])
        found.append(
            fail(
                entry,
                "python",
                f"its Python is {seen}",
                "Python 3.10 or newer is needed: set ansible_python_interpreter",
            )
        )
    return found


def user(entry: dict[str, Any], facts: dict[str, Any], request: dict[str, Any]) -> list[Finding]:
    if facts["user"] is None:
        return [
            fail(
                entry,
                "user",
                f"the training user {request['user']} does not exist",
                "Make it with",
                "ansible-playbook site.yml --tags baseline",
            )
        ]
    if facts["user"]["uid"] == 0:
        return [
            fail(
                entry,
                "user",
                f"{request['user']} is root; jobs run unprivileged",
                "Set cluster_user to an ordinary user",
            )
        ]
    return []


def programs(entry: dict[str, Any], facts: dict[str, Any], request: dict[str, Any]) -> list[Finding]:
    found = []
    executable = facts["executable"]
    if not executable["exists"]:
        found.append(
            fail(
                entry,
                "torchrun",
                f"{executable['path']} is not there",
                "Build the environment with",
                "ansible-playbook site.yml --tags pytorch",
            )
        )
    elif facts["user"] and not executable["usable"]:
        found.append(
            fail(
                entry,
                "torchrun",
                f"{request['user']} may not execute {executable['path']}",
                "Make it readable and executable",
            )
        )
    for name, verb in (("script", "read"), ("chdir", "enter")):
        seen = facts[name]
        if seen is None or (name == "script" and request["script_is_sent"]):
            continue
        if not seen["exists"]:
            found.append(fail(entry, name, f"{seen['path']} is not there", "Copy it to the same path on every node"))
        elif facts["user"] and not seen["usable"]:
            found.append(
                fail(
                    entry, name, f"{request['user']} may not {verb} {seen['path']}", f"Let {request['user']} {verb} it"
                )
            )
    return found


def disk(entry: dict[str, Any], facts: dict[str, Any], request: dict[str, Any]) -> list[Finding]:
    seen = facts["disk"]
    if seen["read_only"]:
        return [fail(entry, "disk", f"{seen['path']} is mounted read-only", "Set cluster_run_root to a writable place")]
    if seen["inodes_free"] == 0:
        return [
            fail(entry, "disk", f"{seen['path']} has no free inodes", "Free some, or set cluster_run_root elsewhere")
        ]
    if seen["free"] < request["min_free_bytes"]:
        return [
            fail(
                entry,
                "disk",
                f"{seen['path']}, where logs go, has {seen['free'] / 1e6:.0f} MB free",
                "Free some, or set cluster_run_root elsewhere",
                observed=f"{seen['free']} bytes free",
                expected=f"{request['min_free_bytes']} bytes",
            )
        ]
    return []


def interface(entry: dict[str, Any], facts: dict[str, Any], _request: dict[str, Any]) -> list[Finding]:
    address, carrier = entry["address"], facts["interface_of_address"]
    if carrier is None:
        return [
            fail(
                entry,
                "address",
                f"no interface here carries {address}",
                "Set cluster_address to an address of this node",
                observed=", ".join(facts["interfaces"]),
                expected=address,
            )
        ]
    if entry["interface"] and entry["interface"] != carrier:
        return [
            fail(
                entry,
                "interface",
                f"{address} is on {carrier}, not on {entry['interface']}",
                f"Set cluster_interface to {carrier}, or leave it empty",
                observed=carrier,
                expected=entry["interface"],
            )
        ]
    return []


def gpus(entry: dict[str, Any], facts: dict[str, Any], request: dict[str, Any]) -> list[Finding]:
    if request["backend"] == "nccl" and facts["gpus"] < entry["nproc"]:
        return [
            fail(
                entry,
                "gpus",
                f"the driver shows {facts['gpus']} GPUs for {entry['nproc']} ranks",
                "Look with nvidia-smi, or correct cluster_gpus",
                observed=str(facts["gpus"]),
                expected=str(entry["nproc"]),
            )
        ]
    if request["backend"] == "gloo" and facts["gpus"] > 0:
        return [
            Finding(
                "launch.gpus",
                "warn",
                entry["node"],
                f"it has {facts['gpus']} GPUs, which this launch on CPUs does not use",
                fix={"text": f"Set cluster_gpus: {facts['gpus']} for it"},
            )
        ]
    return []


def port(entry: dict[str, Any], facts: dict[str, Any], _request: dict[str, Any]) -> list[Finding]:
    seen = facts["port"]
    if seen is None or seen["free"]:
        return []
    holders = (
        "; ".join(describe_holder(holder) for holder in seen["holders"]) or "a process that cannot be seen from here"
    )
    others = ", ".join(launch["launch_id"] for launch in facts["launches"])
    return [
        fail(
            entry,
            "port",
            f"port {seen['port']} is held by {holders}" + (f" (running launch: {others})" if others else ""),
            "Wait for it or stop it, or take another port",
            f"-e cluster_master_port={seen['port'] + (1 if seen['port'] < LAST_PORT else -1)}",
            observed=holders,
            expected=f"port {seen['port']} free on the head node",
            evidence=evidence("/proc/net/tcp", holders),
        )
    ]


def describe_holder(holder: dict[str, Any]) -> str:
    if holder["pid"] is None:
        return "a process in another container or namespace"
    unit = f", unit {holder['unit']}" if holder["unit"] else ""
    return (
        f"PID {holder['pid']} of {holder['user'] or 'an unknown user'} ({holder['command'] or 'no command line'}{unit})"
    )
