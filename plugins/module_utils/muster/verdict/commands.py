"""Commands for people to type.

What decides knows neither where the user is nor which inventory this run was given. It writes a command in a plain
form, with the functions here; where text leaves for people, on the screen or in an artifact, `Terminal` makes of it
what can be typed as it stands.

The text of a command is the author's own. A value in it (a name, a path, a PID) may come from a node, a user or a log:
it has a placeholder in the text, which is filled once, with the value quoted as one word. A value that no quoting makes
safe (see `usable`) gives no command at all: "".
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CONTACT_NO_NODE = ("plan", "validate", "import", "report")
WITHOUT_ROOT = tuple(f"playbooks/{name}.yml" for name in (*CONTACT_NO_NODE, "trust"))
EVERYBODYS = ("playbooks/launch.yml", "playbooks/jobs.yml", "playbooks/notebook.yml")  # that people without root run
_BOOK = r"(?:site|playbooks/[a-z_]+)\.yml"
# Only what the functions below write, and never what has its inventory already.
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


PLACE = re.compile(r"\{([a-z_]+)\}")
NODES = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\[\]-]{0,252}")  # a name, a group, or several as node[1:2]; ASCII alone
LONGEST_VALUE = 1000


def usable(value: str) -> bool:
    """Whether a value may be in a command, quoted: it is no option, no template of Ansible (which runs what is in it,
    on the command line too), and nothing that a terminal obeys."""
    return (
        0 < len(value) <= LONGEST_VALUE
        and value.isprintable()
        and not value.startswith("-")
        and not any(mark in value for mark in ("{{", "{%", "{#"))
    )


def shell(text: str, /, **values: object) -> str:
    """A command for a shell. text: its placeholders, such as {path}, stand outside of quotes. values: each becomes one
    word, or a part of one; a list becomes its words."""
    words = {
        name: [*map(str, value)] if isinstance(value, (list, tuple)) else [str(value)] for name, value in values.items()
    }
    named = [words[name] for name in PLACE.findall(text) if name in words]
    if not all(all(map(usable, one)) and one for one in named):
        return ""
    return PLACE.sub(lambda found: shlex.join(words[found[1]]) if found[1] in words else found[0], text)


def playbook(path: str, tags: str = "", **variables: object) -> str:
    """path: from the project's folder, such as site.yml or playbooks/health.yml. variables: as -e takes them."""
    return _with_extra(["ansible-playbook", path, *(["--tags", tags] if tags else [])], variables)


def again(**variables: object) -> str:
    """The command of this very run, with more variables."""
    return _with_extra(["ansible-playbook", "..."], variables)


def _with_extra(words: list[str], variables: Mapping[str, object]) -> str:
    values = {name: str(value) for name, value in variables.items()}
    if not all(map(usable, values.values())):
        return ""
    return shlex.join([*words, *(word for name, value in values.items() for word in ("-e", _variable(name, value)))])


def _variable(name: str, value: str) -> str:
    """Ansible splits name=value at spaces: what follows one could set another variable."""
    return json.dumps({name: value}, ensure_ascii=False) if re.search(r"[\s'\"\\]", value) else f"{name}={value}"


def on_node(node: str, command: str, /, *, become: bool = False, **values: object) -> str:
    """Run a command on a node, or on each node of a group. values: for the placeholders in the command."""
    inner = shell(command, **values)
    return _ad_hoc(node, become, "ansible.builtin.command", "-a", inner) if inner else ""


def ping(node: str) -> str:
    """Log in on a node, and show how."""
    return _ad_hoc(node, False, "ansible.builtin.ping", "-vvv")


def _ad_hoc(node: str, become: bool, *module: str) -> str:
    """What is no name could be an option, a file of names, or a template."""
    if not NODES.fullmatch(node):
        return ""
    return shlex.join(["ansible", node, *(["--become"] if become else []), "-m", *module])


@dataclass(frozen=True)
class OnNode:
    """A command for a node that is known later. command: with placeholders; "" to log in. at: the placeholder whose
    value names the node."""

    command: str = ""
    at: str = "node"
    become: bool = False

    @property
    def places(self) -> list[str]:
        """The placeholders of the command."""
        return PLACE.findall(self.command)

    def filled(self, values: Mapping[str, object]) -> str:
        node = str(values[self.at])
        return on_node(node, self.command, become=self.become, **values) if self.command else ping(node)


def vault() -> str:
    """Encrypt a value for the inventory; it asks for the variable's name and the value."""
    return shlex.join(["ansible-vault", "encrypt_string", "--prompt"])


def tool(name: str) -> str:
    """One of the Python programs in script/, which need the packages of the project's environment."""
    return f"python script/{name}"


def whole(command: re.Match[str]) -> str:
    """A command that was found, with its options."""
    options = OPTIONS.match(command.string, command.end())
    return f"{command[0]}{options[0] if options else ''}".rstrip(".,;:)")


class Door(NamedTuple):
    """The command that started ansible-playbook. cluster: its -c. verbs: by playbook."""

    program: str
    cluster: str
    verbs: Mapping[str, str]

    def opened(self, book: str) -> str:
        """Return the command for a playbook; "" if no verb runs it."""
        cluster = f" -c {shlex.quote(self.cluster)}" if self.cluster else ""
        return f"{self.program} {self.verbs[book]}{cluster}" if book in self.verbs else ""


NO_DOOR = Door("", "", {})


@dataclass(frozen=True)
class Terminal:
    """Where commands are typed.

    prefix: what stands before the programs of Ansible's environment, such as .venv/bin/; nothing where the PATH leads
    to them. inventories: each -i of the run. folder: the project's, where it is typed elsewhere, such as /srv/muster/.
    books, options: the playbooks of the run, and what was typed behind its inventories. is_somebodys: it belongs to
    somebody who launches for themselves; what they cannot run is an administrator's, whose inventory is another.
    asks_for_sudo: this run asked for sudo's password (-K), as the next one has to. foreign: commands that nodes wrote
    in this run; they stay as they are.
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
        """What was typed to start this run."""
        options = self.as_root() + "".join(f" {shlex.quote(option)}" for option in self.options)
        if opened := self.door.opened(self.books[0].removeprefix(self.folder) if len(self.books) == 1 else ""):
            return f"{opened}{options}"
        return f"{self.program('ansible-playbook')} {shlex.join(self.books)}{self.inventory_arguments}{options}"

    def text(self, text: str, quoted: Iterable[str] = ()) -> str:
        """The text with its commands as they are typed here. quoted: what in it a node said, which stays as it is."""
        said = [re.escape(part) for part in sorted(quoted, key=len, reverse=True) if COMMAND.search(part)]
        if not said:
            return COMMAND.sub(self._typed, text)
        parts = re.split(f"({'|'.join(said)})", text)
        return "".join(part if number % 2 else COMMAND.sub(self._typed, part) for number, part in enumerate(parts))

    def shapes(self, value: Any) -> Any:
        """The value with the commands of all findings, verdicts and causes in it as they are typed here, and nothing
        else."""
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
        """Whether a node wrote it. A part of it counts as well where it has options: a text may have been cut."""
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
    """The texts of nodes that findings in a value give as their evidence."""
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
