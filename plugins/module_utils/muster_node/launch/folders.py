"""The folders of one launch. What root writes lies in folders that stay root's; what the training user writes, in
folders of its own within them. Nobody can exchange one for a link."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from ..tools import files
from ..tools.program import own_text
from . import project, state
from .kept import keep_plan

if TYPE_CHECKING:
    import pwd

Json = dict[str, Any]

# For the training user, and the group of the one who looks (without sudo: a look each second must not fill the
# journal). What is inside is readable to whoever got that far. (A set-group-ID bit instead would be lost: the training
# user is not in that group.)
OUTER_MODE = 0o750


def make_folders(spec: Json, user: pwd.struct_passwd) -> str:
    """Make all that the unit needs, and return the path of its program. Raises files.UnsafePathError."""
    folder, run_dir = state.state_dir(spec["launch_id"]), spec["run_dir"]
    own, shared = (user.pw_uid, user.pw_gid), (user.pw_uid, spec["reader"]["gid"])
    for path in (folder, run_dir):
        files.make_folder(path, mode=0o755)
    keep_plan(spec)
    files.make_folder(f"{run_dir}/logs", mode=OUTER_MODE, owner=shared)
    if spec["script_name"]:
        files.make_folder(f"{run_dir}/script", mode=0o755)
        body = base64.b64decode(spec.pop("script_body"))
        files.replace(f"{run_dir}/script/{spec['script_name']}", body, mode=0o600, owner=own)
    if spec.get("project"):
        project.place(spec, user)
    if spec["work_dir"]:
        make_kept(spec["work_dir"], own)
    if spec.get("cache_root"):
        make_kept(spec["cache_root"], own)
    files.make_folder(f"{folder}/unit", mode=OUTER_MODE, owner=shared)
    if hook := spec.pop("hook", ""):
        place_hook(folder, hook, spec["env"], own)
    files.replace(f"{folder}/node.py", own_text().encode(), mode=0o644)
    # The environment may hold tokens: it travels in a file that only root and the training user read, never in argv.
    # That user's group may be shared.
    files.replace(f"{folder}/spec.json", json.dumps(spec).encode(), mode=0o400, owner=own)
    reader = (spec["reader"]["uid"], spec["reader"]["gid"])
    files.replace(f"{folder}/lease", state.new_lease(spec["lease"], state.TAKE), mode=0o644, owner=reader)
    return f"{folder}/node.py"


def place_hook(folder: str, hook: str, env: dict[str, str], owner: tuple[int, int]) -> None:
    """Have Python find the hook (diagnosis/hook.py) before all else: it takes itself out of the way again."""
    files.make_folder(f"{folder}/hook", mode=0o755)
    files.replace(f"{folder}/hook/sitecustomize.py", hook.encode(), mode=0o644)
    files.make_folder(f"{folder}/observe", mode=0o700, owner=owner)
    env["PYTHONPATH"] = ":".join(filter(None, (f"{folder}/hook", env.get("PYTHONPATH"))))


def make_kept(path: str, owner: tuple[int, int]) -> None:
    """Make a folder that outlives the launch, unless an earlier one has made it: it goes on being used."""
    try:
        files.make_folder(path, mode=0o700, owner=owner)
    except FileExistsError:
        with files.folder(path, owner=owner[0]):
            return
