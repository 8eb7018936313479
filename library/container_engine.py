#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Configures a container engine for GPU containers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_engine
short_description: Configure a container engine for GPU containers
version_added: "0.1.0"
description:
  - Adds the NVIDIA runtime to docker or containerd with C(nvidia-ctk runtime configure) if it is missing. Other
    settings are kept. docker is reloaded and never restarted. containerd is restarted only if running containers
    survive this.
  - Generates the CDI specification for podman on nodes with a loaded driver, with the toolkit's own service if
    possible.
  - The module does not install the engine. It fails if the engine is missing.
author: The Muster authors
options:
  engine:
    description: Container engine to configure.
    type: str
    choices: [docker, podman, containerd]
    required: true
extends_documentation_fragment:
  [role_options.posix, action_common_attributes, role_options.node, role_options.mode]
"""

EXAMPLES = r"""
- name: Configure docker for GPU containers
  container_engine:
    node: "{{ inventory_hostname }}"
    engine: docker
"""

RETURN = r"""
differences:
  description: Differences that were or would be applied, one sentence each.
  returned: success
  type: list
  elements: str
  sample: [/etc/docker/daemon.json does not configure the nvidia runtime]
"""

import contextlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.muster.gpu_stack import container_engine as domain
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster_node.tools import process
from ansible.module_utils.muster_node.tools.result import RefusedError, diff, lines, one_sentence, refuse, warn
from ansible.module_utils.muster_node.tools.run import PATH, names, read, run

SPEC = {
    "node": {"type": "str", "required": True},
    "engine": {"type": "str", "choices": ["docker", "podman", "containerd"], "required": True},
    "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
}


FILES = {"docker": (domain.DAEMON,), "containerd": (domain.CONTAINERD, domain.DROP_IN), "podman": ()}
# docker reloads in less than one second.
SECONDS_TO_RELOAD = 5


def unit(name: str, *properties: str) -> dict[str, str]:
    shown = run("systemctl", "show", f"--property={','.join(properties)}", name).text
    return dict(line.partition("=")[::2] for line in shown.splitlines())


FIX = f"To change it, run {playbook('site.yml', tags='gpu_stack', container_toolkit_mode='manage')}"


def look(engine: str) -> domain.ContainerEngineState:
    texts = {path: read(path).text for path in FILES[engine] if Path(path).is_file()}
    program = domain.PROGRAMS[engine]
    seen: dict[str, Any] = {"programs": frozenset([program] if shutil.which(program, path=PATH) else [])}
    if engine == "docker":
        seen |= look_at_docker()
    elif engine == "containerd":
        seen |= look_at_containerd(list(texts))
    else:
        for folder in domain.SPEC_FOLDERS:
            texts |= {f"{folder}/{name}": read(f"{folder}/{name}").text for name in names(folder)}
        refresh = unit(domain.REFRESH, "LoadState")
        seen |= {
            "driver": read("/sys/module/nvidia/version").text.strip(),
            "refresh": refresh.get("LoadState") == "loaded",
        }
    return domain.ContainerEngineState(engine=engine, files=texts, **seen)


def look_at_docker() -> dict[str, Any]:
    if Path("/snap/docker/current").exists():
        return {"programs": frozenset([domain.PROGRAMS["docker"]]), "snap": True}
    # A request would start docker through its socket, but an inspection must not start anything.
    state = unit("docker.service", "ActiveState").get("ActiveState", "")
    if state != "active":
        return {"why": f"docker.service is {state or 'unknown to systemd'}"}
    info = run("docker", "info", "--format", "{{json .}}")
    said: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        said = json.loads(info.text)
    # Without the daemon the client reports its own data, and the error in ServerErrors.
    if info.why or not said.get("Runtimes"):
        errors = said.get("ServerErrors") or [info.why or "docker info reports no runtimes"]
        return {"why": str(errors[0]).strip()[:200]}
    return {
        "answers": True,
        "runtimes": frozenset(said["Runtimes"]),
        "survive": bool(said.get("LiveRestoreEnabled")),
        "containers": tuple(run("docker", "ps", "--format", "{{.Names}}").text.split()),
    }


def look_at_containerd(files: list[str]) -> dict[str, Any]:
    state = unit(
        *("containerd.service", "ActiveState", "KillMode", "ExecMainStartTimestampMonotonic", "RequiredBy", "BoundBy")
    )
    # With older docker packages, the docker daemon and its containers stop together with containerd.
    takes_along = "docker.service" in (state.get("RequiredBy", "") + " " + state.get("BoundBy", "")).split()
    micros = int(state.get("ExecMainStartTimestampMonotonic") or 0)
    started = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) + micros / 1e6
    shims = []
    for pid in process.ids():
        # Only root's processes: other users choose the name, and reading the command line may block forever.
        if process.read(pid, "comm").startswith("containerd-shim") and process.user_id(pid) == 0:
            argv = process.words(pid)
            # The process may end at any time.
            with contextlib.suppress(ValueError, IndexError):
                shims.append(argv[argv.index("-id") + 1][:12])
    return {
        "answers": state.get("ActiveState") == "active",
        # The shims and the containers are in the unit's control group.
        "survive": state.get("KillMode") == "process" and not takes_along,
        "containers": tuple(sorted(shims)),
        "behind": bool(micros) and any(Path(path).stat().st_ctime > started for path in files),
    }


def act(plan: domain.ContainerEnginePlan) -> None:
    for step in plan.steps:
        done = run(*step.argv, seconds=120)
        if done.why:
            raise RefusedError(f"{step.name} failed: {done.why}. Run manually: sudo {' '.join(step.argv)}")


def wait_for_the_runtime(engine: str) -> str:
    """Wait until docker has applied its configuration file. If docker does not apply it, return what the user must
    do."""
    deadline = time.monotonic() + SECONDS_TO_RELOAD
    while True:
        sentence: str = domain.after_reload(look(engine))
        if not sentence or time.monotonic() > deadline:
            return sentence
        time.sleep(0.5)


def run_module(module: AnsibleModule) -> dict[str, Any]:
    engine = module.params["engine"]
    plan = domain.make_plan(look(engine))
    verifies = module.params["mode"] == "verify"
    refuse(plan.problems, plan.differences if verifies else (), FIX)
    if plan.steps and not module.check_mode:
        act(plan)
        unheard = wait_for_the_runtime(engine)
        again = domain.make_plan(look(engine))
        if unheard or again.steps:
            done = "; ".join(" ".join(step.argv) for step in plan.steps)
            raise RefusedError(unheard or f"{'; '.join(again.differences)}, even after: {done}")
    warn(module, plan.notes)
    commands = [" ".join(step.argv) for step in plan.steps]
    return {
        "changed": bool(plan.steps),
        "differences": plan.differences,
        "diff": diff(engine, lines(plan.differences), lines(commands)),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    with one_sentence(module):
        module.exit_json(**run_module(module))


if __name__ == "__main__":
    main()
