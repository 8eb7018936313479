"""What drift finds. All of it is looked at on every node; what is as it should be is a pass."""

from __future__ import annotations

from ..verdict.check import Check, Seen
from ..verdict.commands import playbook

REPAIR = playbook("playbooks/drift.yml", repair="true")
ACCEPT = playbook("playbooks/drift.yml", accept="true")
PUT_BACK = "Have what the inventory wants put back on this node alone"
TAKE_OVER = "If that is meant, take it as what is installed from now on"
ASKED = "what a step of site.yml would do in check mode"
RECORDED = "what is there, and the record that the last run of the step pytorch left (/var/lib/muster/installed.json)"


def wanted(identity: str, what: str, seen: Seen = "sandbox") -> Check:
    return Check(
        identity,
        reads=ASKED,
        fires=f"fail: {what}",
        fix=PUT_BACK,
        command=REPAIR,
        seen=seen,
    )


def recorded(identity: str, fires: str, seen: Seen = "stand-in") -> Check:
    return Check(identity, reads=RECORDED, fires=fires, fix=TAKE_OVER, command=ACCEPT, seen=seen)


FILE = wanted("drift.file", "a file that Muster wrote is missing, or has other content, another owner or mode")
PACKAGE = wanted("drift.package", "a package that the inventory wants is missing, or has another version than it wants")
SYSCTL = wanted("drift.sysctl", "a kernel setting in force is another one")
UNIT = wanted("drift.unit", "a unit is not enabled or does not run")
NAMES = wanted("drift.names", "the hosts file does not lead each node's name to its address")
SSH = wanted("drift.ssh", "a key, a line of known_hosts or authorized_keys, or a setting of sshd is another one")
FIREWALL = wanted("drift.firewall", "a rule of Muster's is missing, or one that it took away is back")
MTU = wanted("drift.mtu", "the training interface has another MTU", "stand-in")
SOURCES = wanted("drift.sources", "mirrors, proxies, certificates or repositories are other ones", "stand-in")
DRIVER = wanted("drift.driver", "the driver is not what the inventory comes to", "stand-in")
STACK = wanted("drift.stack", "another part of the GPU stack differs", "stand-in")
ENVIRONMENT = wanted("drift.environment", "the environment of PyTorch is not what the lock says")
USERS = wanted("drift.users", "what people need who launch as themselves is missing", "stand-in")
ACCOUNT = Check(
    "drift.account",
    reads=ASKED,
    fires="fail: the training user is missing, or has rights that training code must not have",
    fix="It is the site's own account, which Muster never alters: take the rights away",
    seen="sandbox",
)
REFUSED = Check(
    "drift.refused",
    reads=ASKED,
    fires="fail: a step of site.yml would refuse the node",
    fix="Fix by hand what the step says",
    seen="stand-in",
)
UNREACHABLE = Check(
    "drift.unreachable",
    reads="whether the node answers",
    fires="unknown: it does not, or not all of it could be looked at",
    fix="Look at the node, and run this again",
    seen="sandbox",
)

KERNEL = recorded("drift.kernel", "fail: another kernel runs than when the node was last installed")
REBOOT = recorded("drift.reboot", "warn: the node was restarted since it was last installed")
LOADED = recorded("drift.driver_loaded", "fail: the loaded driver of NVIDIA's has another version")
GPU = recorded("drift.gpu", "fail: a GPU is gone, or another one is there")
FIRMWARE = recorded("drift.firmware", "fail: a BIOS, VBIOS or an adapter's firmware has another version")
VERSION = recorded(
    "drift.version",
    "fail: a package of Muster's has another version, is gone or is new, and no run of Muster did that; warn:"
    " unattended upgrades did",
    "sandbox",
)
CONTENT = Check(
    "drift.content",
    reads=RECORDED,
    fires="fail: files of the environment were changed on the disk, and no run of Muster did that",
    fix="Have the environment built anew beside it from the lock",
    command=REPAIR,
    seen="sandbox",
)

OF_THE_INVENTORY = (
    *(FILE, PACKAGE, SYSCTL, UNIT, NAMES, SSH, FIREWALL, MTU, SOURCES, DRIVER, STACK, ENVIRONMENT, USERS, ACCOUNT),
    REFUSED,
)
OF_THE_RECORD = (KERNEL, REBOOT, LOADED, GPU, FIRMWARE, VERSION, CONTENT)
CHECKS = (*OF_THE_INVENTORY, UNREACHABLE, *OF_THE_RECORD)
