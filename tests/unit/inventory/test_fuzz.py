"""Validation never crashes on a mutated inventory, and valid inventories have no problems.

The inventories are written to files and read as in a play: Ansible's loader, then the action's code. The mutations
use fixed seeds, so a failure can be reproduced by its number.
"""

from __future__ import annotations

import copy
import importlib.util
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible import context
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible.template import Templar
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from muster.inventory import Problem, problems

if TYPE_CHECKING:
    from collections.abc import Callable

    Files = dict[str, Any]

ROOT = Path(__file__).parents[3]
MUTATIONS = 260
SECRET = [("default", VaultSecret(b"open sesame"))]


def load_action() -> Any:
    path = ROOT / "plugins/action/validate_inventory.py"
    spec = importlib.util.spec_from_file_location("validate_inventory_action", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ACTION = load_action()
# Shared, because a loader caches the roles' files throughout a play.
LOADER = DataLoader()
LOADER.set_vault_secrets(SECRET)


def validate(folder: Path, files: Files, monkeypatch: pytest.MonkeyPatch, forks: int = 250) -> list[Problem]:
    """Return the problems of the inventory in these files. Strings are written unchanged, other values as YAML."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else yaml.dump(content, allow_unicode=True, sort_keys=False)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(forks=forks, inventory=[str(folder)]))
    inventory = InventoryManager(LOADER, sources=[str(folder)])
    manager = VariableManager(LOADER, inventory)
    hostvars = HostVars(inventory, manager, LOADER)
    task_vars = {"hostvars": hostvars, "groups": inventory.get_groups_dict()}
    templar = Templar(loader=LOADER, variables=task_vars)
    return problems(ACTION.read_inventory(task_vars, templar, LOADER, connects=True))


# ---------------------------------------------------------------- valid inventories


def lab(**nodes: dict[str, Any]) -> Files:
    return {"hosts.yml": {"gpu_nodes": {"hosts": nodes}}}


def two(**more: Any) -> Files:
    files = lab(node1={"ansible_host": "10.0.0.11"}, node2={"ansible_host": "10.0.0.12"})
    if more:
        files["group_vars/all.yml"] = more
    return files


def vaulted(text: str) -> str:
    lines = VaultLib(SECRET).encrypt(text).decode().splitlines()
    return "ansible_become_password: !vault |\n" + "".join(f"  {line}\n" for line in lines)


def children() -> Files:
    racks = {
        "rack_a": {"hosts": {"a1": {"ansible_host": "10.1.0.1"}, "a2": {"ansible_host": "10.1.0.2"}}},
        "rack_b": {"hosts": {"b1": {"ansible_host": "10.2.0.1"}}, "vars": {"cluster_gpus": 4}},
    }
    storage = {"hosts": {"nfs1": {"ansible_host": "10.9.0.1"}}}
    files: Files = {"hosts.yml": {"all": {"children": {"gpu_nodes": {"children": racks}, "storage": storage}}}}
    return files


INI = """\
[gpu_nodes]
node[1:3] cluster_gpus=8
[gpu_nodes:vars]
ansible_user=ubuntu
cluster_master_port=29510
cluster_backend=nccl
[all:vars]
our_site=north
"""
INI_HOSTS = {f"host_vars/node{number}.yml": {"ansible_host": f"10.0.0.{number}"} for number in (1, 2, 3)}
GOOD: dict[str, Files] = {
    "two nodes": two(),
    "the sample inventory's options, uncommented": two(
        cluster_name="rack1",
        cluster_gpus=8,
        cluster_backend="nccl",
        cluster_user="train",
        cluster_launch_nodes=["node2"],
    ),
    "ssh aliases": lab(
        gpu1={"ansible_host": "lab-gpu-1", "cluster_address": "10.0.0.1"},
        gpu2={"ansible_host": "lab_gpu_2", "cluster_address": "10.0.0.2"},
    ),
    "names that are aliases": lab(gpu1={"cluster_address": "10.0.0.1"}, gpu2={"cluster_address": "10.0.0.2"}),
    "names that are addresses": lab(**{"10.0.0.1": {}, "10.0.0.2": {}}),
    "a bastion": two(ansible_user="ubuntu", ansible_ssh_common_args="-o ProxyJump=me@gate.lab:2222"),
    "forwarded ports": lab(
        node1={"ansible_host": "127.0.0.1", "ansible_port": 2201, "cluster_address": "10.0.0.1"},
        node2={"ansible_host": "127.0.0.1", "ansible_port": "2202", "cluster_address": "10.0.0.2"},
    ),
    "a training network": lab(
        node1={"ansible_host": "192.168.1.1", "cluster_address": "10.10.0.1", "cluster_interface": "enp65s0f0np0"},
        node2={"ansible_host": "192.168.1.2", "cluster_address": "10.10.0.2", "cluster_interface": "ib0"},
    ),
    "IPv6": lab(node1={"ansible_host": "fd00:12::1"}, node2={"ansible_host": "fd00:12::2"}),
    "uneven GPUs": lab(
        node1={"ansible_host": "10.0.0.1", "cluster_gpus": 8},
        node2={"ansible_host": "10.0.0.2", "cluster_gpus": 4, "cluster_nproc_per_node": 2},
        node3={"ansible_host": "10.0.0.3"},
    ),
    "a vaulted password": {**two(), "group_vars/all.yml": vaulted("hunter2")},
    "a vaulted file": {**two(), "group_vars/all/vault.yml": VaultLib(SECRET).encrypt("hf_token: x\n").decode()},
    "a password from a lookup": two(
        launch_env={
            "PASSWORD": "{{ lookup('ansible.builtin.env', 'HOME') }}",
            "WANDB_API_KEY": "{{ lookup('ansible.builtin.env', 'WANDB_API_KEY', default='') }}",
        },
    ),
    "an INI inventory": {"hosts": INI, **INI_HOSTS},
    "nested groups": children(),
    "quarantined nodes": lab(
        node1={"ansible_host": "10.0.0.1", "cluster_gpus": 8},
        node2={"ansible_host": "10.0.0.2", "cluster_quarantined": True},
        node3={"ansible_host": "10.0.0.3", "cluster_quarantined": "yes", "cluster_gpus": 8},
    ),
    "200 nodes": {
        "hosts.yml": {
            "gpu_nodes": {
                "hosts": {f"gpu{n:03}": {"ansible_host": f"10.4.{n // 100}.{n % 100 + 1}"} for n in range(200)}
            }
        },
        "group_vars/gpu_nodes.yml": {"cluster_gpus": 8, "cluster_backend": "nccl"},
    },
    "the controller as the only node": lab(box={"ansible_connection": "local", "cluster_address": "127.0.0.1"}),
    "values from templates": two(
        first_three="10.7.0",
        cluster_address="{{ first_three }}.{{ ansible_host.split('.') | last }}",
        cluster_gpus="{{ 2 * 4 }}",
    ),
    "variables of the site": two(
        cluster_foo=1, firewall_zone="dmz", launch_pad="39A", pytorch_team="us", tokenizer="gpt2"
    ),
    "a firewall with requests": two(
        firewall_mode="off",
        firewall_tight=True,
        firewall_allow=[
            {"port": 9100, "from": ["192.168.0.0/16"], "comment": "metrics"},
            {"port": "60000-61000", "proto": "udp"},
        ],
    ),
    "an empty variables file": {"hosts.yml": two()["hosts.yml"], "group_vars/all.yml": "# nothing yet\n"},
}


@pytest.mark.parametrize("name", GOOD)
def test_valid_inventory_has_no_problems(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [str(problem) for problem in validate(tmp_path, GOOD[name], monkeypatch)] == []


# ---------------------------------------------------------------- mutated inventories

SCALARS = (None, True, False, 0, -1, 1.5, 10**30, float("inf"), float("nan"), "", " ", "off", "29500", "x" * 5000)
JUNK: tuple[Any, ...] = (
    [],
    {},
    [None],
    [[[]]],
    {"a": {"b": [1, None]}},
    {1: 2},
    [{}],
    ["", "a"],
    {"": ""},
    b"\xff\xfe",
    "\ufffd",
    "$(id)",
)
# Digits and letters that resemble ASCII, right-to-left text, a no-break space.
UNICODE = ("\u202e1.0.0.01", "\uff11\uff10.0.0.1", "node\u00a01", "\U0001f99c", "\u0430dmin")
ADDRESSES = ("10.0.0.300", "10.0.0.1/24", "fe80::1%eth0", "[::1]", "-", ":", "%", "0", "127.0.0.1", "10.0.0.12")
TEMPLATES = (
    *("{{ nowhere }}", "{{", "{{ }}", "{% if %}", "{{ 1 / 0 }}", "{{ none.x }}", "{{ cluster_name }}", "{{ omit }}"),
    *("{{ cluster_address }}", "{{ ansible_host }}", "{{ hostvars }}", "{{ hostvars['node2'].cluster_gpus }}"),
    *("{{ hostvars['nobody'].x }}", "{{ lookup('nonsense') }}", "{{ lookup('ansible.builtin.file', '/nowhere') }}"),
    *("{{ 'a' | int }}", "{{ groups }}", "{{ x | nofilter }}", "{{ undef() }}", "{{ '{{ ' }}", "{{ range(5) }}"),
    *("!vault |", "$ANSIBLE_VAULT;1.1;AES256\n6162", "{{ lipsum }}", "{{ self }}", "{{ lookup('file', 1) }}"),
)
ODD: tuple[Any, ...] = (*SCALARS, *JUNK, *UNICODE, *ADDRESSES, *TEMPLATES)
NAMES = (
    *("cluster_gpus", "cluster_address", "cluster_interface", "cluster_nproc_per_node", "cluster_master_port"),
    *("cluster_torch_version", "cluster_user", "cluster_name", "cluster_launch_nodes", "cluster_quarantined"),
    *("cluster_backend", "cluster_host_key", "cluster_run_keep", "cluster_gpu", "hf_token", "launch_env", "\u00fc"),
    *("ansible_host", "ansible_port", "ansible_connection", "ansible_become_password", "ansible_user", "x"),
    *("firewall_mode", "firewall_allow", "firewall_tight", "firewall_ephemeral_range", "ddp_smoke_loss_ratio"),
    *("pytorch_packages", "pytorch_full_look", "groups", "hostvars", "inventory_dir"),
)
KEYS = (*NAMES, "gpu_nodes", "hosts", "vars", "children", "Node1", "node 1", "10.0.0.12", "localhost", "")


def mutated(files: Files, draw: random.Random) -> Files:
    files = copy.deepcopy(files)
    ways = (
        replace_a_value,
        replace_a_value,
        set_a_variable,
        set_a_variable,
        delete_a_key,
        rename_a_key,
        corrupt_the_text,
    )
    for _ in range(draw.randint(1, 4)):
        draw.choice(ways)(files, draw)
    return files


def containers(value: Any) -> list[Any]:
    found: list[Any] = []
    if isinstance(value, (dict, list)) and value:
        found.append(value)
        for entry in value.values() if isinstance(value, dict) else value:
            found += containers(entry)
    return found


def pick(files: Files, draw: random.Random) -> tuple[Any, Any]:
    """Return a random mapping or list in the files, and one of its keys."""
    held = containers([content for content in files.values() if not isinstance(content, str)])[1:]
    if not held:
        return {"nothing": 0}, "nothing"
    container = draw.choice(held)
    return container, draw.choice(list(container) if isinstance(container, dict) else range(len(container)))


def replace_a_value(files: Files, draw: random.Random) -> None:
    container, key = pick(files, draw)
    container[key] = draw.choice(ODD)


def set_a_variable(files: Files, draw: random.Random) -> None:
    value = draw.choice(ODD)
    hosts = files.get("hosts.yml")
    nodes = hosts.get("gpu_nodes") if isinstance(hosts, dict) else None
    listed = nodes.get("hosts") if isinstance(nodes, dict) else None
    if isinstance(listed, dict) and listed and draw.random() < 0.5:
        node = draw.choice(list(listed))
        listed[node] = {**(listed[node] if isinstance(listed[node], dict) else {}), draw.choice(NAMES): value}
    else:
        files[f"group_vars/all/fuzz{draw.randint(0, 3)}.yml"] = {draw.choice(NAMES): value}


def delete_a_key(files: Files, draw: random.Random) -> None:
    container, key = pick(files, draw)
    del container[key]


def rename_a_key(files: Files, draw: random.Random) -> None:
    container, key = pick(files, draw)
    if isinstance(container, dict):
        container[draw.choice(KEYS)] = container.pop(key)


def corrupt_the_text(files: Files, draw: random.Random) -> None:
    name = draw.choice(list(files))
    text = files[name] if isinstance(files[name], str) else yaml.dump(files[name], allow_unicode=True, sort_keys=False)
    lines = text.splitlines() or [""]
    at = draw.randrange(len(lines))
    corruptions: tuple[Callable[[str], list[str]], ...] = (
        lambda line: [line, line],
        lambda _: [],
        lambda line: [" " + line],
        lambda line: [line.replace(":", "", 1)],
        lambda line: [line + " #", "\t" + line],
        lambda line: [line[: len(line) // 2]],
        lambda line: [line, "&a [*a]"],
    )
    lines[at : at + 1] = draw.choice(corruptions)(lines[at])
    files[name] = "\n".join(lines) + "\n"


SMALL = [files for name, files in GOOD.items() if name != "200 nodes"]


@pytest.mark.parametrize("block", range(10))
def test_problems_of_a_mutated_inventory_are_reported_as_sentences(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"problems": 0, "none": 0, "not loaded": 0}
    for number in range(block * MUTATIONS // 10, (block + 1) * MUTATIONS // 10):
        draw = random.Random(number)
        files = mutated(draw.choice(SMALL), draw)
        try:
            found = validate(tmp_path / str(number), files, monkeypatch)
        except (AnsibleError, SystemExit):
            answers["not loaded"] += 1  # rejected by Ansible or by yaml_syntax, before a play begins
            continue
        answers["problems" if found else "none"] += 1
        for problem in found:
            assert isinstance(problem, Problem)
            assert len(str(problem)) < 2000, number
            assert "Traceback" not in str(problem), number
    assert answers["problems"] > 5, answers
