#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Lets apt on a node know of package repositories, each with the key that it must be signed with."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_repositories
short_description: Let apt know of package repositories, each with the key that it must be signed with
description:
  - Writes the source, the key and the preferences of each repository, and has apt read its lists.
  - A key that is fetched must have one of the fingerprints that are given, wherever it comes from. A repository that is
    not signed with it is forgotten again, so that it stands in nothing else's way on the node, and the module fails.
  - A repository that the node has already, by somebody else's entry for the same address, is used as it is.
version_added: "0.1.0"
author: The Muster authors
options:
  node:
    description: Name of the node in the inventory, for messages.
    type: str
    required: true
  repositories:
    description: The repositories.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: "Name of its files, after C(muster-).", type: str, required: true}
      uri: {description: Its address., type: str, default: ""}
      of_archive:
        description: >-
          Instead of O(repositories[].uri). Components of the distribution's own archive, wherever the node has that
          from.
        type: list
        elements: str
        default: []
      fingerprints: {description: Fingerprints that its key may have., type: list, elements: str, default: []}
      label: {description: Label that its packages carry., type: str, default: ""}
      priority: {description: "Priority of its packages; 0 leaves apt's own.", type: int, default: 0}
      key: {description: Text of its key., type: str, default: ""}
      key_urls:
        description: Where else its key is fetched from. The first that answers decides.
        type: list
        elements: str
        default: []
  environment:
    description:
      - Variables with which keys are fetched. Default, those of C(cluster_http_proxy) and C(cluster_https_proxy).
      - apt has its proxies in files of its own.
    type: dict
    default: {}
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Says which files it would write; no key is fetched.}
  diff_mode: {support: full}
  platform: {support: full, platforms: debian}
