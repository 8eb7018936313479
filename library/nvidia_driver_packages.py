#!/usr/bin/python
"""Installs all packages of NVIDIA's driver at one version, after a simulation with apt."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_packages
short_description: Install all packages of the NVIDIA driver at one version
version_added: "0.1.0"
description:
  - Simulates the installation first (C(apt-get --simulate)). If apt would remove a package that is not part of the
    driver, or if driver packages would have different versions, the module fails without changes. Otherwise, it applies
    these changes.
  - Installs only versions from the requested source, and removes driver packages that this source does not provide.
  - Also updates installed packages without a branch in their name (C(nvidia-persistenced), C(nvidia-modprobe)) and
    removes packages of other branches. Removes no other package and installs no recommended package.
  - The package lists must be up to date, and the pinning package must be installed.
options:
  node: {description: "Name of the node, used in messages.", type: str, required: true}
  packages:
    description: Packages to install.
    type: list
    elements: str
    required: true
  optional:
    description: Packages to install if they are available.
    type: list
    elements: str
    default: []
  pins:
    description: Names of the pinning packages, which must not be removed.
    type: list
    elements: str
    default: []
  source:
    description: Source of the driver.
    type: str
    choices: [nvidia, ubuntu, debian]
    required: true
  branch: {description: Branch of the driver., type: int, required: true}
  version:
    description: Version of all driver packages. If empty, apt selects a version of the branch.
    type: str
    default: ""
  reinstall:
    description: Whether to reinstall the packages, which is necessary if another program has removed their files.
    type: bool
    default: false
  exact:
    description: >-
      Whether exactly O(version) is required. If false, a newer version is installed when O(version) is no longer
      available.
    type: bool
    default: false
extends_documentation_fragment: [role_options.debian, action_common_attributes]
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Install the driver
  nvidia_driver_packages:
    node: "{{ inventory_hostname }}"
    packages: [linux-headers-generic, nvidia-open-580, nvidia-persistenced]
    source: nvidia
    branch: 580
"""

RETURN = r"""
asked: {description: Packages passed to apt-get install., returned: success, type: list, elements: str}
"""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.inspect.stack import packages_of
from ansible.module_utils.muster.nvidia_driver.apt import (
    AptSimulation,
    PackageNeed,
    apt_words,
    complaints,
    fix_with,
    newest_common,
    offers,
    parse,
    refusals,
    stragglers,
    unmet,
)
from ansible.module_utils.muster_node.looks.stack import show_packages
from ansible.module_utils.muster_node.tools.run import CommandResult as Said
from ansible.module_utils.muster_node.tools.run import run as command

if TYPE_CHECKING:
    from collections.abc import Collection

APT = (
    *("apt-get", "--yes", "--no-install-recommends", "--allow-downgrades", "--fix-broken"),
    *("-o", "DPkg::Lock::Timeout=300"),
    *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
)
APT_CACHE_SECONDS = 60
# needrestart would restart services that use replaced files, including launches.
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "LC_ALL": "C.UTF-8"}


def apt_get(*words: str) -> Said:
    return command(*APT, *words, seconds=None, env={**os.environ, **ENVIRONMENT})


def apt_cache(*words: str) -> str:
    text: str = command("apt-cache", *words, seconds=APT_CACHE_SECONDS).text
    return text


def ask(need: PackageNeed, late: Collection[str] = ()) -> tuple[list[str], AptSimulation]:
    words = apt_words(need, late)
    done = apt_get("--simulate", "install", *words)
    answer = parse(done.text, done.aside, done.code)
    behind = [] if late or answer.errors else stragglers(need, answer)
    return ask(need, behind) if behind else (words, answer)


def run(module: AnsibleModule) -> dict[str, Any]:
    given = module.params
    there = packages_of(show_packages().text)
    asked = dict.fromkeys([*given["packages"], *given["optional"], *there])
    offered = offers(apt_cache("policy"), apt_cache("policy", *asked), given["source"])
    need = PackageNeed(
        names=(*given["packages"], *(name for name in given["optional"] if name in offered)),
        source=given["source"],
        branch=given["branch"],
        installed={name: package["version"] for name, package in there.items()},
        offered=offered,
        pins=tuple(given["pins"]),
        keep=given["version"],
        again=given["reinstall"],
    )
    if unmet(need) and not given["exact"]:
        # Distribution archives contain only the newest version of a branch.
        need = replace(need, keep="")
    need = need if need.keep else replace(need, keep=newest_common(need))
    if unmet(need):
        requested = need.keep or f"driver {need.branch}"
        where = f"{need.source} does not offer {requested} for this system: {'; '.join(unmet(need))}"
        module.fail_json(msg=f"{given['node']}: {where}. Nothing was changed.")
    words, answer = ask(need)
    wrong = [f"apt cannot install {' '.join(words)}: {'; '.join(answer.errors)}"] if answer.errors else []
    wrong = wrong or refusals(need, answer)
    if wrong:
        module.fail_json(msg=f"{given['node']}: {'. '.join(wrong)}. Nothing was changed.")
    if not answer.does_nothing and not module.check_mode:
        done = apt_get("install", *words)
        if done.code:
            said = complaints(done.text + done.aside)
            module.fail_json(
                msg=f"{given['node']}: apt-get failed with exit code {done.code} while it installed the driver. "
                f"{fix_with(said)}. Output:\n{said}"
            )
    before = {name: need.installed[name] for name in (*answer.installs, *answer.removes) if name in need.installed}
    return {
        "changed": not answer.does_nothing,
        "asked": [word for word in words if not word.startswith("--")],
        "diff": {"before": lines(before), "after": lines(answer.installs)},
    }


def lines(versions: Any) -> str:
    return "".join(f"{name} {version}\n" for name, version in sorted(versions.items()))


def main() -> None:
    module = AnsibleModule(
        {
            "node": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "required": True},
            "optional": {"type": "list", "elements": "str", "default": []},
            "pins": {"type": "list", "elements": "str", "default": []},
            "source": {"type": "str", "choices": ["nvidia", "ubuntu", "debian"], "required": True},
            "branch": {"type": "int", "required": True},
            "version": {"type": "str", "default": ""},
            "reinstall": {"type": "bool", "default": False},
            "exact": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    module.exit_json(**run(module))


if __name__ == "__main__":
    main()
