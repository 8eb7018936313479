"""What is given to one run, with -e or in a job file: its names, and what of a launch goes together.

A name that nobody knows is harmless in an inventory, where a site has names of its own; in a job it is a mistake, and
the launch runs without what it was to say.
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
# Whatever begins so is meant for Muster. The rest of a job may be the site's own.
OURS = ("launch_", "cluster_", "jobs_")
# What a job file sets, whatever the playbook; and the playbooks for which every file behind -e is one.
JOBS = ("launch_", "jobs_")
NO_JOBS = "launch_users"  # an administrator's, of the inventory
LAUNCHING = ("launch.yml", "plan.yml")
# Variables of Ansible's own that say how somebody logs in, and name no program.
ACCESS = ("ansible_user", "ansible_port", "ansible_become", "ansible_ssh_private_key_file")
# What a launch runs: one of these at least.
RUNS = ("launch_script", "launch_script_src", "launch_module", "launch_command")
SCRIPTS = RUNS[:2]
# A launch that runs already is asked for by these.
RUNNING = ("launch_attach", "launch_stop")
# The only numbers that have a meaning below 0 (no rank, or every rank).
MAY_BE_NEGATIVE = ("jobs_rank", "launch_show_rank")
NO_CLUSTER = LaunchCluster("", "", 0, "", "")  # of a request that is never planned
EXAMPLE = "examples/job.yml lists what there is"
# How much of a name must be that of an option (difflib's ratio).
NEAR = 0.7
NEAR_OTHERS = 0.85


@dataclass(frozen=True)
class WholeRun:
    """Why a playbook must run on all nodes, and with all tasks; "" where a part of either is of use."""

    nodes: str = ""
    tasks: str = ""


def forgotten_at(inventory: Inventory) -> Iterator[Problem]:
    """A file behind -e without its @ is taken by Ansible for words that set nothing."""
    for word in inventory.unassigned:
        fix = f"Write -e @{word} for a file, or NAME=value"
        yield Problem("the command line", f"-e {word} sets no variable", fix)


def given_names_are_options(inventory: Inventory) -> Iterator[Problem]:
    for name, where in inventory.given.items():
        if name in inventory.options or name in inventory.not_options:
            continue
        what, meant = f"{name} is no option of Muster", nearest(inventory, name)
        if meant:
            yield Problem(where, f"{what} (did you mean {meant}?)", "Correct it, or take it out")
        elif name.startswith(OURS):
            yield Problem(where, what, f"Take it out; {EXAMPLE}")


def nearest(inventory: Inventory, name: str) -> str:
    """The option that was probably meant, or "". What options have in common at their beginning tells nothing."""
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
                place(inventory, *scripts), f"{listed(scripts)} are set, and a launch has one", "Keep one of them"
            )
        running = chosen(node, RUNNING)
        if len(running) > 1:
            what = f"{listed(running)} are set, and a launch is either followed or ended"
            yield Problem(place(inventory, *running), what, "Keep one of them")
        # One that is misspelt or of another type is a problem already.
        meant = {nearest(inventory, name) for name in inventory.given if name not in inventory.options}
        said = [name for name in (*RUNS, *RUNNING) if name in node.errors or name in meant]
        if inventory.launches and not requested and not running and not said:
            yield Problem(LAUNCH, "nothing says what is to run", f"Set launch_script; {EXAMPLE}")


def the_plan_can_be_made(inventory: Inventory) -> Iterator[Problem]:
    """What the plan itself says of the request. Each sentence names the option first."""
    for node in inventory.nodes[:1]:
        options = options_of(node)
        sent = options.script_src
        fetch = {"fetch": {"patterns": options.fetch}} if options.fetch else {}
        if not chosen(node, RUNS):  # where there is nothing to launch, another rule knows more
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
    """The options that the inventory and the run give, as far as they are of their type."""
    named: dict[str, Any] = {one.name: node.variables.get(f"launch_{one.name}") for one in fields(LaunchOptions)}
    given = {name: value for name, value in named.items() if value is not None}
    words = {name: value.strip() for name, value in given.items() if isinstance(value, str)}
    return LaunchOptions(**{**given, **words}).with_local_script()


def of_attempts(inventory: Inventory, node: InventoryNode, options: LaunchOptions) -> list[str]:
    """What is wrong with launch_restarts and what belongs to it."""
    spares, chosen_nodes = options.spares, inventory.launch_nodes()
    taking_part = [one.name for one in inventory.participants() if one.name in chosen_nodes or one.name not in spares]
    usable = [one.name for one in inventory.nodes if not one.quarantined]
    unwatched = options.detached and node.text("launch_as") == CLUSTER_USER
    return attempts.problems(options, taking_part, usable, unwatched=unwatched)


def detached_has_a_limit(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes[:1]:
        detached = node.variables.get("launch_detached") is True and "launch_time_limit" not in node.errors
        if detached and not chosen(node, RUNNING) and (node.number("launch_time_limit") or 0) <= 0:
            yield Problem(
                place(inventory, "launch_detached"),
                "launch_detached lets it go on without anybody who watches, and nothing says for how long",
                "Set launch_time_limit, in seconds",
            )


def numbers_are_possible(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for name, value in node.variables.items():
            if not name.startswith(("launch_", "jobs_")) or isinstance(value, bool):
                continue
            least = -1 if name in MAY_BE_NEGATIVE else 0
            if isinstance(value, (int, float)) and not value >= least:
                where = inventory.given.get(name, node.name)
                yield Problem(where, f"{name} is {value}, and cannot be less than {least}", f"Correct {name}")


def arguments_are_words(inventory: Inventory) -> Iterator[Problem]:
    """The script gets each entry as one argument, and its parser then knows no option "--epochs 3"."""
    for node in inventory.nodes[:1]:
        for number, entry in enumerate(entries(node, "launch_args"), 1):
            word, space, _rest = entry.partition(" ")
            if space and word.startswith("-") and "=" not in word:
                # The rest may be a secret, and is shown to nobody.
                yield Problem(
                    place(inventory, "launch_args"),
                    f"entry {number} of launch_args is {word} and more behind a space, and the script gets one word",
                    f'Make each word an entry of its own, as in launch_args: ["{word}", "..."]',
                )


RULES = (
    forgotten_at,
    given_names_are_options,
    unusable_files,
    one_thing_is_launched,
    the_plan_can_be_made,
    detached_has_a_limit,
    numbers_are_possible,
    arguments_are_words,
)


def is_job_file(books: Collection[str], names: Collection[str]) -> bool:
    """Whether a file behind -e is a job file. books: file names of the playbooks. names: the variables that it sets."""
    return bool({*LAUNCHING} & {*books}) or any(
        name.startswith(JOBS) and not name.startswith(NO_JOBS) for name in names
    )


def code_in_a_job(names: Mapping[str, str], templates: Sequence[tuple[str, str]]) -> list[str]:
    """Return sentences on what in job files would run on the controller. Job files are passed on, and are data.

    names: the variables of job files, and where each was written. templates: the variables that hold one, and where.
    """
    found = [
        f"{where}: {name} holds a template, which would run on the controller, and a job file is data. Write the value"
        " itself, put the template into the inventory, or begin the value with !unsafe to pass it on as it is."
        for name, where in templates
    ]
    return found + [
        f"{where}: {name} is not for a job file, because it may choose what runs on the controller. Put it into the"
        " inventory, or behind -e."
        for name, where in names.items()
        if name.startswith("ansible_") and name not in ACCESS
    ]


def part_of_the_run(limit: str, left_out: Sequence[str], tags: Sequence[str], whole: WholeRun, command: str) -> str:
    """Return why a run that would do only a part of its playbook is refused, in one sentence; "" where it may.

    limit, tags: as given. left_out: nodes that the limit leaves out. command: the same run without a selection.
    """
    options = []
    if limit and whole.nodes:
        leaves = f" leaves out {few(left_out)}" if left_out else " may leave out nodes"
        options.append((f"--limit {limit}{leaves}", whole.nodes))
    if tags and whole.tasks:
        options.append((f"{' '.join(tags)} leaves out tasks", whole.tasks))
    if not options:
        return ""
    what = " and ".join(option for option, _ in options)
    why = "; ".join(dict.fromkeys(reason for _, reason in options))
    return f"No node was contacted: {what}. {why}. Run all of it: {command}"


def is_of_the_run(inventory: Inventory, problem: Problem) -> bool:
    """Whether what was given to the run is wrong, and not the inventory."""
    return problem.place in {LAUNCH, "the command line", *inventory.given.values()}


def chosen(node: InventoryNode, names: tuple[str, ...] | list[str]) -> list[str]:
    return [name for name in names if node.variables.get(name)]


def entries(node: InventoryNode, name: str) -> list[str]:
    value: Any = node.variables.get(name)
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def place(inventory: Inventory, *names: str) -> str:
    """Where the first of these that was given to the run stands; else it is of the launch as a whole."""
    return next((inventory.given[name] for name in names if name in inventory.given), LAUNCH)


def listed(names: list[str]) -> str:
    return f"both {names[0]} and {names[1]}" if len(names) == 2 else f"{', '.join(names[:-1])} and {names[-1]}"
