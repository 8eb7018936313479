"""Verbs of the command and their options, read from playbooks, roles and verbs.yml."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SHORT = Path(__file__).with_name("verbs.yml")
ROLES = ("ansible.builtin.include_role", "ansible.builtin.import_role", "include_role", "import_role")


@dataclass(frozen=True)
class Option:
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
    """book: path of the playbook in the project. arguments: variables of positional arguments; "..." takes the rest.

    words: for ansible-playbook. here: variable that is set to the current folder.
    """

    name: str
    book: str
    text: str
    arguments: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    here: str = ""
    options: tuple[Option, ...] = ()


@dataclass
class Project:
    """The project's folder, with its playbooks and roles."""

    root: Path
    short: Mapping[str, Any] = field(default_factory=lambda: read(SHORT))

    def names(self) -> list[str]:
        """Return the verbs, those of verbs.yml first."""
        books = sorted(path.stem for path in (self.root / "playbooks").glob("*.yml"))
        named = self.short["verbs"]
        return [*named, *(one.replace("_", "-") for one in books if one not in self.short["hidden"] and one not in named)]

    def verb(self, name: str) -> Verb:
        """Raises KeyError for an unknown verb."""
        if name not in self.names():
            raise KeyError(name)
        given = self.short["verbs"].get(name, {})
        stem = given.get("playbook", name.replace("-", "_"))
        book = "site.yml" if stem == "site" else f"playbooks/{stem}.yml"
        return Verb(
            name,
            book,
            given.get("text") or first_sentence((self.root / book).read_text(encoding="utf-8")),
            tuple(given.get("arguments", ())),
            tuple(given.get("words", ())),
            given.get("here", ""),
            tuple(self.options_of(book, stem)),
        )

    def options_of(self, book: str, stem: str) -> Iterator[Option]:
        for role in dict.fromkeys(roles_in(read(self.root / book))):
            yield from self.options_of_role(role)
        wanted = self.short["of_cluster"].get(stem, ())
        yield from (one for one in self.options_of_role("cluster") if one.variable in wanted)

    def options_of_role(self, role: str) -> Iterator[Option]:
        path = self.root / "roles" / role / "meta/argument_specs.yml"
        specs = read(path)["argument_specs"] if path.exists() else {}
        for spec in specs.values():
            for variable, option in (spec.get("options") or {}).items():
                flag = f"--{variable.removeprefix(role + '_').replace('_', '-')}"
                texts = option["description"]
                yield Option(
                    variable,
                    tuple(self.short["flags"].get(variable, (flag,))),
                    option.get("type", "str"),
                    texts if isinstance(texts, str) else " ".join(texts),
                    option.get("default"),
                    tuple(map(str, option.get("choices", ()))),
                )

    def all_options(self) -> Iterator[tuple[str, Option]]:
        """Yield every option of every role, with the role."""
        for path in sorted((self.root / "roles").glob("*/meta/argument_specs.yml")):
            for option in self.options_of_role(role := path.parents[1].name):
                yield role, option


def read(path: Path) -> Any:
    with path.open(encoding="utf-8") as stream:
        return yaml.load(stream, Loader=LOADER)  # noqa: S506


def first_sentence(book: str) -> str:
    """Return the first sentence of the comment on top of a playbook."""
    comment = [line.lstrip("# ") for line in book.splitlines() if line.startswith("#")]
    return " ".join(comment).partition(". ")[0].rstrip(".") + "."


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
