"""Create the file systems of nodes and controller: overlays over this machine's root that add the carried files."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from . import carried, machine

PLACE = Path("/run/two_nodes")
CONTROLLER = PLACE / "controller/root"
BASE = PLACE / "base/root"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ACCOUNTS = ("systemd-network", "systemd-resolve", "messagebus", "sshd")
USERS = ("admin", "muster")  # Ansible's login user, and the user of launches
UNPACK = (
    'for f in /run/debs/*.deb; do dpkg-deb --fsys-tarfile "$f" | tar -x --keep-directory-symlink -C / || exit 1; done'
)
TARGET = """\
[Unit]
Description=A node of two
Requires=basic.target
Wants=ssh.service systemd-logind.service dbus.service systemd-user-sessions.service
After=basic.target ssh.service systemd-logind.service
AllowIsolate=yes
"""
SSHD = "HostKey /etc/ssh/ssh_host_ed25519_key\nUseDNS no\nPasswordAuthentication no\nMaxStartups 100\nMaxSessions 100\n"
# Units that the machine or its packages would start, or that belong to the machine.
MASKED = """
systemd-udevd.service systemd-udev-trigger.service systemd-udevd-control.socket systemd-udevd-kernel.socket
systemd-timesyncd.service systemd-resolved.service systemd-networkd.service systemd-networkd.socket
systemd-networkd-wait-online.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount sys-kernel-debug.mount
sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount dev-hugepages.mount
systemd-modules-load.service systemd-sysctl.service systemd-pcrphase.service systemd-pstore.service
systemd-random-seed.service systemd-hwdb-update.service systemd-update-utmp.service ldconfig.service
systemd-firstboot.service console-getty.service getty.target apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer
fstrim.timer logrotate.timer man-db.timer dpkg-db-backup.timer motd-news.timer ssh.socket apparmor.service
docker.socket podman.socket cups.socket avahi-daemon.socket
"""


def call(*argv: str | Path, text: str = "", timeout: float = 120.0) -> str:
    """Run a program and return its output. Raise an error if the program fails."""
    words = list(map(str, argv))
    done = subprocess.run(
        words, check=False, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout
    )
    if done.returncode:
        said = done.stdout.strip().splitlines() or ["it printed nothing"]
        raise RuntimeError(f"{' '.join(words)[:200]} ended with {done.returncode}: {said[-1][:300]}")
    return done.stdout


def in_root(root: Path, *argv: str | Path) -> list[str]:
    """Return the argv that runs a command with this folder as root."""
    return ["chroot", str(root), "/usr/bin/env", f"PATH={PLACE}/bin:{PATH}", *map(str, argv)]


def own_mounts() -> list[str]:
    out = os.environ.get("OUT", "")
    without = [str(PLACE), str(Path.cwd()), *([out] if out else [])]
    return machine.mounts_to_take(Path("/proc/self/mountinfo").read_text(), without)


def make_place() -> None:
    """Create the folder that contains everything. A single umount removes it."""
    PLACE.mkdir()
    call("mount", "-t", "tmpfs", "-o", "mode=0755,size=40%", "two-nodes", PLACE)
    call("mount", "--make-private", PLACE)
    (PLACE / "bin").mkdir()


def mount_root(root: Path, *lower: Path) -> None:
    """Mount an overlay, then mount in the overlay the machine's mounts that nodes need."""
    for folder in (root, root.parent / "upper", root.parent / "work"):
        folder.mkdir(parents=True)
    layers = f"lowerdir={':'.join(map(str, lower))},upperdir={root.parent}/upper,workdir={root.parent}/work"
    call("mount", "-t", "overlay", "-o", layers, "two-nodes", root)
    for place in own_mounts():
        if Path(place).is_dir():
            bind(Path(place), root)


def bind(place: Path, root: Path) -> None:
    there = root / place.relative_to("/")
    there.mkdir(parents=True, exist_ok=True)
    call("mount", "--rbind", place, there)
    call("mount", "--make-rprivate", there)


def with_kernel(root: Path) -> None:
    """Mount the machine's /proc, /sys and /dev in a root, and create empty folders."""
    for name in ("proc", "sys", "dev"):
        bind(Path("/", name), root)
    for name, mode in (("tmp", "1777"), ("run", "0755")):
        (root / name).mkdir(exist_ok=True)
        call("mount", "-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", root / name)


def make_base() -> str:
    """Create a layer that adds the files that a node needs to this machine's root. Return a description."""
    mount_root(BASE, Path("/"))
    with_kernel(BASE)
    how = install_packages()
    set_up_accounts()
    set_up_units()
    open_environment()
    call("umount", "-R", BASE)
    return how


def install_packages() -> str:
    debs, _ = carried.files()
    (BASE / "run/debs").mkdir()
    for deb in debs:
        shutil.copy(deb, BASE / "run/debs")
    policy = BASE / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    forced = "unsafe-io,depends,confdef,confold,downgrade"
    command = f"DEBIAN_FRONTEND=noninteractive dpkg --force-{forced} -i /run/debs/*.deb </dev/null"
    how = f"{len(debs)} packages installed"
    try:
        call(*in_root(BASE, "sh", "-c", command))
    except RuntimeError as error:
        call(*in_root(BASE, "sh", "-c", UNPACK))
        how = f"{len(debs)} packages unpacked, since {error}"
    policy.unlink()
    return how


