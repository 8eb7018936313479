#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Looks at a node and says what must change for it to be as described. It changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_plan
short_description: What must change on a node for it to be as described
description:
  - Looks at packages, files, kernel settings, units and one account of the node, all at once, and returns what differs
    from the description. It never changes anything. The tasks after it do, and only what is in its plan.
  - It looks at what is in force, not only at files. A run that was cut off between writing a file and having it read is
    finished by running again.
  - What this machine cannot do at all, such as setting the clock in a container, is left out with the reason.
version_added: "0.1.0"
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  mode:
    description:
      - With V(manage) the plan is returned.
      - With V(verify) the module fails when anything differs.
    type: str
    choices: [manage, verify]
    default: manage
  fix:
    description: What to type when something differs; the end of the message of a V(verify) that fails.
    type: str
    default: ""
  wait:
    description:
      - Seconds to wait for cloud-init to end, and for the package tools when packages are to be installed.
      - In check mode and with V(verify) nothing is waited for.
    type: int
    default: 600
  packages:
    description:
      - Packages that shall be there. An entry such as V(chrony|ntp) is content with any of them, and plans the first.
      - With a version, as in V(libnccl2=2.29.7-1+cuda13.2) or V(nvidia-open=580.159.04-*), they shall be of that one.
    type: list
    elements: str
    default: []
  held:
    description: Packages that apt shall not move by itself (C(apt-mark hold)).
    type: list
    elements: str
    default: []
  refused:
    description: Packages beside which nothing is done, each with the reason and what to do about it.
    type: dict
    default: {}
  files:
    description: Files that shall be there as given.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Path of the file., type: path, required: true}
      content: {description: All of it., type: str, required: true}
      mode: {description: Its permissions., type: str, default: "0644"}
      owner: {description: Its owner., type: str, default: root}
      group: {description: Its group., type: str, default: root}
      needs: {description: Capability of the machine without which the file is left out., type: str, default: ""}
      by_effect:
        description:
          - Whether what the file is for is looked at in itself, as in O(manager) or O(login). V(verify) goes by that,
            whichever file brought it about. The same holds for O(sysctl_file).
        type: bool
        default: false
  sysctl:
    description: Kernel settings in force, looked at below C(/proc/sys).
    type: list
    elements: dict
    default: []
    suboptions:
      key: {description: Its name., type: str, required: true}
      value: {description: Its value., type: str, required: true}
      rule:
        description:
          - With V(at_least) a higher number stays, each of several for itself. With V(contains) a list of ports keeps
            those of others.
        type: str
        choices: [equal, at_least, contains]
        default: equal
      why: {description: Why it is set; a comment in O(sysctl_file)., type: str, default: ""}
  sysctl_file:
    description: File that keeps O(sysctl) for the next boot. Its text is made here.
    type: path
    default: ""
  units:
    description: Units that shall be enabled and running.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Name of the unit with its suffix., type: str, default: ""}
      of:
        description: Instead of a name. The units by the package of O(packages) that they come with.
        type: dict
        default: {}
      enabled: {description: Whether it must start with the system., type: bool, default: true}
      active: {description: Whether it must run., type: bool, default: true}
      restart_if_older_than:
        description: Files that it reads. One that was changed after the unit was started calls for a restart.
        type: list
        elements: path
        default: []
      needs:
        description:
          - Capability of the machine without which the unit is left out; V(nvidia_driver) stands for a loaded driver.
        type: str
        default: ""
      optional: {description: Whether a machine without the unit is fine., type: bool, default: false}
  manager:
    description: Settings of systemd itself, as C(systemctl show) has them.
    type: dict
    default: {}
  login:
    description: Settings of systemd-logind, as C(loginctl show-user) has them.
    type: dict
    default: {}
  traces:
    description: Paths that other roles have written. Those that are there are returned, and are no difference.
    type: list
    elements: path
    default: []
  user:
    description: An account to create when there is none of that name. One that is there is judged, never altered.
    type: dict
    suboptions:
      name: {description: Its name., type: str, required: true}
      uid: {description: Its number. Empty for the next free one., type: str, default: ""}
      gid: {description: Number of its group. Empty for the next free one., type: str, default: ""}
      shell: {description: Its shell., type: path, default: /bin/bash}
      never_in:
        description: Groups that it must not be in.
        type: list
        elements: str
        default: []
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: posix}
"""

EXAMPLES = r"""
- name: Look what is to be done
  node_plan:
    node: "{{ inventory_hostname }}"
    packages: [chrony|ntpsec]
    units:
      - of: {chrony: chrony.service, ntpsec: ntpsec.service}
        needs: CAP_SYS_TIME
  register: look

