#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Mirrors, proxies, certificates and the offline folder of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_sources
short_description: Mirrors, proxies, certificates and the offline folder that a node takes packages with
description:
  - Points the distribution's own entries, in its own source files, at a mirror. Only their addresses change. What they
    were is kept beside each file, and given back when no mirror is requested any more.
  - Tells apt of the proxies, adds certificates to those that the system trusts, and lets apt know of one folder alone.
  - What is not requested and was written by an earlier run is taken back. The sources of others, keys, and what apt
    demands of signatures are never touched.
  - After a change apt reads the distribution's lists. When it cannot, the node is left as it was, and the module fails.
version_added: "0.1.0"
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  mode:
    description:
      - With V(manage) what differs is changed.
      - With V(verify) the module fails when anything differs.
    type: str
    choices: [manage, verify]
    default: manage
  table:
    description: The mirrors, as in C(roles/package_sources/files/mirrors.yml). Filled in by the action plugin.
    type: dict
  mirror:
    description: Name of the mirror. As all that follow, by default what the inventory requests.
    type: str
  mirror_urls:
    description: Addresses of the mirror V(custom).
    type: dict
  http_proxy:
    description: Proxy for http.
    type: str
  https_proxy:
    description: Proxy for https.
    type: str
  no_proxy:
    description: Hosts that are reached without it. The nodes' own addresses are added.
    type: list
    elements: str
  certificates:
    description: Certificates in PEM to be trusted besides the system's.
    type: list
    elements: str
  offline_dir:
    description: Folder on the node with C(debs/). Without any, apt asks its sources.
    type: str
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {support: full, platforms: debian}
"""

EXAMPLES = r"""
- name: Set the node's package sources up as the inventory requests
  package_sources:
    node: "{{ inventory_hostname }}"
  become: true
"""

RETURN = r"""
differences:
  description: Every difference, one sentence each.
  returned: success
  type: list
  elements: str
notes:
  description: What the mirror lacks, and where it is taken from instead.
  returned: success
  type: list
  elements: str
left_out:
  description: What cannot be done yet, and why.
  returned: success
  type: list
  elements: dict
"""

import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.packages import mirrors
from ansible.module_utils.muster.packages import sources as domain
from ansible.module_utils.muster.packages.entries import STOCK_FILES
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster_node.tools import files
from ansible.module_utils.muster_node.tools.run import Answer
from ansible.module_utils.muster_node.tools.run import run as command

if TYPE_CHECKING:
    from collections.abc import Iterable

BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
# While a mirror is being filled, lists and what they speak of are out of step for a minute or two.
ATTEMPTS, PAUSE = 3, 20
OUT_OF_STEP = ("Hash Sum mismatch", "unexpected size", "Mirror sync in progress")
# apt waits for the lock of packages where an option says so, and never for that of lists.
LOCKED, LOCK_SECONDS = "Could not get lock", 300
CLOUD_INIT_SECONDS = 600


class RefusedError(Exception):
    """Why the node is left as it was."""


def run(*argv: str) -> Answer:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    return command(*argv, seconds=None, env=environment)


def read(paths: Iterable[str | Path]) -> dict[str, str]:
    found = {}
    for path in map(Path, paths):
        if path.is_file():
            found[str(path)] = files.read(str(path), links=True).decode("utf-8", "surrogateescape")
    return found


def system() -> str:
    """The node's system as `ubuntu-24.04`."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', files.text("/etc/os-release", links=True) or "", re.MULTILINE))
    return f"{release.get('ID', '')}-{release.get('VERSION_ID', '')}"


def proxies_in_force() -> dict[str, str]:
    shown = run("apt-config", "dump", "--format", "%F=%v%n", "Acquire").text
    return dict(line.split("=", 1) for line in shown.splitlines() if line.startswith(domain.PROXY_KEYS) and "=" in line)