def set_up_accounts() -> None:
    known = {line.partition(":")[0] for line in (BASE / "etc/passwd").read_text().splitlines()}
    for name in set(ACCOUNTS) - known:
        call(*in_root(BASE, "useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name))
    for name in USERS:
        if name not in known:
            call(*in_root(BASE, "useradd", "--create-home", "--shell", "/bin/bash", name))
        call(*in_root(BASE, "usermod", "--password", "*", name))
    write(BASE / "etc/sudoers.d/admin", "admin ALL=(ALL) NOPASSWD: ALL\n", 0o440)
    call(*in_root(BASE, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/run/key"))
    write(PLACE / "id_ed25519", (BASE / "run/key").read_text(), 0o600)
    write(BASE / "home/admin/.ssh/authorized_keys", (BASE / "run/key.pub").read_text(), 0o644)
    call(*in_root(BASE, "chown", "--recursive", "admin:", "/home/admin"))


def set_up_units() -> None:
    etc = BASE / "etc"
    for key in etc.glob("ssh/ssh_host_*"):
        key.unlink()
    write(etc / "ssh/sshd_config.d/00-two-nodes.conf", SSHD)
    write(etc / "systemd/logind.conf.d/90-two-nodes.conf", "[Login]\nRemoveIPC=no\n")
    for name in ("fstab", "machine-id", "resolv.conf"):
        (etc / name).unlink(missing_ok=True)
        (etc / name).touch()
    (BASE / "var/lib/dbus/machine-id").unlink(missing_ok=True)
    units = etc / "systemd/system"
    write(units / "two-nodes.target", TARGET)
    for name in MASKED.split():
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
    (units / "default.target").unlink(missing_ok=True)
    (units / "default.target").symlink_to("two-nodes.target")
    # Ubuntu's sshd uses socket activation. Here it is a service and ready with the node.
    for name in (
        "ssh.service.requires",
        *(f"{one}.target.wants" for one in ("default", "multi-user", "timers", "sockets")),
    ):
        shutil.rmtree(units / name, ignore_errors=True)


def open_environment() -> None:
    """Give users on a node access to the machine's PyTorch, and give units access to the driver libraries and
    nvidia-smi."""
    torchrun = machine.torchrun()
    for path in (torchrun, torchrun.with_name("python3").resolve()):
        for parent in list(path.parents)[:-1]:
            there = BASE / parent.relative_to("/")
            if there.is_dir() and not there.stat().st_mode & 0o001:
                there.chmod(there.stat().st_mode | 0o001)
    libraries = machine.driver_libraries()
    if libraries:
        write(BASE / "etc/ld.so.conf.d/00-two-nodes.conf", f"{libraries}\n")
        call(*in_root(BASE, "ldconfig"))
    smi = shutil.which("nvidia-smi") or "/usr/local/nvidia/bin/nvidia-smi"
    if Path(smi).exists() and not (BASE / "usr/bin/nvidia-smi").exists():
        (BASE / "usr/bin/nvidia-smi").symlink_to(smi)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=mode)
    path.write_text(text)
    path.chmod(mode)


def make_controller(address: dict[str, str]) -> str:
    """Create the root for Ansible, which runs in this machine's namespaces, and the inventory."""
    tree = Path.cwd()
    mount_root(CONTROLLER, PLACE / "base/upper", Path("/"))
    with_kernel(CONTROLLER)
    bind(PLACE, CONTROLLER)
    bind(tree, CONTROLLER)
    _, wheels = carried.files()
    for wheel in wheels:
        zipfile.ZipFile(wheel).extractall(PLACE / "site")
    for name, tool in (("ansible-playbook", "playbook"), ("ansible", "adhoc")):
        code = (
            f'import sys\nsys.path.insert(0, "{PLACE}/site")\nfrom ansible.cli.{tool} import main\nsys.exit(main())\n'
        )
        write(PLACE / "bin" / name, f"#!/usr/bin/python3\n{code}", 0o755)
    hosts = "".join(f"    {node}: {{ansible_host: {at}}}\n" for node, at in address.items())
    write(PLACE / "inventory/hosts.yml", f"---\ngpu_nodes:\n  hosts:\n{hosts}")
    checked = (
        f"-o UserKnownHostsFile={PLACE}/known_hosts -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes"
    )
    variables = {
        "ansible_user": "admin",
        "ansible_become": "true",
        "ansible_ssh_private_key_file": f"{PLACE}/id_ed25519",
        "ansible_ssh_common_args": f"{checked} -o IdentitiesOnly=yes",
        "cluster_name": "two-nodes",
        "cluster_torchrun": str(machine.torchrun()),
        "cluster_torch_version": f'"{machine.torch_version()}"',
        "cluster_gpus": str(machine.gpus()),
    }
    lines = "".join(f"{name}: {value}\n" for name, value in variables.items())
    write(PLACE / "inventory/group_vars/all.yml", f"---\n{lines}")
    return call(*controller("ansible-playbook", "--version")).splitlines()[0]


def controller(*argv: str) -> list[str]:
    """Return the argv that runs a command in the working tree inside the controller's root."""
    tree = Path.cwd()
    words = [f"ANSIBLE_CONFIG={tree}/ansible.cfg", "HOME=/root", "LC_ALL=C.UTF-8", "ANSIBLE_LOCAL_TEMP=/tmp/.ansible"]
    return in_root(CONTROLLER, "env", f"--chdir={tree}", *words, *argv)
