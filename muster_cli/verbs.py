"""Verbs of the command and their options, read from playbooks, roles and verbs.yml."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SHORT = Path(__file__).with_name("verbs.yml")
OWN = "playbooks/meta/options.yml"
ROLES = ("ansible.builtin.include_role", "ansible.builtin.import_role", "include_role", "import_role")


@dataclass(frozen=True)
class VerbOption:
    """An option of a role. flags: as they are typed, the short one first."""

    variable: str
    flags: tuple[str, ...]
    type: str
    text: str
    default: Any = None
    choices: tuple[str, ...] = ()

    @property
    def is_list(self) -> bool:
        return self.type in ("list", "dict")


@dataclass(frozen=True)
class Verb:
    """book: path of the playbook in the project. arguments: variables of positional arguments; "!" must be given, "..."
    takes the rest.

    words: for ansible-playbook. here: variable that is set to the current folder.
    """

    name: str
    book: str
    text: str
    arguments: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    here: str = ""
    confirmed: bool = False
    options: tuple[VerbOption, ...] = ()


@dataclass
class VerbSource:
    """The project's folder, with its playbooks and roles."""

    root: Path
    short: Mapping[str, Any] = field(default_factory=lambda: read(SHORT))

    def names(self) -> list[str]:
        """Return the verbs, those of verbs.yml first."""
        books = sorted(path.stem for path in (self.root / "playbooks").glob("*.yml"))
        other = [one.replace("_", "-") for one in books if one not in self.short["hidden"]]
        return [*dict.fromkeys([*self.short["verbs"], *other])]

    def book(self, name: str) -> str:
        """Return the path of a verb's playbook in the project."""
        stem = self.short["verbs"].get(name, {}).get("playbook", name.replace("-", "_"))
        return "site.yml" if stem == "site" else f"playbooks/{stem}.yml"

    def verb_of_books(self) -> dict[str, str]:
        """Return the verb that runs each playbook without further options."""
        named = self.short["verbs"]
        plain = [name for name in self.names() if not named.get(name, {}).get("words")]
        first = {self.book(name): name for name in reversed(plain)}
        return {**first, **{self.book(name): name for name in plain if "playbook" not in named.get(name, {})}}

    def verb(self, name: str) -> Verb:
        """Raises KeyError for an unknown verb."""
        if name not in self.names():
            raise KeyError(name)
        given, book = self.short["verbs"].get(name, {}), self.book(name)
        return Verb(
            name,
            book,
            given.get("text") or first_sentence((self.root / book).read_text(encoding="utf-8")),
            tuple(given.get("arguments", ())),
            tuple(given.get("words", ())),
            given.get("here", ""),
            given.get("confirmed", False),
            tuple(one for one in self.options_of(book) if one.variable in given.get("options", (one.variable,))),
        )

    def options_of(self, book: str) -> Iterator[VerbOption]:
        """Yield the options of a playbook: its own, those of its role, and those of the cluster that verbs.yml adds."""
        stem = Path(book).stem
        yield from self.options_in(read(self.root / OWN).get(stem, {}), stem)
        roles = list(dict.fromkeys(roles_in(read(self.root / book))))
        for role in roles if len(roles) == 1 else [role for role in roles if role == stem]:
            yield from self.options_of_role(role)
        wanted = self.short["of_cluster"].get(stem, ())
        yield from (one for one in self.options_of_role("cluster") if one.variable in wanted)

    def options_of_role(self, role: str) -> Iterator[VerbOption]:
        path = self.root / "roles" / role / "meta/argument_specs.yml"
        for spec in (read(path)["argument_specs"] if path.exists() else {}).values():
            yield from self.options_in(spec.get("options") or {}, role)

    def options_in(self, specs: Mapping[str, Any], owner: str) -> Iterator[VerbOption]:
        """Yield the options of argument specs. owner: the role or playbook, whose name their flags omit."""
        for variable, option in specs.items():
            flag = f"--{variable.removeprefix(owner + '_').replace('_', '-')}"
            texts = option["description"]
            yield VerbOption(
                variable,
                tuple(self.short["flags"].get(variable, (flag,))),
                option.get("type", "str"),
                texts if isinstance(texts, str) else " ".join(texts),
                option.get("default"),
                tuple(map(str, option.get("choices", ()))),
            )

    def all_options(self) -> Iterator[tuple[str, VerbOption]]:
        """Yield every option of every role, with the role."""
        for path in sorted((self.root / "roles").glob("*/meta/argument_specs.yml")):
            for option in self.options_of_role(role := path.parents[1].name):
                yield role, option


def read(path: Path) -> Any:
    with path.open(encoding="utf-8") as stream:
        return yaml.safe_load(stream)


def first_sentence(book: str) -> str:
    """Return the first sentence of the comment on top of a playbook, without commands."""
    comment = [line.lstrip("# ") for line in book.splitlines() if line.startswith("#")]
    prose = " ".join(line for line in comment if not line.startswith(".venv/"))
    return f"{re.split(r'[.:] ', prose)[0].rstrip('.:')}."


def roles_in(value: Any) -> Iterator[str]:
    """Yield the roles that a playbook names, wherever."""
    if isinstance(value, list):
        for one in value:
            yield from roles_in(one)
    elif isinstance(value, dict):
        for role in value.get("roles") or ():
            yield role if isinstance(role, str) else role["role"]
        for name in ROLES:
            if name in value and "{{" not in value[name]["name"]:
                yield value[name]["name"]
        for key in ("tasks", "pre_tasks", "post_tasks", "block", "rescue", "always"):
            yield from roles_in(value.get(key))
