"""Return in one call what several roles would change on this node. Nothing is changed, as in check mode.

Run by Program (plugin_utils), with a verb as argument and a JSON payload on standard input. The verb requires root.

    look   {looks: {name: {module, options}}, remembers, full} -> {seen: {name: {why, warnings, ...}}}

why: a sentence for each difference. A failed inspection also counts as a difference, so that the role runs on this node
and reports the problem itself.
"""

from __future__ import annotations

import os
import pwd
import socket
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.inspect.facts import facts
from ansible.module_utils.muster.network import ssh_mesh
from ansible.module_utils.muster.network.hosts_file import HostsRequest

from ..baseline.compare import compare
from ..baseline.idle import cloud_init_at_work
from ..drift import facts as drift_facts
from ..drift import record
from ..launch_users import provide as launch_users
from ..looks.inspect import look_at
from ..network import mesh_files, mesh_key, mesh_logins, mesh_ways, names
from ..programs import firewall
from ..pytorch.manager import EnvironmentManager, verify
from ..pytorch.memory import RememberingRoot
from ..pytorch.root import LookedAs
from ..shared_data import provide as shared_data
from ..tools.program import answer
from ..workbench import provide as workbench

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]


def main() -> None:
    # Every user must be able to read an environment, regardless of root's umask.
    os.umask(0o022)
    answer({"look": look})


def look(request: Json) -> Json:
    ways: dict[str, Callable[[Json, Json], Json]] = {
        "node_inspect": inspected,
        "node_plan": baseline,
        "hosts_file": hosts,
        "ssh_mesh_key": mesh,
        "firewall": rules,
        "shared_data": folders,
        "pytorch_env": pytorch,
        "launch_users": people,
        "workbench": notebooks,
        "installed_record": installed,
    }
    seen = {}
    for name, asked in request["looks"].items():
        try:
            seen[name] = {"warnings": [], **ways[asked["module"]](asked["options"], request)}
        except Exception as problem:  # the role reports the details
            seen[name] = {"why": [f"{type(problem).__name__}: {problem}"], "warnings": []}
    return {"seen": seen}


def inspected(options: Json, _request: Json) -> Json:
    return {"why": [], "facts": facts(look_at(options))}


def baseline(options: Json, _request: Json) -> Json:
    found = compare(options, check=True)
    at_work = cloud_init_at_work()
    traces = [f"{path} exists" for path in found["traces"]]
    why = [*found["differences"], *traces, *([f"{at_work} is running"] if at_work else [])]
    return {"why": why or (["unspecified differences"] if found["needed"] else [])}


def hosts(options: Json, _request: Json) -> Json:
    cluster = HostsRequest(options["nodes"], options["own"], socket.gethostname())
    if options["mode"] == "verify":
        names.provide(cluster, "verify", check=True)
        return {"why": []}
    return {"why": names.differences(cluster)}


def mesh(options: Json, _request: Json) -> Json:
    """Inspect the user's key, and collect the data that the controller compares with that of other nodes."""
    found = mesh_key.provide(options, check=True)
    why = [f"sshd is not configured as required: {found['sshd']}"] if found["sshd"] else []
    if found["changed"]:
        return {"why": [*why, f"the SSH key of {options['user']} is missing or incorrect"]}
    entry = pwd.getpwnam(options["user"])
    with mesh_files.acting_as(entry):
        texts = mesh_files.SshFolder(entry).texts()
    ways = mesh_ways.ways(options["user"], options["address"], options["identity"], texts)
    sample = [] if why else [ssh_mesh.MeshMember(name, "") for name in options["sample"]]
    return {
        "why": why,
        "warnings": mesh_key.warnings(options, found["overridden"]),
        "look": {name: found[name] for name in ("key", "host_keys", "port", "hostname")},
        "texts": texts,
        "ways": ways,
        "proved": mesh_logins.remembered(options["memory"]),
        "tried": {
            one.peer.name: {"code": one.code, "said": one.said[-300:], "hostname": one.hostname}
            for one in mesh_logins.log_in_on(entry, sample)
        },
    }


def rules(options: Json, _request: Json) -> Json:
    if os.geteuid():
        return {"why": ["only root can read the firewall"]}
    return {"why": [], "look": firewall.look(options["places"])}


def folders(options: Json, _request: Json) -> Json:
    found = shared_data.provide(options, check=True)
    return {"why": found["differences"]}


def pytorch(options: Json, request: Json) -> Json:
    os.environ.update(options["environment"])
    who = LookedAs.choose(options["user"])
    root = RememberingRoot(
        options["root"], who, writes=request["remembers"] and options["mode"] == "manage", proves=request["full"]
    )
    if options["mode"] == "verify":
        verify(root, options)
        return {"why": []}
    found = EnvironmentManager(root, options, check=True).look()
    why = [*found["plan"]["reasons"]] if found["changed"] else []
    return {
        "why": why or (["unspecified differences"] if found["changed"] else []),
        "warnings": found.get("notes", []),
        "wrong": root.wrong,
    }


def people(options: Json, _request: Json) -> Json:
    found = launch_users.provide(options, check=True)
    why = found["differences"] or (["unspecified differences"] if found["changed"] else [])
    return {"why": why, "warnings": [f"{options['node']}: {note}." for note in found["notes"]]}


def notebooks(options: Json, _request: Json) -> Json:
    found = workbench.provide(options, check=True)
    return {"why": found["differences"], "warnings": [f"{options['node']}: {note}." for note in found["notes"]]}


def installed(options: Json, _request: Json) -> Json:
    other = record.to_write(drift_facts.facts(options), [])
    return {"why": ["the record of the installation is outdated"] if other else []}


if __name__ == "__main__":
    main()