"""

EXAMPLES = r"""
- name: Add NVIDIA's repository
  apt_repositories:
    node: "{{ inventory_hostname }}"
    repositories:
      - name: nvidia
        uri: https://mirror.example.org/cuda/ubuntu2404/x86_64/
        key_urls: [https://mirror.example.org/cuda/ubuntu2404/x86_64/3bf863cc.pub]
        fingerprints: [EB693B3035CD5710E231E123A4B469963BF863CC]
"""

RETURN = r"""
changed: {description: Whether a file was written., returned: success, type: bool}
"""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.packages import repositories as domain
from ansible.module_utils.muster_node.tools import files
from ansible.module_utils.muster_node.tools.run import run as command
from ansible.module_utils.urls import open_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

APT = Path("/etc/apt")
LISTS = Path("/var/lib/apt/lists")
KEY_SECONDS = 30
# While NVIDIA publishes a release, lists and what they speak of are out of step for a minute or two.
ATTEMPTS, PAUSE = 3, 20
OUT_OF_STEP = ("Hash Sum mismatch", "unexpected size", "Mirror sync in progress")
NOT_SIGNED = (
    "NO_PUBKEY",
    "is not signed",
    "BADSIG",
    "EXPKEYSIG",
    "couldn't be verified",
    "Missing key",
    "Bad signature",
)


class RefusedError(Exception):
    """Why a repository is not used."""


def read(path: str) -> str:
    return files.text(path, links=True) or ""


def entries() -> Iterator[domain.Source]:
    for path in (APT / "sources.list", *sorted((APT / "sources.list.d").glob("*"))):
        if path.suffix in (".list", ".sources"):
            yield from domain.sources(str(path), read(str(path)))


def repository_of(given: Mapping[str, Any], there: list[domain.Source]) -> domain.Repository:
    if given["of_archive"]:
        found = domain.of_archive(given["name"], tuple(given["of_archive"]), there)
        if found is None:
            raise RefusedError("the distribution's own archive is among none of the entries in /etc/apt/sources.list*")
        return found
    plain = {name: given[name] for name in ("name", "uri", "label", "priority")}
    return domain.Repository(**plain, fingerprints=tuple(given["fingerprints"]))


def key_of(repository: domain.Repository, given: Mapping[str, Any]) -> bytes:
    """Return the repository's key: as it was given, or from the first address that answers, if it is the right one."""
    if given["key"]:
        return str(given["key"]).encode()
    trouble = ["no address is known for its key"]
    for url in given["key_urls"]:
        try:
            key: bytes = open_url(url, timeout=KEY_SECONDS).read()
        except Exception as error:  # whatever a network can do
            trouble = [f"its key cannot be fetched from {url}: {error}"]
            continue
        try:
            there = domain.fingerprints(key)
        except domain.KeyFileError as error:
            trouble = [f"what {url} holds is not its key: {error}"]
            continue
        if repository.trusts(key):
            return key
        raise RefusedError(
            f"the key at {url} is {', '.join(there) or 'none'}, and not {' or '.join(repository.fingerprints)}: "
            f"it was not trusted. Look who stands between the node and {repository.uri}; "
            "a mirror that signs with a key of its own is trusted with gpu_stack_repository_keys"
        )
    raise RefusedError(
        f"{trouble[0]}. Give the node a way there (cluster_mirror, cluster_https_proxy), or the key itself"
    )


def have_lists_read(repository: domain.Repository) -> None:
    """Have apt read this repository's lists alone."""
    argv = ["apt-get", "update", "--quiet", "--option=APT::Get::List-Cleanup=0", "--option=DPkg::Lock::Timeout=300"]
    argv += [f"--option=Dir::Etc::sourcelist={repository.sources_path}", "--option=Dir::Etc::sourceparts=-"]
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    wrong: list[str] = []
    for attempt in range(ATTEMPTS):
        done = command(*argv, seconds=None, env=environment)
        said = [line for line in done.aside.splitlines() if line.startswith(("E:", "W:"))]
        wrong = [line[3:].strip() for line in said if done.code or any(sign in line for sign in NOT_SIGNED)]
        if not wrong:
            return
        if not any(sign in line for line in wrong for sign in OUT_OF_STEP):
            break
        if attempt + 1 < ATTEMPTS:
            time.sleep(PAUSE)
    what, fix = "cannot be read", "Give the node a way there (cluster_mirror, cluster_https_proxy)"
    if any(sign in line for line in wrong for sign in NOT_SIGNED):
        what = "is not signed with its key"
        fix = "Nothing was installed from it: look who stands between the node and that address"
    # apt says the same several times; the shortest line of a kind holds all of it.
    shortest = min((line for line in wrong if any(sign in line for sign in NOT_SIGNED)), key=len, default=wrong[-1])
    raise RefusedError(f"the repository {repository.name} at {repository.uri} {what} (apt says: {shortest}). {fix}")


def has_lists(repository: domain.Repository) -> bool:
    """Whether apt has read them: a run that was cut off may have written the files alone."""
    return any((LISTS / name).exists() for name in repository.list_names)


def add(repository: domain.Repository, given: Mapping[str, Any], paths: list[str]) -> None:
    before = {path: files.read(path, links=True) if Path(path).exists() else None for path in paths}
    texts: dict[str, bytes] = {path: text.encode() for path, text in repository.texts.items()}
    if repository.key_path in paths:
        texts[repository.key_path] = key_of(repository, given)
    try:
        for path in paths:
            files.replace(path, texts[path], mode=0o644, keep=True, parents=True)
        have_lists_read(repository)
    except BaseException:
        # Left there, it would stand in the way of everything else that apt is asked on this node.
        for path, content in before.items():
            if content is None:
                files.remove(path)
            else:
                files.replace(path, content, mode=0o644, keep=True, parents=True)
        raise


def run(module: AnsibleModule) -> dict[str, Any]:
    there = list(entries())
    diff: list[dict[str, str]] = []
    changed = False
    for given in module.params["repositories"]:
        repository = repository_of(given, there)
        if domain.foreign(repository, there):
            continue  # an entry of others, which is used instead
        held = {path: read(path) for path in (*repository.texts, repository.key_path)}
        paths = repository.lacks(files)
        if not module.check_mode and (paths or not has_lists(repository)):
            add(repository, given, paths)
        changed = changed or bool(paths)
        after = {**repository.texts, repository.key_path: f"{given['key'] or '(the key, when this is not a check)'}\n"}
        diff += [
            {"before_header": path, "after_header": path, "before": held.get(path, ""), "after": after[path]}
            for path in paths
            if path != repository.key_path or module.check_mode
        ]
    return {"changed": changed, "diff": diff}


def main() -> None:
    # The keys are public ones.
    text = {"type": "str", "default": "", "no_log": False}
    several = {"type": "list", "elements": "str", "default": [], "no_log": False}
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "repositories": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "uri": {"type": "str", "default": ""},
                    "priority": {"type": "int", "default": 0},
                    **dict.fromkeys(("label", "key"), text),
                    **dict.fromkeys(("of_archive", "fingerprints", "key_urls"), several),
                },
            },
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    os.environ.update(module.params["environment"])
    try:
        module.exit_json(**run(module))
    except RefusedError as refused:
        module.fail_json(msg=f"{module.params['node']}: {refused}.")


if __name__ == "__main__":
    main()
