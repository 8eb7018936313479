"""Bare machines of one release on a separate network. They have only systemd, sshd, sudo with a password, and Python.

The machines are podman containers like the sandbox machines, but the project's roles have not changed them.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import secrets
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from machines import Machine
from muster.sandbox import plan as sandbox
from muster_controller.sandbox import bases
from paths import NAME, ROOT
from waiting import PATIENCE, until

PREFIX = os.environ.get("MUSTER_SANDBOX_PREFIX", "10.203.77")
MIRROR = os.environ.get("MUSTER_UBUNTU_MIRROR", "")
NODES = {"node1": f"{PREFIX}.11", "node2": f"{PREFIX}.12"}
USER = "engineer"
PACKAGES = ("systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "sudo", "python3", "iproute2", "iputils-ping")
NODE_FILES = ROOT / "roles/sandbox/files/node"
CERTIFICATES = Path("/usr/local/share/ca-certificates")
# Path of pip's CA certificates on the nodes, as in the sandbox.
NODE_CA = "/etc/controller-ca.crt"
BOOT = 120.0  # seconds until a hanging boot is given up
WATCHES = 16  # inotify instances of two machines, about six each, see docs/dev/testing.md
FULL = "two machines have room on this one: they need inotify (fs.inotify.max_user_instances), which others use up"


def podman(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["podman", *arguments], check=False, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"podman {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def pip_variables() -> tuple[dict[str, object], list[str]]:
    """Return variables and mounts that pass on this machine's pip settings, without local wheel folders."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    settings = sandbox.pip_settings(listing)
    variables, _ = sandbox.node_pip_variables(settings, NODE_CA)
    variables.pop("pytorch_find_links", None)
    mounts = [f"{settings['cert']}:{NODE_CA}:ro"] if "pytorch_extra_ca" in variables else []
    return variables, mounts


def room_for(instances: int) -> bool:
    """Return whether this number of inotify instances is free. Without a free instance, systemd hangs during boot."""
    made = [int(ctypes.CDLL(None).inotify_init()) for _ in range(instances)]
    for descriptor in made:
        if descriptor >= 0:
            os.close(descriptor)
    return min(made) >= 0


ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class NoBootError(Exception):
    """Raised if the release does not boot on this machine. The message is from the release's init."""


@dataclass
class Bare:
    """The machines for a row of the platforms table. folder: contains the row's files."""

    row: str
    folder: Path

    @property
    def label(self) -> str:
        """Return the name of the network, which is also the prefix of the container names."""
        return f"{NAME}-{self.row}"

    @property
    def image(self) -> str:
        return f"localhost/{self.label}"

    @property
    def password(self) -> str:
        """Return the administrator's password, generated on first use."""
        file = self.folder / "password"
        if not file.exists():
            file.write_text(secrets.token_hex(12))
            file.chmod(0o600)
        return file.read_text()

    @property
    def machines(self) -> list[Machine]:
        return [Machine(name, f"{self.label}-{name}", address, self.folder) for name, address in NODES.items()]

    def build(self) -> None:
        """Bootstrap the release, verify all signatures, and build an image from the result."""
        build = self.folder / "image"
        shutil.rmtree(build, ignore_errors=True)
        context = build / "context"
        (context / "certificates").mkdir(parents=True)
        for source in (Path(__file__).parent / "image/Containerfile", NODE_FILES / "entry"):
            shutil.copy(source, context)
        for source in CERTIFICATES.glob("*.crt"):
            shutil.copy(source, context / "certificates")
        dump = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True).stdout
        (context / "apt.conf").write_text(sandbox.apt_settings(dump))
        base = bases.bootstrap(build, self.row, MIRROR, PACKAGES)
        podman("import", "--quiet", str(base), f"{self.image}-base")
        options = [
            "--runtime=runc",
            "--network=host",
            "--format=docker",
            "--layers=false",
            "--force-rm",
            "--pull=never",
        ]
        podman("build", *options, f"--build-arg=BASE={self.image}-base", f"--tag={self.image}", str(context))
        podman("rmi", f"{self.image}-base")
        shutil.rmtree(build)

    def up(self) -> None:
        """Create the network and the machines, and wait until the machines have booted."""
        # Other users of inotify finish eventually. A release that does not boot is another problem.
        until(lambda: room_for(WATCHES), PATIENCE, FULL)
        podman("network", "create", "--disable-dns", f"--subnet={PREFIX}.0/24", self.label)
        limits = sandbox.ulimits(
            {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1] for name in ("nofile", "nproc")}
        )
        options = [f"--ulimit={limit}" for limit in limits]
        options += [f"--volume={mount}" for mount in pip_variables()[1]]
        options += [
            f"--env={name}={value}"
            for name, value in os.environ.items()
            if name.lower() in ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy") and value
        ]
        for machine in self.machines:
            podman(
                *(
                    "--runtime",
                    "runc",
                    "run",
                    "--detach",
                    "--tty",
                    f"--name={machine.container}",
                    f"--hostname={machine.name}",
                ),
                *(f"--network={self.label}", f"--ip={machine.address}", "--systemd=always", "--no-hosts"),
                *("--http-proxy=false", "--restart=always", "--security-opt=apparmor=unconfined"),
                *("--cap-add=SYS_ADMIN,NET_ADMIN,NET_RAW,SYS_PTRACE", *options, self.image),
            )
        for machine in self.machines:
            self._wait_for_boot(machine)
            subprocess.run(
                ["podman", "exec", "--interactive", machine.container, "chpasswd"],
                input=f"{USER}:{self.password}",
                check=True,
                capture_output=True,
                text=True,
            )

    def _wait_for_boot(self, machine: Machine) -> None:
        deadline = time.monotonic() + BOOT
        state = ""
        while time.monotonic() < deadline:
            state = machine.inside("systemctl", "is-system-running", check=False).stdout.strip()
            if state in ("running", "degraded"):
                return
            time.sleep(0.5)
        said = subprocess.run(
            ["podman", "logs", "--tail=20", machine.container], check=False, capture_output=True, text=True
        )
        plain = ESCAPES.sub("", said.stdout + said.stderr)
        lines = [line.strip() for line in plain.splitlines() if line.strip()]
        raise NoBootError(
            f"not booted in {BOOT:.0f} s ({state or 'its init does not answer'}): {' / '.join(lines[-3:])[-300:]}"
        )

    def down(self) -> None:
        """Remove the machines, the network and the images, as far as they exist."""
        for machine in self.machines:
            podman("rm", "--force", "--time=0", "--ignore", machine.container)
        podman("network", "rm", "--force", self.label, check=False)
        for image in (self.image, f"{self.image}-base"):
            podman("rmi", "--force", "--ignore", image, check=False)

    def versions(self) -> dict[str, str]:
        """Return the versions that the first machine reports."""
        first = self.machines[0]
        release = dict(
            line.partition("=")[::2]
            for line in first.inside("cat", "/etc/os-release").stdout.splitlines()
            if "=" in line
        )
        torch = "/opt/muster/pytorch/current/bin/python"
        asked = "import json, sys, torch; print(json.dumps([sys.version.split()[0], torch.__version__]))"
        python, installed = json.loads(first.inside(torch, "-c", asked).stdout)
        return {
            "system": release["PRETTY_NAME"].strip('"'),
            "python": python,
            "systemd": first.inside("systemctl", "--version").stdout.split()[1],
            "torch": installed,
            "kernel": os.uname().release,
        }
