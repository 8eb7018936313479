"""Changes that an administrator makes over SSH, each with a proof that the change is in effect."""

from __future__ import annotations

import base64
import io
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from machines import Machine

CURRENT = "/opt/muster/pytorch/current"
BY_HAND = "3.11.2-1+b1+byhand1"


@dataclass(frozen=True)
class Fault:
    """commands: run by the administrator. proof: a command that prints `says` while the fault is active. check, what:
    id and part of the text of the finding. how: part of the command to which the finding attributes the change.
    repaired: whether a step repairs the fault. past_sudo: runs as root in the container, without a log entry.
    """

    name: str
    node: str
    commands: tuple[str, ...]
    proof: str
    says: str
    check: str
    what: str
    how: str
    by: str | None = "admin"
    repaired: bool = True
    past_sudo: str = ""

    def put_on(self, machine: Machine) -> None:
        for command in self.commands:
            machine.ssh(command)
        if self.past_sudo:
            machine.inside("sh", "-c", self.past_sudo)
        assert self.says in machine.inside("sh", "-c", self.proof, check=False).stdout, self.name


def wheel() -> str:
    """Return a shell command that writes a wheel with one line of code."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("somebodys.py", "NAME = 'somebody'\n")
        archive.writestr("somebodys-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: somebodys\nVersion: 1.0\n")
        archive.writestr(
            "somebodys-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(
            "somebodys-1.0.dist-info/RECORD",
            "somebodys.py,,\nsomebodys-1.0.dist-info/METADATA,,\nsomebodys-1.0.dist-info/WHEEL,,\nsomebodys-1.0.dist-info/RECORD,,\n",
        )
    text = base64.b64encode(packed.getvalue()).decode()
    return f"echo {text} | base64 -d > /tmp/somebodys-1.0-py3-none-any.whl"


# A package with another version and no files. Its dependencies stay installed.
CONTROL = (
    f"Package: python3-venv\\nVersion: {BY_HAND}\\nArchitecture: amd64\\nMaintainer: nobody <nobody@example.org>\\n"
    "Depends: python3.11-venv\\nDescription: by hand\\n"
)
PACKAGE = (
    f"mkdir -p /tmp/byhand/DEBIAN && printf '{CONTROL}' > /tmp/byhand/DEBIAN/control"
    " && dpkg-deb --build /tmp/byhand /tmp/byhand.deb"
)
# The number of the rule for node2. It depends on the rules restored before.
NUMBER = "sudo ufw status numbered | sed -n 's/^. *\\([0-9]*\\)\\] .*peer node2.*/\\1/p' | head -1"

FAULTS = (
    Fault(
        "the content of a file",
        "node1",
        ("echo '# mine' | sudo tee -a /etc/needrestart/conf.d/90-muster.conf",),
        "tail -1 /etc/needrestart/conf.d/90-muster.conf",
        "# mine",
        "drift.file",
        "/etc/needrestart/conf.d/90-muster.conf has other content",
        "tee -a /etc/needrestart",
    ),
    Fault(
        "the mode of a file",
        "node1",
        ("sudo chmod 0600 /etc/apt/apt.conf.d/52muster",),
        "stat -c %a /etc/apt/apt.conf.d/52muster",
        "600",
        "drift.file",
        "/etc/apt/apt.conf.d/52muster is root:root 0600 and not root:root 0644",
        "chmod 0600 /etc/apt",
    ),
    Fault(
        "a package that is missing",
        "node1",
        ("sudo apt-get remove --yes chrony",),
        "dpkg-query -W -f '${db:Status-Abbrev}' chrony",
        "rc",
        "drift.package",
        "chrony",
        "apt-get remove --yes chrony",
    ),
    Fault(
        "a package that was upgraded by hand",
        "node1",
        (PACKAGE, "sudo dpkg --install /tmp/byhand.deb"),
        "dpkg-query -W -f '${Version}' python3-venv",
        BY_HAND,
        "drift.version",
        "the package python3-venv has a different version",
        "dpkg --install /tmp/byhand.deb",
        repaired=False,
    ),
    Fault(
        "a kernel setting",
        "node1",
        ("sudo sysctl -w net.core.somaxconn=512",),
        "cat /proc/sys/net/core/somaxconn",
        "512",
        "drift.sysctl",
        "net.core.somaxconn is 512 and not 16384",
        "sysctl -w net.core.somaxconn=512",
    ),
    Fault(
        "a unit with old settings in force",
        "node1",
        ("sudo rm /etc/systemd/logind.conf.d/90-muster.conf", "sudo systemctl restart systemd-logind.service"),
        "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager RemoveIPC",
        "b true",
        "drift.unit",
        "systemd-logind.service",
        "systemctl restart systemd-logind.service",
    ),
    Fault(
        "a line of the hosts file",
        "node1",
        ("sudo sed -i /node2$/d /etc/hosts",),
        "grep -c node2 /etc/hosts",
        "0",
        "drift.names",
        "/etc/hosts lacks",
        "sed -i /node2$/d /etc/hosts",
    ),
    Fault(
        "a line of authorized_keys",
        "node1",
        ("sudo sed -i /node2$/d /home/muster/.ssh/authorized_keys",),
        "grep -c node2$ /home/muster/.ssh/authorized_keys",
        "0",
        "drift.ssh",
        "~muster/.ssh/authorized_keys",
        "sed -i /node2$/d /home/muster/.ssh/authorized_keys",
    ),
    Fault(
        "a rule of the firewall",
        "node1",
        (f"sudo ufw --force delete $({NUMBER})",),
        "ufw status | grep -c 'peer node2'",
        "0",
        "drift.firewall",
        "peer node2",
        "ufw --force delete",
    ),
    Fault(
        "a package installed with pip",
        "node1",
        (wheel(), f"sudo {CURRENT}/bin/pip install --no-index /tmp/somebodys-1.0-py3-none-any.whl"),
        f"{CURRENT}/bin/python -c 'import somebodys; print(somebodys.NAME)'",
        "somebody",
        "drift.environment",
        "somebodys 1.0",
        "pip install --no-index",
    ),
    Fault(
        "known_hosts",
        "node2",
        ("sudo sed -i s/ssh-ed25519/ssh-ed25518/ /home/muster/.ssh/muster_known_hosts",),
        "grep -o ssh-ed25518 /home/muster/.ssh/muster_known_hosts",
        "ssh-ed25518",
        "drift.ssh",
        "~muster/.ssh/muster_known_hosts",
        "sed -i s/ssh-ed25519/ssh-ed25518/",
    ),
    Fault(
        "a file of a wheel, at the same size",
        "node2",
        (f"sudo sed -i s/runtests.py/RUNTESTS.PY/ {CURRENT}/lib/python3.11/site-packages/mpmath/tests/runtests.py",),
        f"cat {CURRENT}/lib/python3.11/site-packages/mpmath/tests/runtests.py",
        "RUNTESTS.PY",
        "drift.content",
        "mpmath was changed in the environment",
        "mpmath/tests/runtests.py",
    ),
    Fault(
        "a mode changed without sudo",
        "node1",
        (),
        "stat -c %a /etc/systemd/system.conf.d/90-muster.conf",
        "640",
        "drift.file",
        "/etc/systemd/system.conf.d/90-muster.conf is root:root 0640",
        "",
        by=None,
        past_sudo="chmod 0640 /etc/systemd/system.conf.d/90-muster.conf",
    ),
)

# The baseline rejects the node because of this fault and hides further findings, so the fault is tested alone.
RIGHTS = Fault(
    "the training user among administrators",
    "node1",
    ("sudo usermod --append --groups sudo muster",),
    "id -nG muster",
    "sudo",
    "drift.account",
    "muster is in sudo",
    "usermod --append --groups sudo muster",
    repaired=False,
)
