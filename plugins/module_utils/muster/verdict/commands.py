"""Commands for users to copy and paste.

Rules know neither the user's working folder nor the inventory of this run, so they write commands in a plain form with
the functions of this module. Before text is shown or written to an artifact, `Terminal` completes its commands so that
they can be run unchanged.

A developer writes the text of a command. The values in a command (a name, a path, a PID) can come from a node, a user
or a log. The text has a placeholder for each value, which is filled once, with the value quoted as one word. If quoting
cannot make a value safe (see `usable`), the command is "".
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CONTACT_NO_NODE = ("plan", "export", "validate", "import", "report")
WITHOUT_ROOT = tuple(f"playbooks/{name}.yml" for name in (*CONTACT_NO_NODE, "trust"))
EVERYBODYS = tuple(  # for users without root
    f"playbooks/{name}.yml" for name in ("launch", "jobs", "notebook", "environment", "diagnose")
)
_BOOK = r"(?:site|playbooks/[a-z_]+)\.yml"
# Matches only commands in the form written below, not commands that already have an inventory.
COMMAND = re.compile(
    rf"""(?<![\w./-])(?:
    ansible-playbook\ (?P<again>\.\.\.)(?=\ -e\ )
    | ansible-playbook\ (?P<books>{_BOOK}(?:\ {_BOOK})*)(?!\w|\ -i\ |\ {_BOOK})
    | ansible\ (?P<node>'[^']+'|[^\s']+)(?=\ (?:--become\ )?-m\ ansible\.builtin\.(?:command|ping)\b)
    | python\ (?P<tool>script/[a-z_]+\.py)
    | (?P<vault>ansible-vault)(?=\ encrypt_string\ --prompt\b)
    )""",
    re.VERBOSE,
)
OPTIONS = re.compile(r"(?:\ -{1,2}[\w-]+(?:[ =](?:'[^']*'|(?!-)[^\s']+))?)*")


# The option that selects one launch, and the verb of `muster` that has it as its argument.
ONE_LAUNCH = re.compile(r" -e (launch_attach|launch_stop|jobs_logs)=([\w-]+)")
VERBS = {"launch_attach": "attach", "launch_stop": "stop", "jobs_logs": "logs"}

PLACE = re.compile(r"\{([a-z_]+)\}")
NODES = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\[\]-]{0,252}")  # a node, group, or range such as node[1:2]; ASCII only
LONGEST_VALUE = 1000


def usable(value: str) -> bool:
    """Return whether a value is safe in a command when it is quoted. It must not be an option or an Ansible template
    (Ansible evaluates templates on the command line too), or contain terminal control characters."""
    return (
        0 < len(value) <= LONGEST_VALUE
        and value.isprintable()
        and not value.startswith("-")
        and not any(mark in value for mark in ("{{", "{%", "{#"))
    )


def shell(text: str, /, **values: object) -> str:
    """Return a shell command. text: contains placeholders such as {path}, which must not be inside quotes. values: each
    value becomes one word or a part of one word; a list becomes several words."""
    words = {
        name: [*map(str, value)] if isinstance(value, (list, tuple)) else [str(value)] for name, value in values.items()
    }
    named = [words[name] for name in PLACE.findall(text) if name in words]
    if not all(all(map(usable, one)) and one for one in named):
        return ""
    return PLACE.sub(lambda found: shlex.join(words[found[1]]) if found[1] in words else found[0], text)


def playbook(path: str, tags: str = "", **variables: object) -> str:
    """Return a command that runs a playbook. path: relative to the project's folder, such as playbooks/health.yml.
    variables: passed with -e."""
    return _with_extra(["ansible-playbook", path, *(["--tags", tags] if tags else [])], variables)


def playbook_with(path: str, variables: Mapping[str, Any]) -> str:
    """Return a command that runs a playbook with variables of any type, as JSON."""
    words = [word for value in variables.values() for word in (value if isinstance(value, (list, dict)) else [value])]
    if not all(usable(f"={word}") for word in map(str, words)):
        return ""
    return shlex.join(["ansible-playbook", path, "-e", json.dumps(variables, ensure_ascii=False)])


def again(**variables: object) -> str:
    """Return the command of this run with additional variables."""
    return _with_extra(["ansible-playbook", "..."], variables)


def _with_extra(words: list[str], variables: Mapping[str, object]) -> str:
    values = {name: str(value) for name, value in variables.items()}
    if not all(map(usable, values.values())):
        return ""
    return shlex.join([*words, *(word for name, value in values.items() for word in ("-e", _variable(name, value)))])


def _variable(name: str, value: str) -> str:
    """Return the argument for -e. It is JSON if Ansible would split name=value at a space and set another variable."""
    return json.dumps({name: value}, ensure_ascii=False) if re.search(r"[\s'\"\\]", value) else f"{name}={value}"


def on_node(node: str, command: str, /, *, become: bool = False, **values: object) -> str:
    """Return an ad-hoc command for a node or group. values: the values of the placeholders in the command."""
    inner = shell(command, **values)
    return _ad_hoc(node, become, "ansible.builtin.command", "-a", inner) if inner else ""


def ping(node: str) -> str:
    """Return a command that logs in to a node with verbose ssh output."""
    return _ad_hoc(node, False, "ansible.builtin.ping", "-vvv")


def _ad_hoc(node: str, become: bool, *module: str) -> str:
    """Return an ad-hoc command; "" for an invalid node name, which Ansible could interpret as an option, a file of
    names or a template."""
    if not NODES.fullmatch(node):
        return ""
    return shlex.join(["ansible", node, *(["--become"] if become else []), "-m", *module])


@dataclass(frozen=True)
class OnNode:
    """A command whose node is filled in later. command: with placeholders; "" for a command that logs in. at: the
    placeholder that contains the node."""

    command: str = ""
    at: str = "node"
    become: bool = False

    @property
    def places(self) -> list[str]:
        return PLACE.findall(self.command)

    def filled(self, values: Mapping[str, object]) -> str:
        node = str(values[self.at])
        return on_node(node, self.command, become=self.become, **values) if self.command else ping(node)

    def there(self, values: Mapping[str, object]) -> str:
        """Return the command to run on the node itself; "" for a login."""
        return shell(f"sudo {self.command}" if self.become else self.command, **values)


def vault() -> str:
    """Return a command that encrypts an inventory value; it prompts for the variable's name and the value."""
    return shlex.join(["ansible-vault", "encrypt_string", "--prompt"])


