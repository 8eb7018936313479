"""Nodes that are named with -e, as a list, in a file or in an ssh config, as the controller reads them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.onboard import request
from muster_node.tools.run import run

from . import newcomers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster.onboard.request import NodeToOnboard


def asked(options: Mapping[str, Any]) -> tuple[list[NodeToOnboard], list[str]]:
    """The nodes, and what is wrong with the request. options: node, address, host_key, gpus, nodes, nodes_file and
    ssh_config, as the modules onboard_request and import_inventory document them."""
    config = options["ssh_config"]
    given = request.OnboardingOptions(
        **{name: options[name] for name in ("node", "address", "host_key", "gpus", "nodes")},
        nodes_file=options["nodes_file"],
        file=newcomers.text_of(options["nodes_file"]) if options["nodes_file"] else None,
        ssh_config=config,
        config=newcomers.text_of(config) if config else None,
        is_own=is_own(config) if config else False,
    )
    found, problems = request.asked(given)
    if not config:
        return found, problems
    nodes = []
    for one in found:
        own, plain = (settings(config, host) for host in (one.name, newcomers.NOWHERE))
        problems += request.problems_of_ssh(one, own)
        address, variables = request.of_ssh(own, plain)
        nodes.append(request.NodeToOnboard(one.name, address, {**variables, **one.variables}, one.where))
    return nodes, problems


def is_own(config: str) -> bool:
    """Whether ssh reads this file at every connection of this user."""
    return os.path.realpath(Path(config).expanduser()) == os.path.realpath(Path.home() / ".ssh/config")


def settings(config: str, host: str) -> dict[str, str]:
    """What ssh makes of a host with this config."""
    said = run("ssh", "-F", str(Path(config).expanduser()), "-G", host, env=os.environ, cwd=".")
    found: dict[str, str] = {}
    for line in said.text.splitlines():
        keyword, _, value = line.partition(" ")
        found.setdefault(keyword, value)
    return found
