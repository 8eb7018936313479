#!/usr/bin/env python3
"""Write inventory/lab/group_vars/all.yml: every option that a user may set, commented out, at its default.

It writes examples/job.yml, too: what one launch may say. The options and their meaning come from the roles'
argument_specs. Run it by .venv-dev/bin/python after a change there; a test holds the files equal to what it prints with
--show and with --show-job.
"""

from __future__ import annotations

import importlib
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "plugins/module_utils"))
TARGET = ROOT / "inventory/lab/group_vars/all.yml"
# The sandbox has an inventory of its own.
NOT_FOR_A_LAB = ("onboard", "sandbox")  # what is said of one run, and of no cluster
HEAD = """\
---
# Every option of Muster, commented out, at its default. To change one, take away its "# " and edit the value.
# What holds for one node only, such as cluster_gpus, is written under its name in hosts.yml instead.
# Written by script/lab_options.py from the roles' meta/argument_specs.yml.
"""
JOB = ROOT / "examples/job.yml"
JOB_HEAD = """\
---
# A job: what one launch says, in a file that lies beside the code. Take what it needs of this, and launch it with
#
#     {launch} -e @job.yml
#
# What stands behind it on the command line (-e launch_show_rank=3) goes before what is written here; --check shows the
# plan. All of it is read before any node is contacted: a misspelt name, a value of another type, and what does not go
# together are named with their lines. No secrets belong here: launch_env_file names a file that has them.
# Written by script/lab_options.py from the roles' meta/argument_specs.yml.
"""
# What the example sets; all else is commented out, at its default.
JOB_SETS = {
    "launch_script": "/srv/project/train.py",
    "launch_args": ["--epochs", "3", "--batch-size", "256"],
    "launch_env": {"NCCL_DEBUG": "WARN"},
    "launch_stall_timeout": 600,
}
# Of a launch that runs already.
NOT_OF_A_JOB = ("launch_attach", "launch_stop")
# The cluster's own that a job may well set for itself.
OF_THE_CLUSTER = ("cluster_launch_nodes", "cluster_nproc_per_node", "cluster_backend", "cluster_master_port")


def lab_options() -> str:
    """Return the text of the file."""
    roles = [path.parents[1].name for path in ROOT.glob("roles/*/meta/argument_specs.yml")]
    steps = importlib.import_module("muster.road.steps").STEPS
    order = [role for step in steps for role in step.roles]
    roles.sort(key=lambda role: (order.index(role) if role in order else len(order), role))
    return HEAD + "".join(_role(role) for role in roles if role not in NOT_FOR_A_LAB)


def job_options() -> str:
    """Return the text of the example of a job."""
    launch = {name: option for name, option in _specs("launch")["options"].items() if name not in NOT_OF_A_JOB}
    cluster = _specs("cluster")["options"]
    launch.update((name, cluster[name]) for name in OF_THE_CLUSTER)
    commands = importlib.import_module("muster.verdict.commands")
    typed = commands.Terminal(".venv/bin/", ("inventory/lab",)).text(commands.playbook("playbooks/launch.yml"))
    return JOB_HEAD.format(launch=typed) + "".join(
        _option(name, option, JOB_SETS.get(name)) for name, option in launch.items()
    )


def _specs(role: str) -> dict[str, Any]:
    specs = yaml.safe_load((ROOT / "roles" / role / "meta/argument_specs.yml").read_text())
    main: dict[str, Any] = next(iter(specs["argument_specs"].values()))
    return main


def _role(role: str) -> str:
    main = _specs(role)
    rule = "#" * 120
    options = "".join(_option(name, option) for name, option in main.get("options", {}).items())
    return f"\n{rule}\n# {role}: {main['short_description']}\n{rule}\n{options}"


def _option(name: str, option: dict[str, Any], value: Any = None) -> str:
    """The option's meaning and its value, or its default, commented out."""
    description = option["description"]
    meaning = description if isinstance(description, str) else " ".join(description)
    if "choices" in option:
        meaning += f" One of {', '.join(map(str, option['choices']))}."
    lines = textwrap.wrap(meaning, width=120, initial_indent="# ", subsequent_indent="# ")
    # JSON is YAML on one line, with every text in quotes.
    shown = json.dumps(option.get("default") if value is None else value, ensure_ascii=False)
    return "\n".join(["", *lines, f"{'# ' if value is None else ''}{name}: {shown}", ""])


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        sys.stdout.write(lab_options())
    elif sys.argv[1:] == ["--show-job"]:
        sys.stdout.write(job_options())
    else:
        TARGET.write_text(lab_options())
        JOB.write_text(job_options())
