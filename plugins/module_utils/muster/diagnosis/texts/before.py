"""Messages from before a launch: of drivers and packages that are installed, and of logins to the nodes."""

from __future__ import annotations

from ..evidence import Text

TEXTS = (
    Text(
        "before.module",
        r"Bad return status for module build|modpost: .*(?:undefined!|GPL-incompatible)|dkms: .*(?:fail|error)"
        r"|could not insert '?nvidia|modprobe: (?:ERROR|FATAL):.*nvidia|[Nn]vidia.*Key was rejected by service",
        "the kernel module of the driver could not be built or loaded",
        "Error! Bad return status for module build on kernel: 6.8.0-60-generic (x86_64)",
        "DKMS 3; modprobe; read, not run",
    ),
    Text(
        "before.packages",
        r"have unmet dependencies|you have held broken packages|Unable to (?:locate package|correct problems)"
        r"|dpkg: error processing|Failed to fetch https?://|Could not get lock /var/lib/(?:dpkg|apt)",
        "the package manager could not install a package",
        "The following packages have unmet dependencies:",
        "apt 2.7",
    ),
    Text(
        "before.login",
        r"Permission denied \((?:publickey|password|gssapi)|Host key verification failed|was not reachable via ssh"
        r"|REMOTE HOST IDENTIFICATION HAS CHANGED|ssh: (?:connect to host|Could not resolve hostname)"
        r"|ssh .*returned non-zero exit status 255|ssh exited with exit code 255|Too many authentication failures",
        "a login to another node by SSH failed, so that nothing was started there",
        "eva@10.20.0.14: Permission denied (publickey,password).",
        "OpenSSH 9.6; DeepSpeed: deepspeedai/DeepSpeed#4907; pdsh",
    ),
)
