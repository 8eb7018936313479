"""Create the folder for launch users. It contains the part of the inventory that a launch needs, and no secrets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..network import known_hosts
from ..pytorch.environments import PROVIDED, existing
from ..verdict.commands import Terminal, on_node, playbook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Variables of the inventory that are shared. All others stay with the administrator.
VALUES = (
    *("cluster_name", "cluster_address", "cluster_interface", "cluster_gpus", "cluster_gpu_model"),
    *("cluster_nproc_per_node", "cluster_quarantined", "cluster_launch_nodes", "cluster_backend"),
    *("cluster_master_port", "cluster_torch_version", "cluster_torchrun", "cluster_user", "cluster_run_root"),
    *("cluster_run_keep", "cluster_run_keep_mb", "cluster_work_root", "cluster_users_root"),
    *("cluster_environments", "cluster_environments_root"),
    "workbench_nodes",
)
# Launch users set the other connection variables themselves (ansible_user, keys, passwords) or do not need them
# (ansible_become).
OF_ANSIBLE = ("ansible_python_interpreter",)
HEAD = "# Written by playbooks/share.yml, which overwrites changes in this folder.\n"
# As in inventory/lab: pinned keys take precedence over the user's own.
TRUSTED = (
    "-o StrictHostKeyChecking=yes"
    """ -o 'UserKnownHostsFile="{{ inventory_dir }}/known_hosts" ~/.ssh/known_hosts'"""
)
NAMES = ("hosts.yml", "known_hosts", "README.md")
TEXTS = (".md", ".rst", ".txt")  # suffixes that Ansible ignores in an inventory folder


@dataclass(frozen=True)
class Hop:
    """A jump host. keys: its host keys that are known to the administrator's ssh."""

    host: str
    port: int = 22
    keys: tuple[known_hosts.HostKey, ...] = ()

    @property
    def shown(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 22 else f"{host}:{self.port}"


@dataclass(frozen=True)
class SharedNode:
    """A node, with the data that launch users need to connect to it.

    keys: known_hosts lines without host names. hops: jump hosts in order. command: the administrator's ProxyCommand, if
    any. error: why the connection settings are unknown.
    """

    name: str
    host: str = ""
    port: int = 22
    values: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[known_hosts.HostKey, ...] = ()
    hops: tuple[Hop, ...] = ()
    command: str = ""
    error: str = ""


def problems(nodes: Sequence[SharedNode]) -> list[str]:
    """Return why the folder cannot be created, one sentence for each node."""
    found = []
    for node in nodes:
        if node.error:
            found.append(f"{node.name}: {node.error}.")
        elif not node.keys:
            found.append(
                f"{node.name}: the host key is not pinned, so users could not verify the node. Run"
                f" {playbook('playbooks/trust.yml')} first."
            )
    return found


def warnings(nodes: Sequence[SharedNode]) -> list[str]:
    commands = [node.name for node in nodes if node.command]
    if not commands:
        return []
    what = f"{', '.join(commands)}: the ProxyCommand might use files that only you have, so it is not copied to the"
    return [f"{what} folder. Set ProxyJump instead, or have each user configure the connection in ~/.ssh/config."]


def unknown(names: Iterable[str]) -> list[str]:
    """Return the names in a folder that this playbook did not create and that Ansible might read with the inventory.

    These are other inventories, group_vars, host_vars, ansible.cfg and plugins. Ansible ignores hidden files and text
    files.
    """
    return sorted(name for name in names if name not in NAMES and not name.startswith(".") and not name.endswith(TEXTS))


def inventory(nodes: Sequence[SharedNode]) -> dict[str, Any]:
    """Return the content of hosts.yml. Variables with the same value on all nodes are written once."""
    hosts = {node.name: _variables(node) for node in nodes}
    first = next(iter(hosts.values()))
    common = {
        name: value
        for name, value in first.items()
        if name != "ansible_host" and all(name in one and one[name] == value for one in hosts.values())
    }
    own = {name: {key: value for key, value in one.items() if key not in common} for name, one in hosts.items()}
    return {"gpu_nodes": {"vars": {**common, "ansible_ssh_extra_args": TRUSTED}, "hosts": own}}


def _variables(node: SharedNode) -> dict[str, Any]:
    found: dict[str, Any] = {"ansible_host": node.host}
    if node.port != 22:
        found["ansible_port"] = node.port
    if node.hops:
        found["ansible_ssh_common_args"] = f"-J {','.join(hop.shown for hop in node.hops)}"
    # Users launch in the environments but do not build them.
    declared: Mapping[str, Any] = node.values.get("cluster_environments", {})
    named = {name: entry if existing(entry) else {PROVIDED: True} for name, entry in declared.items()}
    values = {**node.values, "cluster_environments": named}
    if not named:
        values.pop("cluster_environments_root", None)
    names = [name for name in (*OF_ANSIBLE, *VALUES) if values.get(name) not in (None, "", [], {}, False)]
    return {**found, **{name: values[name] for name in names}}


def known_hosts_text(nodes: Sequence[SharedNode]) -> str:
    """Return the keys of each node under its address in hosts.yml.

    The aliases in the administrator's ssh config are not used.
    """
    return HEAD + "".join(
        f"{known_hosts.host_name(node.host, node.port)} {key.type} {key.text} muster:{node.name}\n"
        for node in nodes
        for key in node.keys
    )


def readme(nodes: Sequence[SharedNode], folder: str) -> str:
    """Return the content of the README file.

    folder: name of the folder without a path, because users decide where to put it.
    """
    name = nodes[0].values["cluster_name"]
    terminal = Terminal(prefix=".venv/bin/", inventories=(f"../{folder}",))
    look = terminal.text(on_node("gpu_nodes", "id -un"))
    example = terminal.text(playbook("playbooks/launch.yml", launch_script_src="examples/cifar10/train.py"))
    jobs = terminal.text(playbook("playbooks/jobs.yml"))
    return f"""# Training on {name}

Nodes: {", ".join(node.name for node in nodes)}.

You log in to the nodes with your own user name and SSH key, and start launches as yourself, without sudo. The
administrator has added you to `launch_users`. This folder contains no secrets.

Copy this folder next to a checkout of Muster in which `script/setup` was run. Run the commands below in the checkout.
For an installed command `muster`, copy the folder into `~/.config/muster/clusters` instead (docs/command.md).

If your user name on the nodes differs from the one on this machine, set `User` for the nodes and jump hosts in
`~/.ssh/config`, or add `-u NAME`.
{_bastions(nodes)}
Check that you can log in:

    {look}

Start a training. This runs the bundled example; `-e launch_script=PATH` runs a script that is present on every node:

    {example}

Show running launches:

    {jobs}
{_notebooks(nodes, terminal)}
See docs/launch_users.md for details.
"""


def _notebooks(nodes: Sequence[SharedNode], terminal: Terminal) -> str:
    there = nodes[0].values.get("workbench_nodes")
    if not there:
        return ""
    start = terminal.text(playbook("playbooks/notebook.yml", notebook_state="started"))
    return f"\nStart a notebook on {', '.join(there)} (docs/notebooks.md):\n\n    {start}\n"


def _bastions(nodes: Sequence[SharedNode]) -> str:
    hops = {hop.shown: hop for node in nodes for hop in node.hops}
    if not hops:
        return ""
    lines = [
        "\nThe nodes are behind jump hosts. Log in to each jump host once with `ssh`, and compare its host key:\n",
        *(f"- {name}: {', '.join(key.fingerprint for key in hop.keys) or 'ask'}" for name, hop in hops.items()),
    ]
    return "\n".join(lines) + "\n"
