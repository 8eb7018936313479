"""What of an inventory is handed to people who launch as themselves: the least that a launch needs, and no secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..network import known_hosts
from ..pytorch.environments import PROVIDED, existing
from ..verdict.commands import Terminal, on_node, playbook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Everything else of an inventory stays with the administrator: what is not named here is in no folder that is shared.
VALUES = (
    *("cluster_name", "cluster_address", "cluster_interface", "cluster_gpus", "cluster_gpu_model"),
    *("cluster_nproc_per_node", "cluster_quarantined", "cluster_launch_nodes", "cluster_backend"),
    *("cluster_master_port", "cluster_torch_version", "cluster_torchrun", "cluster_user", "cluster_run_root"),
    *("cluster_run_keep", "cluster_run_keep_mb", "cluster_work_root", "cluster_users_root"),
    *("cluster_environments", "cluster_environments_root"),
    "workbench_nodes",
)
# Of others of these, people have their own (ansible_user, keys, passwords), or need none (ansible_become).
OF_ANSIBLE = ("ansible_python_interpreter",)
HEAD = "# Written by playbooks/share.yml, which overwrites changes in here.\n"
# As inventory/lab has it: the keys that are pinned here count, and then one's own.
TRUSTED = (
    "-o StrictHostKeyChecking=yes"
    """ -o 'UserKnownHostsFile="{{ inventory_dir }}/known_hosts" ~/.ssh/known_hosts'"""
)
NAMES = ("hosts.yml", "known_hosts", "README.md")
TEXTS = (".md", ".rst", ".txt")  # endings of what Ansible does not read as an inventory


@dataclass(frozen=True)
class Hop:
    """A machine that the way to a node leads through. keys: its host keys that the administrator's ssh knows."""

    host: str
    port: int = 22
    keys: tuple[known_hosts.HostKey, ...] = ()

    @property
    def shown(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 22 else f"{host}:{self.port}"


@dataclass(frozen=True)
class SharedNode:
    """A node as others shall reach it.

    keys: lines of known_hosts without the names of hosts. hops: on the way to it, in their order. command: the
    administrator's ProxyCommand, if there is one. error: why nobody knows how it is reached.
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
    """Why the folder cannot be written, a sentence for each node."""
    found = []
    for node in nodes:
        if node.error:
            found.append(f"{node.name}: {node.error}.")
        elif not node.keys:
            found.append(
                f"{node.name}: its host key is not pinned, and others would have to trust whoever answers. Run"
                f" {playbook('playbooks/trust.yml')} first."
            )
    return found


def warnings(nodes: Sequence[SharedNode]) -> list[str]:
    commands = [node.name for node in nodes if node.command]
    if not commands:
        return []
    what = f"{', '.join(commands)}: reached through a ProxyCommand, which may name what only you have: it is not in the"
    return [f"{what} folder. Set ProxyJump instead, or have each person set a way of their own in ~/.ssh/config."]


def unknown(names: Iterable[str]) -> list[str]:
    """Return the names in a folder that are not of this playbook, and that Ansible may read with an inventory there.

    Such are other inventories, group_vars, host_vars, ansible.cfg and plugins. It passes over hidden files and texts.
    """
    return sorted(name for name in names if name not in NAMES and not name.startswith(".") and not name.endswith(TEXTS))


def inventory(nodes: Sequence[SharedNode]) -> dict[str, Any]:
    """hosts.yml: what all nodes have is written once."""
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
    # People launch in the environments, and do not build them.
    declared: Mapping[str, Any] = node.values.get("cluster_environments", {})
    named = {name: entry if existing(entry) else {PROVIDED: True} for name, entry in declared.items()}
    values = {**node.values, "cluster_environments": named}
    if not named:
        values.pop("cluster_environments_root", None)
    names = [name for name in (*OF_ANSIBLE, *VALUES) if values.get(name) not in (None, "", [], {}, False)]
    return {**found, **{name: values[name] for name in names}}


def known_hosts_text(nodes: Sequence[SharedNode]) -> str:
    """Each node under the address at which the folder reaches it, whatever the administrator's ssh calls it."""
    return HEAD + "".join(
        f"{known_hosts.host_name(node.host, node.port)} {key.type} {key.text} muster:{node.name}\n"
        for node in nodes
        for key in node.keys
    )


def readme(nodes: Sequence[SharedNode], folder: str) -> str:
    """folder: the name of the folder itself; where it lies is up to whoever gets it."""
    name = nodes[0].values["cluster_name"]
    terminal = Terminal(prefix=".venv/bin/", inventories=(f"../{folder}",))
    look = terminal.text(on_node("gpu_nodes", "id -un"))
    example = terminal.text(playbook("playbooks/launch.yml", launch_script_src="examples/cifar10/train.py"))
    jobs = terminal.text(playbook("playbooks/jobs.yml"))
    return f"""# Training on {name}

Nodes: {", ".join(node.name for node in nodes)}.

You log in on them with your own name and key, and launch as yourself, without sudo. The administrator has put you into
`launch_users`. There is no secret in this folder.

Put it beside a checkout of Muster in which `script/setup` was run, and type these in the checkout. Add `-u NAME` where
your name on the nodes is not the one that you have on this machine.
{_bastions(nodes)}
Can you log in?

    {look}

Train, here the example that comes with Muster; `-e launch_script=PATH` takes a script that is on every node:

    {example}

What runs, where, and since when:

    {jobs}
{_notebooks(nodes, terminal)}
docs/launch.md says the rest.
"""


def _notebooks(nodes: Sequence[SharedNode], terminal: Terminal) -> str:
    there = nodes[0].values.get("workbench_nodes")
    if not there:
        return ""
    start = terminal.text(playbook("playbooks/notebook.yml", notebook_state="started"))
    return f"\nA notebook of your own, on {', '.join(there)} (docs/notebooks.md):\n\n    {start}\n"


def _bastions(nodes: Sequence[SharedNode]) -> str:
    hops = {hop.shown: hop for node in nodes for hop in node.hops}
    if not hops:
        return ""
    lines = [
        "\nThe way leads through these; log in on each once by `ssh`, and compare the key that it shows:\n",
        *(f"- {name}: {', '.join(key.fingerprint for key in hop.keys) or 'ask'}" for name, hop in hops.items()),
    ]
    return "\n".join(lines) + "\n"
