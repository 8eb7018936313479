"""The command line: builds the commands from verbs, and starts ansible-playbook in place of this process."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import yaml
from click.core import ParameterSource
from click.shell_completion import get_completion_class

from . import clusters, complete, project_file, why
from .verbs import Verb, VerbOption, VerbSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Options of ansible-playbook that each verb passes on.
VALUES_OF_ANSIBLE = (
    *(["-t", "--tags"], ["--skip-tags"], ["-l", "--limit"], ["-f", "--forks"]),
    *(["--vault-password-file"], ["--vault-id"]),
)
FLAGS_OF_ANSIBLE = (
    *(["--check"], ["--diff"]),
    *(["-K", "--ask-become-pass"], ["-k", "--ask-pass"], ["-J", "--ask-vault-pass"]),
)
NO_PLAYBOOK = ("options", "completion")  # verbs that run none
INTERRUPTED = 130  # exit status after Ctrl-C at a question
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SIMPLE = re.compile(r"[^\s'\"\\{]+")


class Duration(click.ParamType[int]):
    """Seconds, or a number with a unit, such as 90m or 24h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+)([smhd]?)", str(value))
        if not match:
            self.fail(f"{value} is not a duration such as 90m or 24h", param, ctx)
        return int(match[1]) * UNITS[match[2] or "s"]


class Verbs(click.Group):
    def __init__(self, project: VerbSource) -> None:
        super().__init__("muster", help="Bare Ubuntu machines in, a verified multi-node torchrun out.")
        self.project = project

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return [*self.project.names(), *NO_PLAYBOOK]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups = dict(self.project.short["groups"])
        grouped = {name for names in groups.values() for name in names}
        groups["Other"] = [name for name in self.list_commands(ctx) if name not in grouped]
        for heading, names in groups.items():
            commands = {name: self.get_command(ctx, name) for name in names}
            with formatter.section(heading):
                formatter.write_dl([(name, one.short_help or one.help or "") for name, one in commands.items() if one])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "options":
            return search(self.project)
        if cmd_name == "completion":
            return completion(self)
        try:
            return command_of(self.project, self.project.verb(cmd_name))
        except KeyError:
            near = difflib.get_close_matches(cmd_name, self.list_commands(ctx), 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"There is no command {cmd_name}.{hint} See muster --help.") from None


def command_of(project: VerbSource, verb: Verb) -> click.Command:
    def run(**given: Any) -> None:
        start(project, verb, given)

    known = {one.variable: one for one in verb.options}
    named = dict(zip(bare(verb.arguments), verb.arguments, strict=True))
    positional = {name: argument(project, words, known.get(name)) for name, words in named.items()}
    texts = [
        f"{one.human_readable_name.strip('[].')}: {known[name].text}"
        for name, one in positional.items()
        if name in known
    ]
    params: list[click.Parameter] = [*positional.values()]
    params += [parameter(project, one) for one in verb.options if one.variable not in named]
    params += [
        click.Option(
            ["-c", "--cluster"],
            default="",
            envvar="MUSTER_CLUSTER",
            help="Name or inventory of the cluster.",
            shell_complete=lambda *_: [*clusters.registered(project.root)],
        ),
        click.Option(["-o", "-e", "--option"], multiple=True, metavar="NAME=VALUE", help="Any Muster option."),
        *(click.Option(words, multiple=True, hidden=True) for words in VALUES_OF_ANSIBLE),
        *(click.Option(words, is_flag=True, hidden=True) for words in FLAGS_OF_ANSIBLE),
        click.Option(["-v", "--verbose"], count=True, hidden=True),
        click.Option(["--ansible"], multiple=True, metavar="WORDS", help="More options for ansible-playbook."),
        click.Option(["--show"], is_flag=True, help="Print the ansible-playbook command, and do not run it."),
        click.Option(
            ["--json", "as_json"], is_flag=True, help="Print the result as one JSON object on standard output."
        ),
    ]
    if verb.confirmed:
        params.append(click.Option(["--yes"], is_flag=True, help="Do not ask. Requires -c."))
    defaults = {}
    if verb.name in ("run", "environment"):
        options = project.verb("run").options
        defaults = project_file.defaults(Path.cwd(), clusters.registered(project.root), options, project)
    settings = {"default_map": defaults}
    text = "\n\n".join([verb.text, *texts])
    return click.Command(verb.name, settings, params=params, callback=run, help=text, short_help=verb.text)


def bare(arguments: Iterable[str]) -> list[str]:
    return [one.removesuffix("...").removesuffix("!") for one in arguments]


def argument(project: VerbSource, name: str, option: VerbOption | None) -> click.Argument:
    (variable,) = bare([name])
    several, required = name.endswith("..."), name.endswith("!")
    choices = option.choices if option else ()
    is_launch = project.short["complete"].get(variable) == "launches"
    word = "|".join(choices) or ("ID" if is_launch else variable.rpartition("_")[2].upper())
    return click.Argument(
        [variable],
        type=click.Choice(choices) if choices else str,
        required=required,
        nargs=-1 if several else 1,
        metavar=word if required else f"[{word}]{'...' if several else ''}",
        shell_complete=completer(project, variable),
    )


