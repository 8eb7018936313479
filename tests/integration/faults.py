"""Faults in everything that the roles manage on a node, with commands that inject and revert each fault.

The lists of files, packages and settings come from the vars of the roles.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import yaml

from muster.launch_users import files
from paths import ROOT

PERSON = "anna"
LAST_RULE = "iptables -D ufw-user-input $(iptables -S ufw-user-input | grep -c ^-A)"
MOVED = (("numpy", "version.py"), ("numpy-*.dist-info", "RECORD"))
KEPT = "/var/tmp/one-fault"
SSH = "/home/muster/.ssh"
IDENTITY = "/var/lib/muster/ssh/muster/id_ed25519"
LIBRARY = "/opt/muster/pytorch/current/lib"
SITE = f"{LIBRARY}/$(ls {LIBRARY})/site-packages"
# The copy keeps owner and times.
KEEP, BACK = "rm -rf {kept}; cp -a {path} {kept}", "rm -rf {path}; cp -a {kept} {path}; rm -rf {kept}"


@dataclass(frozen=True)
class Fault:
    """role: the role that the check must select for the node. says: expected part of the reason."""

    what: str
    step: str
    role: str
    says: str
    on: str
    off: str

    def shape(self) -> dict[str, Any]:
        return asdict(self)


def of_file(step: str, role: str, path: str, change: str, says: str, what: str = "") -> Fault:
    """Return a fault in a file. change: command with {path}. Injecting the fault fails if the file stays the same."""
    keep, back = (text.format(path=path, kept=KEPT) for text in (KEEP, BACK))
    differs = f"! diff -q {path} {KEPT} >/dev/null 2>&1 || ! diff <(stat -c '%a %U' {path}) <(stat -c '%a %U' {KEPT})"
    on = f"set -e; {keep}; {change.format(path=path)}; {differs}"
    return Fault(what or f"{path}: {change.partition(' ')[0]}", step, role, says, on, back)


def vars_of(role: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text())
    return found


def of_baseline() -> list[Fault]:
    node = vars_of("node_baseline")
    faults = []
    # Skip limits that root may not raise, as on sandbox nodes.
    for file in (one for one in node["_node_baseline_files"] if "needs" not in one):
        path = file["path"]
        faults.append(of_file("baseline", "node_baseline", path, "echo >>{path}", f"{path} has other content"))
        faults.append(of_file("baseline", "node_baseline", path, "chmod 0600 {path}", f"{path} is root:root 0600"))
        faults.append(of_file("baseline", "node_baseline", path, "rm {path}", f"{path} is missing"))
    path = node["_node_baseline_sysctl_file"]
    faults.append(of_file("baseline", "node_baseline", path, "echo >>{path}", f"{path} has other content"))
    status = "/var/lib/dpkg/status"
    for entry in node["_node_baseline_packages"]:
        name = entry.partition("|")[0]
        gone = f"sed -i '/^Package: {name}$/,/^$/s/^Status: .*/Status: deinstall ok config-files/' {{path}}"
        faults.append(of_file("baseline", "node_baseline", status, gone, name, f"package {name} missing"))
    faults.append(of_file("baseline", "node_baseline", "/etc/passwd", "sed -i /^muster:/d {path}", "no user muster"))
    faults += of_effects()
    for path in ("/etc/apt/apt.conf.d/51muster-proxy", "/etc/ssl/certs/muster.pem"):
        on, off = f"touch {path}", f"rm {path}"
        faults.append(Fault(f"{path} is left", "baseline", "node_baseline", f"{path} exists", on, off))
    return faults


def of_effects() -> list[Fault]:
    """Return faults that change effective settings without changing a file."""
    role = ("baseline", "node_baseline")
    manager, login = (f"/etc/systemd/{name}.conf.d/90-muster.conf" for name in ("system", "logind"))
    without = "set -e; mv {path} /var/tmp/one-fault; {then}; mv /var/tmp/one-fault {path}"
    reexec, restart = "systemctl daemon-reexec", "systemctl restart systemd-logind"
    never = "/run/systemd/system/systemd-logind.service.d/never.conf"
    stop = (
        f"set -e; mkdir -p $(dirname {never}); printf '[Unit]\\nConditionPathExists=/nowhere\\n' >{never};"
        " systemctl daemon-reload; systemctl stop systemd-logind; ! systemctl is-active systemd-logind"
    )
    start = f"rm {never}; systemctl daemon-reload; systemctl start systemd-logind"
    return [
        Fault("systemd limits off", *role, "DefaultLimitNOFILE", without.format(path=manager, then=reexec), reexec),
        Fault("logind setting off", *role, "RemoveIPC", without.format(path=login, then=restart), restart),
        Fault("a unit is stopped", *role, "systemd-logind", stop, start),
    ]


def of_network() -> list[Fault]:
    hosts, mesh, rules = (("network", role) for role in ("cluster_hosts", "ssh_mesh", "firewall"))
    made = f"ssh-keygen -q -t ed25519 -N '' -f {IDENTITY}; rm {IDENTITY}.pub"
    private = f"rm {IDENTITY}; {made}; chown muster: {IDENTITY}"
    way = "have changed since the last test"
    return [
        of_file(*hosts, "/etc/hosts", "sed -i '/node2/d' {path}", "node2", "no line of a peer"),
        of_file(*hosts, "/etc/hosts", "sed -i '1i 127.0.1.1 node1' {path}", "127.0.1.1", "own name on loopback"),
        of_file(*hosts, "/etc/nsswitch.conf", "sed -i 's/^hosts:.*/hosts: dns/' {path}", "node2", "hosts file off"),
        # These two come first in their role, because restoring other faults writes new files, which end the proof.
        Fault("wrong public key", *mesh, way, f"echo x >{IDENTITY}.pub", f"rm {IDENTITY}.pub"),
        of_file(*mesh, "/etc/pam.d/sshd", "echo '# new' >>{path}", "a peer differs", "PAM"),
        of_file(*mesh, f"{SSH}/authorized_keys", "sed -i '/node2$/d' {path}", "authorized_keys of muster differs"),
        of_file(*mesh, f"{SSH}/config", "sed -i '/IdentitiesOnly/d' {path}", "config of muster differs"),
        of_file(
            *mesh, f"{SSH}/muster_known_hosts", "sed -i '/node2$/d' {path}", "muster_known_hosts of muster differs"
        ),
        of_file(*mesh, IDENTITY, private, "authorized_keys of muster differs", "new private key"),
        of_file(*mesh, IDENTITY, "chmod 0644 {path}", "the SSH key of muster is missing or incorrect"),
        of_file(*mesh, "/etc/ssh/ssh_host_ed25519_key.pub", "sed -i s/AAAAI/AAAAX/ {path}", "muster_known_hosts"),
        of_file(
            *mesh,
            "/etc/ssh/sshd_config.d/90-muster.conf",
            "echo '#' >>{path}",
            "sshd is not configured as required",
            "sshd settings changed",
        ),
        of_file(*mesh, "/etc/passwd", "sed -i '/^muster:/s,/bin/bash,/usr/sbin/nologin,' {path}", "nologin"),
        of_file(
            *rules,
            "/etc/ufw/user.rules",
            "sed -i '0,/^-A ufw-user-input/{{//d}}' {path}",
            "the rules differ",
            "rule missing in the file",
        ),
        of_file(
            *rules,
            "/etc/default/ufw",
            "sed -i s/INPUT_POLICY=.*/INPUT_POLICY=ACCEPT/ {path}",
            "the rules differ",
            "input policy changed",
        ),
        # This fault is last, because SSH is checked early and the controller must reconnect.
        Fault("active rule missing", *rules, "the rules differ", f"set -e; {LAST_RULE}", "ufw reload"),
        Fault("disabled at boot", *rules, "the rules differ", "systemctl disable ufw", "systemctl enable ufw"),
    ]


def of_pytorch() -> list[Fault]:
    env = ("pytorch", "pytorch")
    link = "/opt/muster/pytorch/current"
    record = ("pytorch", "installed_record")
    written = ("/var/lib/muster/installed.json", "record of the installation is outdated")
    away = "set -e; cd {site}/{where}; mv {what} /var/tmp/one-fault"
    back = "cd {site}/{where}; mv /var/tmp/one-fault {what}"
    module, dist_info = ({"site": SITE, "where": where, "what": what} for where, what in MOVED)
    return [
        of_file(*env, f"{SITE}/torch/version.py", "echo '# longer' >>{path}", "torch", "a file of torch is longer"),
        of_file(*env, f"{SITE}/numpy/version.py", "truncate -s 0 {path}", "numpy", "a file of numpy is empty"),
        Fault("numpy file missing", *env, "numpy", away.format(**module), back.format(**module)),
        Fault("numpy missing", *env, "numpy", away.format(**dist_info), back.format(**dist_info)),
        of_file(*record, written[0], "rm {path}", written[1]),
        of_file(*record, written[0], 'sed -i \'s/"kernel": "/&x/\' {path}', written[1], "other kernel ran"),
        of_file(*record, f"{SITE}/torch/version.py", "echo '# longer' >>{path}", written[1], "torch changed later"),
        Fault("link missing", *env, "no environment exists yet", f"mv {link} {link}.was", f"mv {link}.was {link}"),
    ]


def of_people() -> list[Fault]:
    role = ("pytorch", "launch_users")
    linger, folder = f"/var/lib/systemd/linger/{PERSON}", f"/var/lib/muster/users/{PERSON}"
    # Skip login limits that root may not raise, as on sandbox nodes.
    own = [pattern.format(f"$(id -u {PERSON})") for pattern in (files.MANAGER, files.SLICE)]
    begin = f"systemctl start user@$(id -u {PERSON})"
    anew = f"systemctl daemon-reload; systemctl restart user@$(id -u {PERSON})"

    def longer(path: str) -> Fault:
        return of_file(*role, path, "echo '# more' >>{path}", "has other content", f"{path} is longer")

    leave, join = f"gpasswd -d {PERSON} muster-launch", f"usermod -aG muster-launch {PERSON}"
    return [
        Fault("not in the group", *role, PERSON, leave, join),
        Fault("no linger", *role, PERSON, f"rm {linger}", f"touch {linger}; {begin}"),
        Fault("folder missing", *role, PERSON, f"mv {folder} {folder}.was", f"mv {folder}.was {folder}"),
        *(longer(path) for path in (files.TMPFILES, files.PROFILE)),
        # After the file is restored, its settings are newer than the user manager again.
        *(replace(one, off=f"{one.off}; {anew}") for one in map(longer, (files.USER_CONF, *own))),
        Fault(
            "torchrun is not linked",
            *role,
            f"{files.LINK} points to nothing",
            f"mv {files.LINK} /var/tmp/one-fault",
            f"mv /var/tmp/one-fault {files.LINK}",
        ),
    ]
