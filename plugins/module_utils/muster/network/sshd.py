"""Evaluate the effective settings of sshd for an account (`sshd -T -C user=...`), and the
algorithms that sshd offers.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..verdict.commands import shell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Settings = dict[str, list[str]]
NO_LOGIN = ("nologin", "false", "true", "sync")


@dataclass(frozen=True)
class SshdAccount:
    """An account on the node.

    locked: whether its password starts with !. expired: whether its expiry date has passed. loose: parts of the path to
    its authorized_keys that other users can write to, each with the command that fixes the permissions.
    """

    name: str
    home: str
    shell: str
    groups: tuple[str, ...] = ()
    locked: bool = False
    expired: bool = False
    loose: Mapping[str, str] | None = None


def parse(text: str) -> Settings:
    """Return the values of each keyword. `sshd -T` prints one value per line, after the keyword."""
    settings: Settings = {}
    for line in text.splitlines():
        keyword, _, value = line.strip().partition(" ")
        if keyword:
            settings.setdefault(keyword.lower(), []).append(value.strip())
    return settings


def broken(code: int, said: str) -> str:
    """Return what `sshd -T` reports about invalid settings, which would prevent the next start of sshd; "" if the
    settings are valid.

    sshd does not check the settings if its privilege separation directory is missing. With socket activation, the first
    connection creates this directory.
    """
    if code == 0 or "privilege separation directory" in said:
        return ""
    return (
        f"sshd rejects its settings, so all logins would fail after its next start: {' '.join(said.split())}."
        " Correct the settings until this command prints nothing: sudo sshd -t"
    )


def refusals(account: SshdAccount, settings: Settings) -> list[str]:
    """Return the reasons why the account cannot log in with a key, each with a fix.

    Uncertain reasons are not reported, because logins are tested later.
    """
    name = account.name
    found = []
    if account.shell.rpartition("/")[2] in NO_LOGIN:
        found.append(
            f"the shell of {name} is {account.shell}, which does not allow logins:"
            f" {shell('sudo usermod --shell /bin/bash {name}', name=name)}"
        )
    if account.expired:
        found.append(f"the account {name} has expired: {shell('sudo chage --expiredate -1 {name}', name=name)}")
    if account.locked and _is(settings, "usepam", "no"):
        command = shell("sudo usermod --password '*' {name}", name=name)
        found.append(f"{name} is locked, and sshd runs without PAM (UsePAM no): {command}")
    if _is(settings, "pubkeyauthentication", "no"):
        found.append("sshd does not accept keys (PubkeyAuthentication no): set it to yes in /etc/ssh/sshd_config")
    found += _lists(account, settings)
    found += _keys_file(account, settings)
    found += _methods(settings)
    if not _is(settings, "strictmodes", "no"):
        found += [
            f"other users can write to {path}, so sshd (StrictModes) ignores the keys of {name}: sudo {fix}"
            for path, fix in (account.loose or {}).items()
        ]
    return found


def _is(settings: Settings, keyword: str, value: str) -> bool:
    return settings.get(keyword, [""])[0].lower() == value


def _lists(account: SshdAccount, settings: Settings) -> list[str]:
    """Check AllowUsers, DenyUsers, AllowGroups and DenyGroups.

    An entry with a host may match only some of the other nodes. Such entries are left to the login test.
    """
    name = account.name
    found = []
    allowed_users = settings.get("allowusers", [])
    if allowed_users and not _matches([entry.partition("@")[0] for entry in allowed_users], [name]):
        found.append(f"sshd allows only {', '.join(allowed_users)} (AllowUsers): add {name} in /etc/ssh/sshd_config")
    if _matches([entry for entry in settings.get("denyusers", []) if "@" not in entry], [name]):
        found.append(f"sshd denies {name} (DenyUsers): remove the entry in /etc/ssh/sshd_config")
    allowed_groups = settings.get("allowgroups", [])
    if allowed_groups and not _matches(allowed_groups, account.groups):
        found.append(
            f"sshd allows only the groups {', '.join(allowed_groups)} (AllowGroups):"
            f" {shell('sudo usermod --append --groups {group} {name}', group=allowed_groups[0], name=name)}, or add a"
            f" group of {name} to AllowGroups"
        )
    if _matches(settings.get("denygroups", []), account.groups):
        found.append(f"sshd denies a group of {name} (DenyGroups {' '.join(settings['denygroups'])})")
    return found


def _matches(patterns: list[str], names: list[str] | tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _keys_file(account: SshdAccount, settings: Settings) -> list[str]:
    files = " ".join(settings.get("authorizedkeysfile", [".ssh/authorized_keys"])).split()
    wanted = f"{account.home}/.ssh/authorized_keys"
    for entry in files:
        path = entry.replace("%h", account.home).replace("%u", account.name)
        if wanted == (path if path.startswith("/") else f"{account.home}/{path}"):
            return []
    read = ", ".join(files)
    return [f"sshd reads keys from {read}, not from {wanted}: add .ssh/authorized_keys to AuthorizedKeysFile"]


def _methods(settings: Settings) -> list[str]:
    found = []
    methods = " ".join(settings.get("authenticationmethods", ["any"])).split() or ["any"]
    if not {"any", "publickey"} & set(methods):
        found.append(
            f"sshd requires more than a key (AuthenticationMethods {' '.join(methods)}): add publickey as one method"
        )
    algorithms = ",".join(settings.get("pubkeyacceptedalgorithms", ["ssh-ed25519"])).split(",")
    if "ssh-ed25519" not in algorithms:
        found.append("sshd does not accept ed25519 keys (PubkeyAcceptedAlgorithms): add ssh-ed25519")
    forced = settings.get("forcecommand", ["none"])[0]
    if forced != "none":
        found.append(f"sshd runs {forced} instead of the requested command (ForceCommand)")
    return found


def port_at(settings: Settings, address: str) -> int:
    """Return the port of sshd for connections to this address; 22 if the settings contain none."""
    for entry in settings.get("listenaddress", []):
        host, _, port = entry.rpartition(":")
        if port.isdigit() and (host.strip("[]") == address or _is_any(host.strip("[]"))):
            return int(port)
    return next((int(port) for port in settings.get("port", []) if port.isdigit()), 22)


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host in ("", "*")


def taken_away(dropin: str) -> dict[str, list[str]]:
    """Return the algorithm patterns that a settings file removes from sshd's defaults (Keyword -a,b)."""
    return {
        words[0].lower(): words[1][1:].split(",")
        for words in (line.split() for line in dropin.splitlines())
        if len(words) == 2 and words[1].startswith("-")
    }