def tool(name: str) -> str:
    """Return the command of a Python program in script/, which needs the packages in the project's environment."""
    return f"python script/{name}"


def whole(command: re.Match[str]) -> str:
    """Return a command found in a text, including its options."""
    options = OPTIONS.match(command.string, command.end())
    return f"{command[0]}{options[0] if options else ''}".rstrip('.,;:)"')


class Door(NamedTuple):
    """The command that started ansible-playbook. cluster: the value of its -c option. verbs: the verb that runs each
    playbook."""

    program: str
    cluster: str
    verbs: Mapping[str, str]

    def opened(self, book: str, verb: str = "") -> str:
        """Return the command for a playbook; "" if no verb runs it. verb: another verb of the same playbook."""
        cluster = f" -c {shlex.quote(self.cluster)}" if self.cluster else ""
        return f"{self.program} {verb or self.verbs[book]}{cluster}" if book in self.verbs else ""


NO_DOOR = Door("", "", {})


@dataclass(frozen=True)
class Terminal:
    """The environment in which commands are run.

    prefix: path of Ansible's programs, such as .venv/bin/; empty if they are in the PATH. inventories: the value of
    each -i option of the run. folder: the project's folder, such as /srv/muster/, if it is not the working folder.
    books, options: playbooks of the run, and the arguments after its inventories. is_somebodys: the user runs user
    launches only; other playbooks require an administrator, with another inventory. asks_for_sudo: this run asked for
    the sudo password (-K), so the next run must ask for it too. foreign: commands written by nodes in this run, which
    stay unchanged.
    """

    prefix: str = ""
    inventories: tuple[str, ...] = ()
    folder: str = ""
    books: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    is_somebodys: bool = False
    asks_for_sudo: bool = False
    foreign: frozenset[str] = frozenset()
    door: Door = NO_DOOR

    def program(self, name: str) -> str:
        return shlex.quote(f"{self.prefix}{name}")

    @property
    def inventory_arguments(self) -> str:
        return "".join(f" -i {shlex.quote(inventory)}" for inventory in self.inventories)

    def as_root(self, *, needed: bool = True) -> str:
        return " -K" if needed and self.asks_for_sudo and self.inventories else ""

    @property
    def command(self) -> str:
        """Return the command line of this run."""
        options = self.as_root() + "".join(f" {shlex.quote(option)}" for option in self.options)
        if opened := self.door.opened(self.books[0].removeprefix(self.folder) if len(self.books) == 1 else ""):
            return f"{opened}{options}"
        return f"{self.program('ansible-playbook')} {shlex.join(self.books)}{self.inventory_arguments}{options}"

    def text(self, text: str, quoted: Iterable[str] = ()) -> str:
        """Complete the commands in a text. quoted: parts of the text that a node wrote; they stay unchanged."""
        said = [re.escape(part) for part in sorted(quoted, key=len, reverse=True) if COMMAND.search(part)]
        if not said:
            return self._completed(text)
        parts = re.split(f"({'|'.join(said)})", text)
        return "".join(part if number % 2 else self._completed(part) for number, part in enumerate(parts))

    def _completed(self, text: str) -> str:
        parts, at = [], 0
        for command in COMMAND.finditer(text):
            parts += [text[at : command.start()], self._typed(command)]
            at = command.end()
            one = ONE_LAUNCH.match(text, at)
            if one and not self._is_foreign(command) and (opened := self.door.opened(command["books"], VERBS[one[1]])):
                parts[-1] = f"{opened}{self.as_root()} {one[2]}"
                at = one.end()
        return "".join([*parts, text[at:]])

    def shapes(self, value: Any) -> Any:
        """Complete the commands of all findings, verdicts and causes in a value."""
        if isinstance(value, (list, tuple)):
            return [self.shapes(one) for one in value]
        if not isinstance(value, dict):
            return value
        shape = {key: self.shapes(one) for key, one in value.items()}
        if "summary" in value and ("fix" in value or "coverage" in value):
            shape["summary"] = self.text(str(value["summary"]), quotes(value))
        if ("summary" in value or "says" in value) and isinstance(value.get("fix"), dict):
            shape["fix"] = {key: self.text(str(one)) for key, one in value["fix"].items()}
        return shape

    def _is_foreign(self, command: re.Match[str]) -> bool:
        """Return whether a node wrote the command. Also true if the node wrote a longer command that was cut within its
        options."""
        found = whole(command)
        return found in self.foreign or (found != command[0] and any(one.startswith(found) for one in self.foreign))

    def _typed(self, command: re.Match[str]) -> str:
        if self._is_foreign(command):
            return command[0]
        if command["again"]:
            return self.command if self.books else command[0]
        if command["books"] and self.is_somebodys and command["books"] not in EVERYBODYS:
            return f"an administrator's {command['books']}"
        if command["books"]:
            books = shlex.join(f"{self.folder}{book}" for book in command["books"].split())
            sudo = self.as_root(needed=command["books"] not in WITHOUT_ROOT)
            if opened := self.door.opened(command["books"]):
                return f"{opened}{sudo}"
            return f"{self.program('ansible-playbook')} {books}{self.inventory_arguments}{sudo}"
        if command["node"]:
            sudo = self.as_root(needed=command.string.startswith(" --become", command.end()))
            return f"{self.program('ansible')} {command['node']}{self.inventory_arguments}{sudo}"
        if command["vault"]:
            return self.program("ansible-vault")
        return f"{self.program('python')} {shlex.quote(self.folder + command['tool'])}"


def quotes(value: Any) -> Iterator[str]:
    """Yield the evidence texts of all findings in a value, because they come from nodes."""
    if isinstance(value, dict):
        for proof in value.get("evidence") or ():
            if isinstance(proof, dict):
                yield str(proof.get("text", ""))
        for name, one in value.items():
            if name != "evidence":
                yield from quotes(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from quotes(one)
