"""Validate the variables given to one run (-e or a job file): their names, and launch options that exclude each other.

An unknown name is harmless in an inventory, where a site may have its own variables. In a job file an unknown name is a
mistake, because the launch would run without the intended option.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ..launch import attempts, image
from ..launch.manager import CLUSTER_USER
from ..launch.options import LaunchCluster, LaunchOptions
from ..launch.plan import LaunchRequest, problems_of
from ..verdict.words import few
from .model import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from .model import Inventory, InventoryNode

LAUNCH = "the launch"
# Names with these prefixes are Muster's. Other names may be the site's own, for templates in its inventory.
OURS = ("launch_", "cluster_", "jobs_")
OF_ANSIBLE = ("ansible_", "awx_", "tower_")  # AWX passes variables of its jobs
# Variables that make a file a job file for any playbook; and the playbooks for which every -e file is a job file.
JOBS = ("launch_", "jobs_")
NO_JOBS = "launch_users"  # set by administrators in the inventory
LAUNCHING = ("launch.yml", "plan.yml", "export.yml")
# Options of other roles that a job file can set.
OF_A_LAUNCH = (
    "cluster_launch_nodes",
    "cluster_nproc_per_node",
    "cluster_backend",
    "cluster_master_port",
    "cluster_own_environments",
)
# These choose another launch, or write a file on the controller.
NOT_IN_A_JOB = ("launch_attach", "launch_stop", "launch_export_to", "launch_export_file", "jobs_attach", "jobs_stop")
# What a launch runs; at least one is required.
RUNS = ("launch_script", "launch_script_src", "launch_module", "launch_command")
SCRIPTS = RUNS[:2]
# These select a running launch.
RUNNING = ("launch_attach", "launch_stop")
# The only options with a meaning below 0 (no rank, or every rank).
MAY_BE_NEGATIVE = ("jobs_rank", "launch_show_rank")
NO_CLUSTER = LaunchCluster("", "", 0, "", "")  # for requests that are never planned
EXAMPLE = "examples/job.yml lists all options"
# Least similarity of a name to an option (difflib's ratio).
NEAR = 0.7
NEAR_OTHERS = 0.85


@dataclass(frozen=True)
class WholeRun:
    """Why a playbook must run on all nodes, and why it must run all tasks; "" if a subset is allowed."""

    nodes: str = ""
    tasks: str = ""


def forgotten_at(inventory: Inventory) -> Iterator[Problem]:
    """Report a file that was passed to -e without the @. Ansible ignores such an argument."""
    for word in inventory.unassigned:
        fix = f"Use -e @{word} if it is a file, or -e NAME=VALUE to set a variable"
        yield Problem("the command line", f"-e {word} sets no variable", fix)


def given_names_are_options(inventory: Inventory) -> Iterator[Problem]:
    for name, where in inventory.given.items():
        if name in inventory.options or name in inventory.not_options:
            continue
        what, meant = f"{name} is not a Muster option", nearest(inventory, name)
        if meant:
            yield Problem(where, f"{what} (did you mean {meant}?)", "Correct or remove it")
        elif name.startswith(OURS):
            yield Problem(where, what, f"Remove it; {EXAMPLE}")
        elif not name.startswith(OF_ANSIBLE):
            yield Problem(where, f"{what}, and the inventory does not use it", "Remove it")


def requests_are_of_this_run(inventory: Inventory) -> Iterator[Problem]:
    """Report variables of the inventory that the playbook would take for options of this run, such as `driver`."""
    names = {name: node.places.get(name, "") for node in inventory.nodes for name in node.unknown}
    for name in sorted({*inventory.requests} & names.keys() - inventory.given.keys()):
        what = f"{name} is a variable of the inventory, and this playbook reads it as an option of one run"
        yield Problem(names[name] or "the inventory", what, f"Rename it, or run with -e {name}=VALUE")


def nearest(inventory: Inventory, name: str) -> str:
    """Return the option with the most similar name, or "". The common prefix is ignored in the comparison."""
    if not name.startswith(OURS):
        return next(iter(difflib.get_close_matches(name, inventory.options, 1, NEAR_OTHERS)), "")
    subject, _, rest = name.partition("_")
    own = {option.partition("_")[2]: option for option in inventory.options if option.startswith(f"{subject}_")}
    whole = (option for option in inventory.options if option.endswith(f"_{name}"))  # cluster_launch_nodes
    near = [own[one] for one in difflib.get_close_matches(rest, own, 1, NEAR)]
    others = (option for option in inventory.options if option.startswith(OURS) and option.endswith(f"_{rest}"))
    return next(iter([*whole, *near, *others]), "")


def unusable_files(inventory: Inventory) -> Iterator[Problem]:
    for option, why in inventory.unusable:
        yield Problem(place(inventory, option), why.rstrip("."), f"Correct {option}")


def one_thing_is_launched(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes[:1]:
        requested, scripts = chosen(node, RUNS), chosen(node, SCRIPTS)
        if len(scripts) > 1:
            yield Problem(
                place(inventory, *scripts), f"{listed(scripts)} are set, but a launch runs one", "Remove one of them"
            )
        running = chosen(node, RUNNING)
        if len(running) > 1:
            what = f"{listed(running)} are set, but only one of them is allowed"
            yield Problem(place(inventory, *running), what, "Remove one of them")
        # Misspelt options and options of the wrong type are reported by other rules.
        meant = {nearest(inventory, name) for name in inventory.given if name not in inventory.options}
        reported = [name for name in (*RUNS, *RUNNING) if name in node.errors or name in meant]
        if inventory.launches and not requested and not running and not reported:
            yield Problem(LAUNCH, "no script, module or command is set", f"Set launch_script; {EXAMPLE}")


def the_plan_can_be_made(inventory: Inventory) -> Iterator[Problem]:
    """Report the problems that planning the launch finds. Each of its messages starts with the option's name."""
    for node in inventory.nodes[:1]:
        options = options_of(node)
        sent = options.script_src
        fetch = {"fetch": {"patterns": options.fetch}} if options.fetch else {}
        if not chosen(node, RUNS):  # one_thing_is_launched reports a missing script
            options = replace(options, script="/nothing")
        request = LaunchRequest(options, NO_CLUSTER, "", sent=sent, more=fetch, project={} if options.project else None)
        of_image = image.problems_of(
            options.image,
            options.image_folders,
            environment=options.environment,
            script="" if sent or options.project else options.script,
        )
        for sentence in (*problems_of(request), *of_attempts(inventory, node, options), *of_image):
            option = next(iter(re.findall(r"\blaunch_\w+", sentence)), "")
            yield Problem(
                place(inventory, option), sentence.rstrip("."), f"Correct {option}" if option else "Correct it"
            )