- name: Install packages
  ansible.builtin.apt:
    name: "{{ look.plan.packages }}"
  when: look.plan.packages | length > 0
"""

RETURN = r"""
needed:
  description: Whether anything differs.
  returned: success
  type: bool
plan:
  description: What is to be done. Everything is empty when nothing is.
  returned: success
  type: dict
  contains:
    packages: {description: Packages to install., type: list, elements: str, returned: always}
    hold: {description: Packages to put on hold., type: list, elements: str, returned: always}
    configure: {description: Whether dpkg must first finish what was interrupted., type: bool, returned: always}
    folders: {description: Folders to make for the files., type: list, elements: str, returned: always}
    files: {description: Files to write, as given., type: list, elements: dict, returned: always}
    sysctl: {description: Keys to set., type: list, elements: str, returned: always}
    reexec: {description: Whether systemd must read its settings anew., type: bool, returned: always}
    units: {description: Units with what they need., type: list, elements: dict, returned: always}
    user: {description: The account to create; empty for none., type: dict, returned: always}
traces:
  description: Which of O(traces) are there.
  returned: success
  type: list
  elements: str
differences:
  description: Every difference, one sentence each.
  returned: success
  type: list
  elements: str
  sample: ["it lacks the packages chrony"]
left_out:
  description: What this machine cannot do, and why. (Ansible itself gives C(skipped) another meaning.)
  returned: success
  type: list
  elements: dict
  sample: [{"id": "chrony.service", "why": "this machine may not set its clock (it lacks CAP_SYS_TIME)"}]