def offline_trouble(folder: str) -> str:
    """What is wrong with the offline folder. apt takes its packages as they are, so it must be root's alone."""
    debs = Path(folder) / "debs"
    if not debs.is_dir():
        return f"there is no folder {debs} (cluster_offline_dir): see docs/mirrors.md for how to fill it"
    indexes = [path for path in (debs / "Packages", debs / "Packages.gz", debs / "Packages.xz") if path.exists()]
    if not indexes:
        return f"{debs} has no index, a file Packages: docs/mirrors.md says how to make it"
    for path in (Path(folder), debs, *indexes):
        there = path.stat()
        if there.st_uid != 0 or there.st_mode & 0o022:
            return (
                f"{path} can be changed by others than root, and what lies there is installed as root. "
                f"Type: chown -R root: {folder} && chmod -R go-w {folder}"
            )
    return ""


def observe(request: domain.Request) -> domain.Seen:
    stock = [path + end for path in STOCK_FILES for end in ("", domain.SAVED)]
    own = [domain.PROXY_FILE, domain.OFFLINE_FILE, domain.OFFLINE_SOURCES]
    local = [path for path in Path(domain.CERTIFICATES).glob("muster*.crt") if domain.is_ours(path.name)]
    # A link whose certificate is gone is what is left of a run that was cut off.
    links = [path.name for path in Path(domain.CERTIFICATE_LINKS).glob("muster*.pem") if domain.is_ours(path.name)]
    keeps_bundle = shutil.which("update-ca-certificates") is not None
    return domain.Seen(
        files=read([*stock, *own, *local]),
        links=tuple(sorted(links)),
        bundle=read([BUNDLE]).get(str(BUNDLE), "") if keeps_bundle else None,
        proxies=proxies_in_force() if request.http_proxy or request.https_proxy else {},
        offline=offline_trouble(request.offline) if request.offline else "",
    )


def wait_for_cloud_init() -> bool:
    """On a machine that has just been made, it writes source files as well. Return whether it was there."""
    if not Path("/run/cloud-init").exists() or shutil.which("cloud-init") is None:
        return False
    command("cloud-init", "status", "--wait", seconds=CLOUD_INIT_SECONDS)
    return True


def trust(plan: domain.Plan) -> None:
    if not plan.bundle:
        return
    done = run("update-ca-certificates")
    if done.why:
        raise RefusedError(f"update-ca-certificates failed: {done.said or done.why}")
    if plan.links:
        # Those by which programs find certificates by their hash; they lead to ours, which go last.
        gone = {Path(link).name for link in plan.links}
        for entry in Path(domain.CERTIFICATE_LINKS).iterdir():
            if entry.is_symlink() and str(entry.readlink()) in gone:
                entry.unlink()
        for link in plan.links:
            Path(link).unlink(missing_ok=True)


def have_lists_read(request: domain.Request) -> None:
    """Have apt read the lists of the distribution alone: what others have written may be broken for long."""
    paths = [domain.OFFLINE_SOURCES] if request.offline else [path for path in STOCK_FILES if Path(path).is_file()]
    for path in paths:
        argv = ["apt-get", "update", "--quiet", "--option=APT::Get::List-Cleanup=0", "--option=DPkg::Lock::Timeout=300"]
        argv += [f"--option=Dir::Etc::sourcelist={path}", "--option=Dir::Etc::sourceparts=/dev/null"]
        for attempt in range(ATTEMPTS):
            done = run(*argv)
            deadline = time.monotonic() + LOCK_SECONDS
            while LOCKED in done.aside and time.monotonic() < deadline:
                time.sleep(5)
                done = run(*argv)
            # What cannot be fetched is a warning to apt, and ends its work with 0.
            wrong = [line for line in done.aside.splitlines() if line.startswith(("E:", "W: Failed", "Err:"))]
            if not wrong:
                break
            if attempt + 1 == ATTEMPTS or not any(sign in line for line in wrong for sign in OUT_OF_STEP):
                said = " ".join(line[3:].strip() for line in wrong[:2])
                raise RefusedError(
                    f"with these settings apt cannot read the lists of {path}, so the node was left as it was "
                    f"(apt says: {said}). Look at cluster_mirror, the proxies and cluster_extra_ca: docs/mirrors.md"
                )
            time.sleep(PAUSE)