def completer(project: VerbSource, variable: str) -> Any:
    """Return what completes a variable; None for the shell's own files."""
    kind = project.short["complete"].get(variable)
    if kind is None:
        return None

    def found(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
        *before, last = begun.split(",")
        known = complete.values(project, kind, ctx.params.get("cluster") or "")
        return [",".join([*before, one]) for one in known if one.startswith(last)]

    return found


def parameter(project: VerbSource, option: VerbOption) -> click.Option:
    shown = option.default not in (None, "", [], {}) and "{{" not in str(option.default)
    text = f"{option.text} Default: {option.default}" if shown else option.text
    words = [*option.flags, option.variable]
    if option.type == "bool":
        long = next(flag for flag in option.flags if flag.startswith("--"))
        words = [*(f for f in option.flags if f != long), f"{long}/--no-{long[2:]}", option.variable]
        return click.Option(words, default=None, help=text)
    kinds: dict[str, Any] = {"int": int, "float": float}
    kind = click.Choice(option.choices) if option.choices else kinds.get(option.type, str)
    if "--time" in option.flags:
        kind = Duration()
    metavar = {"dict": "NAME=VALUE", "path": "PATH"}.get(option.type)
    return click.Option(
        words,
        type=kind,
        multiple=option.is_list,
        default=None,
        metavar=metavar,
        help=text,
        shell_complete=completer(project, option.variable),
    )


def start(project: VerbSource, verb: Verb, given: dict[str, Any]) -> None:
    """Print the command of ansible-playbook, or replace this process with it."""
    if verb.name == "why" and (source := given["diagnose_launch"] or given["diagnose_log"]) and why.is_of_logs(source):
        why.show(project.root, source, as_json=given["as_json"])
        return
    known = clusters.choices(clusters.registered(project.root))
    if len(known) > 1 and not given["cluster"] and sys.stdin.isatty() and not without_cluster(project, verb):
        given["cluster"] = click.prompt("Which cluster?", type=click.Choice([*known]))
    try:
        words = words_of(project, verb, given)
    except clusters.UnknownClusterError as problem:
        raise click.UsageError(str(problem)) from None
    if given["show"]:
        click.echo(shlex.join(words))
        return
    if verb.confirmed:
        confirm(verb, words, given)
    if given["as_json"]:
        os.environ["MUSTER_JSON"] = "yes"
    replace_process(project, words, given["cluster"] or given.get("import_to") or "")


def without_cluster(project: VerbSource, verb: Verb) -> bool:
    return Path(verb.book).stem in project.short["without_cluster"]


def words_of(project: VerbSource, verb: Verb, given: Mapping[str, Any]) -> list[str]:
    """Return the command of ansible-playbook. Raises UnknownClusterError."""
    known = clusters.registered(project.root)
    variables = variables_of(project, verb, given)
    words = [str(Path(sys.executable).with_name("ansible-playbook")), str(project.root / verb.book)]
    if without_cluster(project, verb):
        words += ["-i", str(project.root / "inventory/lab")]
    else:
        words += ["-i", str(clusters.chosen(given["cluster"], known))]
    words += verb.words
    if steps := given.get("steps"):
        words += ["--tags", ",".join(steps)]
    for name, *_ in (reversed(one) for one in VALUES_OF_ANSIBLE):
        words += [word for value in given[name[2:].replace("-", "_")] for word in (name, value)]
    words += [name for name, *_ in (reversed(one) for one in FLAGS_OF_ANSIBLE) if given[name[2:].replace("-", "_")]]
    words += ["-" + "v" * given["verbose"]] if given["verbose"] else []
    for name, value in variables.items():
        plain = isinstance(value, str) and SIMPLE.fullmatch(value)
        words += ["-e", f"{name}={value}" if plain else json.dumps({name: value})]
    words += [word for one in given["option"] for word in ("-e", one)]
    return [*words, *(word for more in given["ansible"] for word in shlex.split(more))]


def confirm(verb: Verb, words: Sequence[str], given: Mapping[str, Any]) -> None:
    """Ask for the name of the cluster before nodes lose something."""
    path = Path(words[words.index("-i") + 1])
    name = path.name if path.name not in ("", "..") else path.resolve().name
    if not name:
        raise click.UsageError(f"{path} is not the inventory of a cluster.")
    if given["yes"]:
        if click.get_current_context().get_parameter_source("cluster") is not ParameterSource.COMMANDLINE:
            raise click.UsageError("--yes requires -c NAME, so that the cluster is explicit.")
        return
    named = ", ".join(str(given[one]) for one in bare(verb.arguments) if given[one])
    click.echo(f"muster {verb.name} changes cluster {name}{f', nodes {named}' if named else ''}.")
    if click.prompt("Type the name of the cluster to continue", default="", show_default=False) != name:
        raise click.UsageError("The name differs. Nothing was changed.")


def variables_of(project: VerbSource, verb: Verb, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given, as variables. Lists come as tuples, mappings as NAME=VALUE."""
    options = {one.variable: one for one in verb.options}
    variables: dict[str, Any] = {}
    for name in [*bare(verb.arguments), *options]:
        value = given.get(name)
        if value in (None, (), "") or name == "steps":
            continue
        kind = options[name].type if name in options else "str"
        if kind == "dict":
            value = pairs(name, value)
            if files := project.short["declarations"].get(name):
                value = {key: declaration(text, files) for key, text in value.items()}
        elif isinstance(value, tuple):
            nodes = project.short["complete"].get(name) == "nodes"
            value = [one for words in value for one in (words.split(",") if nodes else [words])]
        elif name in project.short["paths"] and "@sha256:" not in value:  # an image has a digest or is a file
            value = str(Path(value).expanduser().absolute())
        variables[name] = value
    if verb.here and verb.here not in variables and variables.get("launch_script", "/")[:1] != "/":
        variables[verb.here] = str(Path.cwd())
    for name in (one for one, value in variables.items() if project_file.has_template(value)):
        raise click.UsageError(f"{name} contains a template. Write the value itself, or use -o {name}=VALUE.")
    return variables


def pairs(name: str, words: Iterable[str]) -> dict[str, str]:
    found = dict(word.partition("=")[::2] for word in words)
    if "" in found or not all("=" in word for word in words):
        raise click.UsageError(f"{name} takes NAME=VALUE.")
    return found


def declaration(text: str, files: Sequence[str]) -> Any:
    """Return a declaration, with absolute paths of its files. Anything else than a mapping is rejected later."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        raise click.UsageError(f"{text} is not valid YAML.") from None
    paths = [key for key in files if isinstance(found, dict) and isinstance(found.get(key), str)]
    return {**found, **{key: str(Path(found[key]).expanduser().absolute()) for key in paths}} if paths else found


def replace_process(project: VerbSource, words: list[str], cluster: str) -> NoReturn:
    env = {**os.environ, "ANSIBLE_CONFIG": str(project.root / "ansible.cfg"), "MUSTER_DOOR": door(project, cluster)}
    if project.root.name == clusters.INSTALLED:
        folders = {"MUSTER_STATE": clusters.state(project.root), "MUSTER_INVENTORIES": clusters.own()}
        for name, folder in folders.items():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            env.setdefault(name, str(folder))
    runner = str(Path(__file__).with_name("playbook.py"))
    os.execve(sys.executable, [sys.executable, "-P", runner, *words[1:]], env)


def door(project: VerbSource, cluster: str) -> str:
    """Return what printed commands begin with, as muster.verdict.commands.Door reads it."""
    beside = Path(sys.executable).with_name("muster")  # of an installation, or as script/setup writes it
    program = "muster" if shutil.which("muster") or not beside.exists() else shlex.quote(str(beside))
    return json.dumps({"program": program, "cluster": cluster, "verbs": project.verb_of_books()})


def search(project: VerbSource) -> click.Command:
    """The command `options`: names and texts that contain a word."""

    def show(word: str) -> None:
        found = [one for _, one in project.all_options() if word.lower() in f"{one.variable} {one.text}".lower()]
        for one in found:
            click.echo(f"{one.variable} ({one.type}, default: {one.default})\n    {one.text}")
        if not found:
            raise click.UsageError(f"No option has {word} in its name or text.")

    text = "Search the options of all roles."
    return click.Command("options", params=[click.Argument(["word"], default="")], callback=show, help=text)


def completion(cli: click.Command) -> click.Command:
    """The command `completion`: the script that a shell evaluates."""

    def show(shell: str) -> None:
        if made := get_completion_class(shell):
            click.echo(made(cli, {}, "muster", "_MUSTER_COMPLETE").source())

    argument = click.Argument(["shell"], type=click.Choice(["bash", "zsh", "fish"]))
    text = 'Print the completion script of a shell. For bash: eval "$(muster completion bash)"'
    return click.Command("completion", params=[argument], callback=show, help=text)


def main() -> None:
    try:
        raise SystemExit(Verbs(VerbSource(root())).main(prog_name="muster", standalone_mode=False))
    except click.ClickException as problem:
        problem.show()
        raise SystemExit(problem.exit_code) from None
    except click.Abort:
        raise SystemExit(INTERRUPTED) from None


def root() -> Path:
    """Return the project: beside this package in a checkout, within it in an installation."""
    here = Path(__file__).resolve().parent
    return next(one for one in (here / clusters.INSTALLED, here.parent) if (one / "ansible.cfg").exists())
