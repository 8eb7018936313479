"""What was given to this run of ansible-playbook with -e, on the command line or in job files, and where."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import context
from ansible.parsing.vault import EncryptedString
from ansible.template import is_trusted_as_template
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from muster.inventory import InventoryNode, job
from muster.launch.plan import PlanError
from muster.verdict.masking import SECRET_NAME
from muster_controller.inventory.origin import written_at
from muster_controller.playbook.command_line import playbooks

from .environment_file import read_environment
from .sent_script import unsendable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible.parsing.dataloader import DataLoader

# Where Ansible puts the words behind -e that are no NAME=value.
UNASSIGNED = "_raw_params"
COMMAND_LINE = "-e"
RUNNING = ("launch_attach", "launch_stop")
# How a template begins, or a text that says of itself how templates in it do (Ansible's JINJA2_OVERRIDE).
TEMPLATES, OVERRIDE = ("{{", "{%", "{#"), "#jinja2:"
DEEPEST = 50  # levels of nesting in a variable
REFUSED = 2  # how a run ends that is refused


def read_run(loader: DataLoader) -> Mapping[str, Any]:
    """The variables as they were given, with Ansible's own record of where."""
    given: Mapping[str, Any] = load_extra_vars(loader)
    return given


def places_of(run: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): _place(name, value) for name, value in run.items() if name != UNASSIGNED}


def _place(name: str, value: Any) -> str:
    """Where the value is; the line of its name, unless the name was given elsewhere before."""
    of_name, of_value = written_at(name), written_at(value)
    if value is None or isinstance(value, bool) or same_file(of_name, of_value):
        return of_name or COMMAND_LINE  # Ansible knows of these values not where they were
    return of_value or COMMAND_LINE


def same_file(one: str, other: str) -> bool:
    return one.rpartition(" line ")[0] == other.rpartition(" line ")[0]


def refuse_code(loader: DataLoader) -> None:
    """End the run where a job file holds what would run on the controller: before Ansible reads a variable of it, and
    so before the first play."""
    if found := code_in(read_run(loader), [Path(book).name for book in playbooks(context.CLIARGS)]):
        lines = ["Nothing was read from the job file, and no node was contacted.", *(f"- {one}" for one in found)]
        Display().error("\n".join(lines), wrap_text=False)
        raise SystemExit(REFUSED)


def code_in(run: Mapping[str, Any], books: Sequence[str]) -> list[str]:
    """Sentences on what of the job files behind -e is more than data. books: file names of the playbooks."""
    of_files = {str(name): where for name, value in run.items() if (where := written_at(value) or written_at(name))}
    by_file: dict[str, list[str]] = {}
    for name, where in of_files.items():
        by_file.setdefault(where.rpartition(" line ")[0], []).append(name)
    jobs = {name: of_files[name] for names in by_file.values() if job.is_job_file(books, names) for name in names}
    templates = [(name, place or jobs[name]) for name in jobs for place in _templates(run[name], DEEPEST)]
    return job.code_in_a_job(jobs, list(dict(templates).items()))


def _templates(value: Any, levels: int) -> Iterator[str]:
    """Where in a value texts are that Ansible would take for templates; what is nested too deep may hold one."""
    if levels < 0:
        yield written_at(value)
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _templates(name, levels - 1)
            yield from _templates(entry, levels - 1)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _templates(entry, levels - 1)
    elif _is_template(value):
        yield written_at(value)


def _is_template(value: Any) -> bool:
    """What a vault holds is none: Ansible takes it as it is."""
    if not isinstance(value, str) or not is_trusted_as_template(value):
        return False
    return value.startswith(OVERRIDE) or any(mark in value for mark in TEMPLATES)


def unassigned(run: Mapping[str, Any], sentence: str = "") -> tuple[str, ...]:
    """sentence: what is the value of one option, though it has blanks in it."""
    of_it = sentence.split()[1:]
    return tuple(word for word in str(run.get(UNASSIGNED, "")).split() if word not in of_it)


def open_secrets(run: Mapping[str, Any]) -> list[str]:
    """Sentences about secrets that stand in a job file for everybody who reads it."""
    env = run.get("launch_env")
    names = env.items() if isinstance(env, dict) else ()
    return [
        f"{where}: launch_env has {name} in clear text, and a job file is kept and passed on. Put it into"
        " launch_env_file."
        for name, value in names
        if SECRET_NAME.search(str(name)) and not isinstance(value, EncryptedString) and (where := written_at(name))
    ]


def unusable_files(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Options that name a file of the controller which a launch cannot use, and why; a launch that runs needs none."""
    if any(values.get(name) for name in RUNNING):
        return
    options = job.options_of(InventoryNode("", values))
    env_file = values.get("launch_env_file")
    if options.script_src and (why := _unsendable(options.script_src)):
        yield "launch_script_src" if values.get("launch_script_src") else "launch_script", why
    project = values.get("launch_project")
    if project and not Path(str(project)).is_dir():
        yield "launch_project", f"{project} is no folder on the controller"
    if env_file:
        try:
            read_environment(str(env_file))
        except PlanError as problem:
            for sentence in problem.problems:
                yield "launch_env_file", sentence


def _unsendable(name: str) -> str:
    try:
        return unsendable(Path(name))
    except OSError as problem:
        return f"{name} cannot be read: {problem.strerror or problem}"