def apply(plan: domain.Plan, request: domain.Request, seen: domain.Seen) -> None:
    try:
        for path, content in plan.write.items():
            files.replace(path, content.encode("utf-8", "surrogateescape"), mode=0o644, keep=True, parents=True)
        certificates = [path for path in plan.remove if path.startswith(domain.CERTIFICATES)]
        for path in certificates:
            Path(path).unlink(missing_ok=True)
        trust(plan)
        # The copies of source files go last: they are what a run that is cut off is finished by.
        for path in plan.remove:
            if path not in certificates and not path.endswith(domain.SAVED):
                Path(path).unlink(missing_ok=True)
        if plan.lists and (
            request.archive or request.security or request.http_proxy or request.https_proxy or request.offline
        ):
            have_lists_read(request)
    except BaseException:
        for path in (*plan.write, *plan.remove):
            if path in seen.files:
                files.replace(
                    path, seen.files[path].encode("utf-8", "surrogateescape"), mode=0o644, keep=True, parents=True
                )
            else:
                Path(path).unlink(missing_ok=True)
        if plan.bundle:
            run("update-ca-certificates")
        raise
    for path in plan.remove:
        Path(path).unlink(missing_ok=True)


def diff_of(plan: domain.Plan, seen: domain.Seen) -> list[dict[str, str]]:
    after = {**dict.fromkeys(plan.remove, ""), **plan.write}
    return [
        {"before_header": path, "after_header": path, "before": seen.files.get(path, ""), "after": text}
        for path, text in after.items()
        if not path.endswith(domain.SAVED)
    ]


def main() -> None:
    several = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
            "table": {"type": "dict", "required": True},
            "mirror": {"type": "str", "default": mirrors.UPSTREAM},
            "mirror_urls": {"type": "dict", "default": {}},
            "http_proxy": {"type": "str", "default": ""},
            "https_proxy": {"type": "str", "default": ""},
            "no_proxy": several,
            "certificates": several,
            "offline_dir": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given = module.params
    name = system()
    asked = mirrors.Request(given["mirror"], given["mirror_urls"], given["offline_dir"])
    try:
        places = mirrors.resolve(given["table"], asked, name, os.uname().machine)
    except mirrors.MirrorError as error:
        module.fail_json(msg=f"{given['node']}: {error}.")
    request = domain.Request(
        distribution=name.partition("-")[0],
        archive=places.archive.uri,
        security=places.security.uri,
        http_proxy=given["http_proxy"],
        https_proxy=given["https_proxy"],
        no_proxy=tuple(given["no_proxy"]),
        certificates=tuple(given["certificates"]),
        offline=given["offline_dir"].rstrip("/"),
    )
    seen = observe(request)
    plan = domain.make_plan(request, seen)
    verifies = given["mode"] == "verify"
    if plan.needed and not module.check_mode and not verifies and wait_for_cloud_init():
        seen = observe(request)
        plan = domain.make_plan(request, seen)
    wrong = plan.problems + (plan.differences if verifies else [])
    if wrong:
        command = playbook("site.yml", tags="baseline", package_sources_mode="manage")
        fix = "" if plan.problems else f". To change it, run {command}"
        module.fail_json(msg=f"{given['node']}: {'; '.join(wrong)}{fix}.")
    if plan.needed and not module.check_mode:
        try:
            apply(plan, request, seen)
        except RefusedError as refused:
            module.fail_json(msg=f"{given['node']}: {refused}.")
    module.exit_json(
        changed=plan.needed,
        differences=plan.differences,
        notes=list(places.notes),
        left_out=plan.left_out,
        diff=diff_of(plan, seen),
    )


if __name__ == "__main__":
    main()