"""

import contextlib
import fcntl
import grp
import os
import pwd
import struct
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.baseline import plan as domain
from ansible.module_utils.muster_node.tools import files, process
from ansible.module_utils.muster_node.tools.run import run as command

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DPKG = Path("/var/lib/dpkg")
LOCKS = (DPKG / "lock-frontend", DPKG / "lock", Path("/var/lib/apt/lists/lock"))
# The names of releases before and after cloud-init 24.3. Those that are not there are not-found, and never under way.
CLOUD_INIT = ("cloud-init-local", "cloud-init-main", "cloud-init-network", "cloud-init", "cloud-config", "cloud-final")
SYSTEMCTL_SECONDS = 30
UNIT_PROPERTIES = (
    "Id,LoadState,ActiveState,UnitFileState,Job,ExecMainStartTimestampMonotonic,ActiveEnterTimestampMonotonic"
)


class BusyError(Exception):
    """Who is at work on the node, and for how long it was waited for."""


def shaped(shape: Any, given: Mapping[str, Any]) -> Any:
    """Make one of the domain's dataclasses of an option with suboptions."""
    return shape(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def show(*argv: str) -> list[dict[str, str]]:
    """What `systemctl show` or the like prints: blocks of name=value with an empty line between them."""
    blocks = command(*argv, seconds=SYSTEMCTL_SECONDS).text.strip().split("\n\n")
    return [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks if block]


def look_at_units(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Every unit in one call, with the time of its start on the wall clock (systemd's own has whole seconds only)."""
    asked = list(dict.fromkeys(names))
    if not asked:
        return {}
    booted = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    units: dict[str, dict[str, Any]] = {}
    # A name may be an alias, and the answer carries the real one; the order is that of the question.
    for name, block in zip(asked, show("systemctl", "show", f"--property={UNIT_PROPERTIES}", *asked), strict=False):
        micros = int(block.get("ExecMainStartTimestampMonotonic") or 0) or int(
            block.get("ActiveEnterTimestampMonotonic") or 0
        )
        units[name] = {**block, "Started": booted + micros / 1e6 if micros else 0.0}
    return units


def look_at_file(path: str) -> domain.SeenFile | None:
    try:
        content = files.read(path, links=True).decode("utf-8", "replace")
        there = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError, files.RefusedError):
        return None
    try:
        group = grp.getgrgid(there.st_gid).gr_name
    except KeyError:
        group = str(there.st_gid)
    return domain.SeenFile(content, f"{there.st_mode & 0o7777:04o}", files.user_name(there.st_uid), group)


def look_at_sysctl(keys: Iterable[domain.Key]) -> tuple[dict[str, str | None], frozenset[str]]:
    values: dict[str, str | None] = {}
    read_only = set()
    for key in keys:
        values[key.key] = None
        value = files.text(key.path, links=True)
        if value is not None:
            values[key.key] = value.strip()
            # Root passes for allowed where the file itself has no right to write; a read-only mount is seen by access.
            if not (os.access(key.path, os.W_OK) and Path(key.path).stat().st_mode & 0o200):
                read_only.add(key.key)
    return values, frozenset(read_only)


def look_at_account(name: str) -> domain.SeenAccount | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    groups = []
    for gid in os.getgrouplist(name, entry.pw_gid):
        with contextlib.suppress(KeyError):
            groups.append(grp.getgrgid(gid).gr_name)
    return domain.SeenAccount(entry.pw_uid, entry.pw_gid, tuple(groups))


def look_at_owners(user: domain.Account) -> dict[str, str]:
    owners = {}
    with contextlib.suppress(KeyError, ValueError):
        owners[f"uid {user.uid}"] = pwd.getpwuid(int(user.uid)).pw_name
    with contextlib.suppress(KeyError, ValueError):
        owners[f"gid {user.gid}"] = grp.getgrgid(int(user.gid)).gr_name
    return owners


def capabilities() -> int:
    """What anything on this machine may at most do: the bounding set of its first process."""
    for line in process.read(1, "status").splitlines():
        if line.startswith("CapBnd:"):
            return int(line.split()[1], 16)
    return 0


def dpkg_interrupted() -> bool:
    """Whether dpkg left its journal behind, for which apt refuses all work."""
    with contextlib.suppress(OSError):
        return any(entry.name.isdigit() for entry in (DPKG / "updates").iterdir())
    return False


def observe(request: domain.Request) -> domain.Seen:
    installed: dict[str, str] = {}
    held: frozenset[str] = frozenset()
    if request.packages or request.held or request.refused:
        with contextlib.suppress(FileNotFoundError):
            status = files.read(str(DPKG / "status")).decode("utf-8", "replace")
            installed, held = domain.installed_packages(status)
    paths = [file.path for file in request.files] + ([request.sysctl_file] if request.sysctl_file else [])
    changed = {}
    for path in {*paths, *(path for unit in request.units for path in unit.restart_if_older_than)}:
        with contextlib.suppress(OSError):
            changed[path] = Path(path).stat().st_ctime
    values, read_only = look_at_sysctl(request.sysctl)
    asked = ",".join(request.manager)
    login = ",".join(request.login)
    return domain.Seen(
        packages=installed,
        held=held,
        files={path: look_at_file(path) for path in paths},
        changed=changed,
        now=time.time(),
        sysctl=values,
        read_only=read_only,
        units=look_at_units(filter(None, (domain.unit_name(unit, request, installed) for unit in request.units))),
        manager=(show("systemctl", "show", f"--property={asked}") or [{}])[0] if asked else {},
        login=(show("loginctl", "show-user", f"--property={login}") or [{}])[0] if login else {},
        account=look_at_account(request.user.name) if request.user else None,
        owners=look_at_owners(request.user) if request.user else {},
        capabilities=capabilities(),
        driver=Path("/sys/module/nvidia/version").exists(),
        dpkg_interrupted=dpkg_interrupted(),
    )


def cloud_init_at_work() -> str:
    if not Path("/run/cloud-init").exists():
        return ""
    units = look_at_units(f"{name}.service" for name in CLOUD_INIT)
    busy = [
        name for name, state in units.items() if state["ActiveState"] == "activating" or state.get("Job", "0") > "0"
    ]
    return f"cloud-init ({', '.join(busy)}; see: cloud-init status --long)" if busy else ""


def package_tools_at_work() -> str:
    """Who holds a lock of apt or dpkg. The kernel is asked, so a lock file that was left behind says nothing."""
    for lock in LOCKS:
        with contextlib.suppress(OSError), lock.open("rb") as stream:
            # struct flock: type, whence, start, length, pid.
            asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack("hhqqi", fcntl.fcntl(stream, fcntl.F_GETLK, asked))
            if kind != fcntl.F_UNLCK:
                name = process.read(pid, "comm").strip() or "a process"
                return f"{name} (pid {pid}), which holds {lock}"
    return ""


def wait_until_idle(seconds: float, *, packages: bool) -> None:
    begun = time.monotonic()
    while at_work := cloud_init_at_work() or (package_tools_at_work() if packages else ""):
        waited = time.monotonic() - begun
        if waited >= seconds:
            raise BusyError(f"{at_work} is still at work after {waited:.0f} s. Let it end, and run again")
        time.sleep(min(2.0, seconds - waited))


def result_of(plan: domain.Plan, seen: domain.Seen, *, changed: bool) -> dict[str, Any]:
    folders = sorted({str(Path(file.path).parent) for file in plan.files if not Path(file.path).parent.is_dir()})
    return {
        "changed": changed,
        "needed": plan.needed,
        "plan": {
            "packages": plan.packages,
            "hold": plan.hold,
            "configure": plan.configure,
            "folders": folders,
            "files": [asdict(file) for file in plan.files],
            "sysctl": plan.sysctl,
            "reexec": plan.reexec,
            "units": plan.units,
            "user": asdict(plan.user) if plan.user else {},
        },
        "differences": plan.differences,
        "left_out": plan.left_out,
        "diff": [
            {
                "before_header": "node",
                "after_header": "node",
                "before": "".join(f"{line}\n" for line in plan.before),
                "after": "".join(f"{line}\n" for line in plan.after),
            },
            *(
                {
                    "before_header": file.path,
                    "after_header": file.path,
                    "before": there.content if (there := seen.files.get(file.path)) else "",
                    "after": file.content,
                }
                for file in plan.files
            ),
        ]
        # In a real run the tasks that follow show what they do.
        if changed
        else [],
    }


def run(module: AnsibleModule) -> dict[str, Any]:
    given = module.params
    request = domain.Request(
        packages=tuple(given["packages"]),
        held=tuple(given["held"]),
        refused=given["refused"],
        files=tuple(shaped(domain.File, each) for each in given["files"]),
        sysctl=tuple(shaped(domain.Key, each) for each in given["sysctl"]),
        sysctl_file=given["sysctl_file"],
        units=tuple(shaped(domain.Unit, each) for each in given["units"]),
        manager=given["manager"],
        login=given["login"],
        user=shaped(domain.Account, given["user"]) if given["user"] else None,
    )
    acts = given["mode"] == "manage" and not module.check_mode
    if acts:
        wait_until_idle(given["wait"], packages=False)
    seen = observe(request)
    plan = domain.make_plan(request, seen, verifies=given["mode"] == "verify")
    wrong = plan.problems + (plan.differences if given["mode"] == "verify" else [])
    if wrong:
        fix = f". {given['fix']}" if given["fix"] and not plan.problems else ""
        module.fail_json(msg=f"{given['node']}: {'; '.join(wrong)}{fix}.", left_out=plan.left_out)
    if acts and plan.packages:
        wait_until_idle(given["wait"], packages=True)
    # A link that leads nowhere is a trace as well.
    traces = [path for path in given["traces"] if os.path.lexists(path)]
    return {**result_of(plan, seen, changed=module.check_mode and plan.needed), "traces": traces}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
            "fix": {"type": "str", "default": ""},
            "wait": {"type": "int", "default": 600},
            "packages": {"type": "list", "elements": "str", "default": []},
            "held": {"type": "list", "elements": "str", "default": []},
            "refused": {"type": "dict", "default": {}},
            "files": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "content": {"type": "str", "required": True},
                    "mode": {"type": "str", "default": "0644"},
                    "owner": {"type": "str", "default": "root"},
                    "group": {"type": "str", "default": "root"},
                    "needs": {"type": "str", "default": ""},
                    "by_effect": {"type": "bool", "default": False},
                },
            },
            "sysctl": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "no_log": False,
                "options": {
                    "key": {"type": "str", "required": True, "no_log": False},
                    "value": {"type": "str", "required": True},
                    "rule": {"type": "str", "choices": ["equal", "at_least", "contains"], "default": "equal"},
                    "why": {"type": "str", "default": ""},
                },
            },
            "sysctl_file": {"type": "path", "default": ""},
            "units": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "default": ""},
                    "of": {"type": "dict", "default": {}},
                    "enabled": {"type": "bool", "default": True},
                    "active": {"type": "bool", "default": True},
                    "restart_if_older_than": {"type": "list", "elements": "path", "default": []},
                    "needs": {"type": "str", "default": ""},
                    "optional": {"type": "bool", "default": False},
                },
            },
            "manager": {"type": "dict", "default": {}},
            "login": {"type": "dict", "default": {}},
            "traces": {"type": "list", "elements": "path", "default": []},
            "user": {
                "type": "dict",
                "options": {
                    "name": {"type": "str", "required": True},
                    "uid": {"type": "str", "default": ""},
                    "gid": {"type": "str", "default": ""},
                    "shell": {"type": "path", "default": "/bin/bash"},
                    "never_in": {"type": "list", "elements": "str", "default": []},
                },
            },
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module))
    except BusyError as problem:
        module.fail_json(msg=f"{module.params['node']}: {problem}.")


if __name__ == "__main__":
    main()
