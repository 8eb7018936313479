"""Writes a launch as a job file for Slurm or Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import context
from ansible.errors import AnsibleActionFail

from muster.export.job import exported
from muster.export.jobset import jobset
from muster.export.sbatch import MARK, sbatch
from muster.launch.plan import PlanError
from muster_controller.artifacts.private_files import FILE
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muster.launch.options import LaunchOptions
    from muster.launch.plan import LaunchRequest, NodeSpec

FORMS = {"sbatch": (sbatch, ".sbatch", "sbatch"), "kubernetes": (jobset, ".yaml", "kubectl create -f")}
EXPOSED = (
    "{} contains the value of {}, which looks like a secret. Move the value into launch_env_file, read it from the"
    " environment in the script, and export again"
)


def export(options: LaunchOptions, request: LaunchRequest, inventory: Sequence[NodeSpec]) -> dict[str, Any]:
    """Write the file, which only its user can read, and return the result of the task. With --check, nothing is
    written. An existing file is replaced only if Muster wrote it."""
    folders = {
        "script_src": str(Path(options.script_src).expanduser().absolute()) if options.script_src else "",
        "project": str(Path(options.project).expanduser().absolute()) if options.project else "",
    }
    write, suffix, start = FORMS[options.export_to]
    try:
        job = exported(request, inventory, folders)
        text = write(job)
    except PlanError as error:
        raise AnsibleActionFail("Launch rejected. " + " ".join(error.problems)) from None
    except ValueError as error:
        raise AnsibleActionFail(f"The launch cannot be exported: {error}.") from None
    path = Path(options.export_file or f"{job.name}{suffix}").expanduser().absolute()
    there = files.text(str(path))
    if path.exists() and MARK not in (there or "")[:200]:
        raise AnsibleActionFail(f"{path} exists and was not written by Muster: set launch_export_file to another path.")
    if context.CLIARGS.get("check"):  # the task itself is always in check mode
        return {"outcome": f"the launch would be written to {path}"}
    files.replace(str(path), text.encode(), mode=0o700 if suffix == ".sbatch" else FILE)
    warnings = [EXPOSED.format(path, ", ".join(job.exposed))] if job.exposed else []
    return {"outcome": f"wrote {path}. Start it with: {start} {path}", "exported": str(path), "warnings": warnings}