def options_of(node: InventoryNode) -> LaunchOptions:
    """Return the launch options from the inventory and the run. Values of the wrong type are left out."""
    named: dict[str, Any] = {one.name: node.variables.get(f"launch_{one.name}") for one in fields(LaunchOptions)}
    given = {name: value for name, value in named.items() if value is not None}
    words = {name: value.strip() for name, value in given.items() if isinstance(value, str)}
    return LaunchOptions(**{**given, **words}).with_local_script()


def of_attempts(inventory: Inventory, node: InventoryNode, options: LaunchOptions) -> list[str]:
    """Return the problems of launch_restarts and the options that depend on it."""
    spares, chosen_nodes = options.spares, inventory.launch_nodes()
    taking_part = [one.name for one in inventory.participants() if one.name in chosen_nodes or one.name not in spares]
    usable = [one.name for one in inventory.nodes if not one.quarantined]
    unwatched = options.detached and node.text("launch_as") == CLUSTER_USER
    return attempts.problems(options, taking_part, usable, unwatched=unwatched)


def detached_has_a_limit(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes[:1]:
        detached = node.variables.get("launch_detached") is True and "launch_time_limit" not in node.errors
        if detached and not chosen(node, RUNNING) and (node.number("launch_time_limit") or 0) <= 0:
            what = "launch_detached requires a time limit, but launch_time_limit is not set"
            fix = "Set launch_time_limit (seconds)"
            yield Problem(place(inventory, "launch_detached"), what, fix, option="launch_detached")


def numbers_are_possible(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for name, value in node.variables.items():
            if not name.startswith(("launch_", "jobs_")) or isinstance(value, bool):
                continue
            least = -1 if name in MAY_BE_NEGATIVE else 0
            if isinstance(value, (int, float)) and not value >= least:
                where = inventory.given.get(name, node.name)
                yield Problem(where, f"{name} is {value}; the minimum is {least}", f"Correct {name}", option=name)


def arguments_are_words(inventory: Inventory) -> Iterator[Problem]:
    """Report arguments such as "--epochs 3", which the script would receive as a single unknown argument."""
    for node in inventory.nodes[:1]:
        for number, entry in enumerate(entries(node, "launch_args"), 1):
            word, space, _rest = entry.partition(" ")
            if space and word.startswith("-") and "=" not in word:
                # The value may be a secret, so it is not shown.
                what = f"entry {number} of launch_args has a space after {word}, but is passed as one argument"
                fix = f'Make each word a separate entry: launch_args: ["{word}", "..."]'
                yield Problem(place(inventory, "launch_args"), what, fix)


RULES = (
    forgotten_at,
    given_names_are_options,
    requests_are_of_this_run,
    unusable_files,
    one_thing_is_launched,
    the_plan_can_be_made,
    detached_has_a_limit,
    numbers_are_possible,
    arguments_are_words,
)


def is_job_file(books: Collection[str], names: Collection[str]) -> bool:
    """Return whether a file given with -e is a job file.

    books: file names of the playbooks. names: variables in the file.
    """
    return bool({*LAUNCHING} & {*books}) or any(
        name.startswith(JOBS) and not name.startswith(NO_JOBS) for name in names
    )


def code_in_a_job(names: Mapping[str, str], templates: Sequence[tuple[str, str]]) -> list[str]:
    """Report templates in job files, and variables that are not options of a launch. Job files are shared between
    users, and other variables can run programs on the controller, such as cluster_notify_command.

    names: where each variable is set in a job file. templates: where each variable that contains a template is set.
    """
    found = [
        f"{where}: {_shown(name)} contains a template, which would run on the controller; a job file may contain only"
        " data. Replace the template with a value, move it to the inventory, or mark it with !unsafe to pass it"
        " unchanged."
        for name, where in templates
    ]
    return found + [
        f"{where}: {_shown(name)} is not allowed in a job file{_meant(name)}. A job file may contain only options of a"
        " launch; set others in the inventory or with -e."
        for name, where in names.items()
        if not is_of_a_job(name)
    ]


def is_of_a_job(name: str) -> bool:
    """Return whether a job file can set a variable. Misspelt options of a launch are reported later, with all other
    problems."""
    ours = name.startswith(JOBS) and not name.startswith(NO_JOBS) and name not in NOT_IN_A_JOB
    return name in OF_A_LAUNCH or (ours and name.isidentifier())


def _meant(name: str) -> str:
    known = filter(is_of_a_job, (*OF_A_LAUNCH, *(f"launch_{one.name}" for one in fields(LaunchOptions))))
    near = difflib.get_close_matches(name, list(known), 1, NEAR_OTHERS)
    return f" (did you mean {near[0]}?)" if near and name not in NOT_IN_A_JOB else ""


def _shown(name: str) -> str:
    return name if name.isidentifier() else repr(name[:80])


def part_of_the_run(limit: str, left_out: Sequence[str], tags: Sequence[str], whole: WholeRun, command: str) -> str:
    """Return why a run with --limit or tags is rejected, as one sentence; "" if the run is allowed.

    limit, tags: the values given by the user. left_out: nodes excluded by the limit. command: the same run without
    --limit and tags.
    """
    options = []
    if limit and whole.nodes:
        leaves = f" leaves out {few(left_out)}" if left_out else " might leave out nodes"
        options.append((f"--limit {limit}{leaves}", whole.nodes))
    if tags and whole.tasks:
        options.append((f"{' '.join(tags)} leaves out tasks", whole.tasks))
    if not options:
        return ""
    what = " and ".join(option for option, _ in options)
    why = "; ".join(dict.fromkeys(reason for _, reason in options))
    return f"No node was contacted: {what}. {why}. Run the whole playbook: {command}"


def is_of_the_run(inventory: Inventory, problem: Problem) -> bool:
    """Return whether the problem is in a variable given to the run rather than in the inventory."""
    return problem.place in {LAUNCH, "the command line", *inventory.given.values()}


def chosen(node: InventoryNode, names: tuple[str, ...] | list[str]) -> list[str]:
    return [name for name in names if node.variables.get(name)]


def entries(node: InventoryNode, name: str) -> list[str]:
    value: Any = node.variables.get(name)
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def place(inventory: Inventory, *names: str) -> str:
    """Return where the first of these variables was given to the run; LAUNCH if none was given."""
    return next((inventory.given[name] for name in names if name in inventory.given), LAUNCH)


def listed(names: list[str]) -> str:
    return f"both {names[0]} and {names[1]}" if len(names) == 2 else f"{', '.join(names[:-1])} and {names[-1]}"
