"""Variables given to this run with -e, on the command line or in job files, and where each variable is set."""

from __future__ import annotations

import os
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

# The variable in which Ansible keeps words of -e that are not NAME=value.
UNASSIGNED = "_raw_params"
COMMAND_LINE = "-e"
RUNNING = ("launch_attach", "launch_stop")
# The beginning of a template, or of a text that sets its own delimiters (Ansible's JINJA2_OVERRIDE).
TEMPLATES, OVERRIDE = ("{{", "{%", "{#"), "#jinja2:"
DEEPEST = 50  # levels of nesting in a variable
REFUSED = 2  # exit code of a rejected run


def read_run(loader: DataLoader) -> Mapping[str, Any]:
    """Return the variables as given. Ansible has recorded in each value where it is set."""
    given: Mapping[str, Any] = load_extra_vars(loader)
    return given


def places_of(run: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): _place(name, value) for name, value in run.items() if name != UNASSIGNED}


def _place(name: str, value: Any) -> str:
    """Return where a value is set, as the line of its key unless the key was first set elsewhere."""
    of_name, of_value = written_at(name), written_at(value)
    if value is None or isinstance(value, bool) or same_file(of_name, of_value):
        return of_name or COMMAND_LINE  # Ansible does not record the place of these values
    return of_value or COMMAND_LINE


def same_file(one: str, other: str) -> bool:
    return file_of(one) == file_of(other)


def file_of(where: str) -> str:
    """Return the file of a place. A place in a file of JSON has no line."""
    return where.rpartition(" line ")[0] or where


def refuse_code(loader: DataLoader) -> None:
    """Stop the run if a job file contains code that would run on the controller. Must be called before the first play,
    because Ansible evaluates the file's variables from then on."""
    if found := code_in(read_run(loader), [Path(book).name for book in playbooks(context.CLIARGS)]):
        lines = ["The job file was not used, and no node was contacted.", *(f"- {one}" for one in found)]
        Display().error("\n".join(lines), wrap_text=False)
        raise SystemExit(REFUSED)


def code_in(run: Mapping[str, Any], books: Sequence[str]) -> list[str]:
    """Return sentences about code in job files given with -e. books: the file names of the playbooks."""
    of_files = {str(name): where for name, value in run.items() if (where := written_at(value) or written_at(name))}
    by_file: dict[str, list[str]] = {}
    for name, where in of_files.items():
        by_file.setdefault(file_of(where), []).append(name)
    jobs = {name: of_files[name] for names in by_file.values() if job.is_job_file(books, names) for name in names}
    templates = [(name, place or jobs[name]) for name in jobs for place in _templates(run[name], DEEPEST)]
    shared = {name: where for name, where in jobs.items() if not of_runner(file_of(where))}
    return job.code_in_a_job(shared, list(dict(templates).items()))


def of_runner(file: str) -> bool:
    """Return whether ansible-runner wrote the file: it passes the variables of its own caller in a file."""
    artifacts = os.environ.get("AWX_ISOLATED_DATA_DIR", "")  # set by ansible-runner to a folder below its own
    return bool(artifacts) and os.path.realpath(file) == os.path.realpath(f"{artifacts}/../../env/extravars")


def _templates(value: Any, levels: int) -> Iterator[str]:
    """Yield the places of strings that Ansible would treat as templates. Values that are nested too deep count as
    templates."""
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
    """Return whether a value is a template. Vault values are not, because Ansible does not template them."""
    if not isinstance(value, str) or not is_trusted_as_template(value):
        return False
    return value.startswith(OVERRIDE) or any(mark in value for mark in TEMPLATES)


def unassigned(run: Mapping[str, Any], sentence: str = "") -> tuple[str, ...]:
    """Return the words that are not assignments. sentence: the value of an option that can contain spaces."""
    of_it = sentence.split()[1:]
    return tuple(word for word in str(run.get(UNASSIGNED, "")).split() if word not in of_it)


def open_secrets(run: Mapping[str, Any]) -> list[str]:
    """Return warnings about secrets in clear text in a job file."""
    env = run.get("launch_env")
    names = env.items() if isinstance(env, dict) else ()
    return [
        f"{where}: launch_env contains {name} in clear text. Job files are kept and shared: move the value into"
        " launch_env_file."
        for name, value in names
        if SECRET_NAME.search(str(name)) and not isinstance(value, EncryptedString) and (where := written_at(name))
    ]


def unusable_files(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield options that refer to an unusable file on the controller, with the reason. A running launch needs no
    file."""
    if any(values.get(name) for name in RUNNING):
        return
    options = job.options_of(InventoryNode("", values))
    env_file = values.get("launch_env_file")
    if options.script_src and (why := _unsendable(options.script_src)):
        yield "launch_script_src" if values.get("launch_script_src") else "launch_script", why
    project = values.get("launch_project")
    if project and not Path(str(project)).is_dir():
        yield "launch_project", f"{project} is not a folder on the controller"
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