def weak(algorithms: Mapping[str, Sequence[str]], dropin: str) -> list[str]:
    """Return the algorithms that Muster's settings file would remove."""
    return [
        name
        for keyword, patterns in taken_away(dropin).items()
        for name in algorithms.get(keyword, ())
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def algorithms_of(settings: Settings, dropin: str) -> dict[str, list[str]]:
    """Return the lists of algorithms in the effective settings."""
    return {keyword: ",".join(settings.get(keyword, [])).split(",") for keyword in taken_away(dropin)}


def pending(dropin: str, file: str | None, settings: Settings, offered: Mapping[str, Sequence[str]]) -> str:
    """Return what must be done so that sshd offers no weak algorithm: "write" the file, "reload" sshd, or "" for
    nothing.

    settings: the settings in the files. offered: the algorithms that the running sshd offers; empty if unknown.
    """
    if file != dropin:
        return "write"
    if weak(offered, dropin) and not weak(algorithms_of(settings, dropin), dropin):
        return "reload"
    return ""


def overridden(dropin: str, file: str | None, settings: Settings) -> list[str]:
    """Return weak algorithms that sshd still offers, because the site's settings take precedence over Muster's file."""
    return weak(algorithms_of(settings, dropin), dropin) if file == dropin else []


def offers_of(payload: bytes) -> dict[str, list[str]]:
    """Parse the algorithms in the first message of an sshd (SSH_MSG_KEXINIT; RFC 4253, section 7.1)."""
    if payload[:1] != b"\x14":
        raise ValueError("not a list of algorithms (SSH_MSG_KEXINIT)")
    lists = []
    place = 17
    for _ in range(6):
        length = int.from_bytes(payload[place : place + 4], "big")
        lists.append(payload[place + 4 : place + 4 + length].decode("ascii").split(","))
        place += 4 + length
    kex, host_keys, _, ciphers, _, macs = lists
    return {"kexalgorithms": kex, "hostkeyalgorithms": host_keys, "ciphers": ciphers, "macs": macs}
