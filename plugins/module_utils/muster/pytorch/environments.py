"""The environments of a node by their names, and where each lies: the one place that knows. Pure.

An environment is used by its path alone, a link that leads to the one that is in use: `places` lists them for whoever
launches in one, registers a kernel of one, or looks at it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The one that the role pytorch builds without being asked for a name.
DEFAULT = "default"
# The lock of the default environment is pytorch.lock.txt, beside those of the others.
TAKEN = (DEFAULT, "pytorch")
SOURCES = ("requirements", "pyproject", "conda")
PROVIDED = "provided"
PREFIX = "prefix"
_OPTIONS = {
    **dict.fromkeys((*SOURCES, PREFIX, "torch", "variant", "python", "cuda"), str),
    "extras": list,
    PROVIDED: bool,
}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_VALUES = {
    "torch": (re.compile(r"\d+\.\d+\.\d+[a-z0-9.]*"), "an exact version of PyTorch, as in 2.13.0"),
    "variant": (re.compile(r"auto|cpu|cuda|cu\d{2,4}"), "auto, cpu, cuda, or a build such as cu126"),
    "cuda": (re.compile(r"\d{1,2}\.\d{1,2}"), 'what the driver can do at most, as in "12.8"'),
    "python": (re.compile(r"/[^\s]+"), "the whole path of a Python on the node"),
    # It becomes a part of PATH.
    PREFIX: (re.compile(r"(/(?!\.{1,2}(/|$))[\w.@+-]+)+", re.ASCII), "the environment's whole path on the node"),
}


@dataclass(frozen=True)
class EnvironmentPlace:
    """path: as everybody names the environment; a link, so that it stays the same when another one is built."""

    name: str
    path: str

    @property
    def python(self) -> str:
        return f"{self.path}/bin/python"

    @property
    def torchrun(self) -> str:
        return f"{self.path}/bin/torchrun"


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in TAKEN


def places(cluster: Mapping[str, Any]) -> tuple[EnvironmentPlace, ...]:
    """Every environment of a node, the default one first. cluster: the node's variables of the role cluster."""
    # Where the site keeps a torchrun of its own, that is the default one.
    default = cluster["cluster_torchrun"].rpartition("/")[0].rpartition("/")[0]
    root = cluster["cluster_environments_root"]
    named = (
        EnvironmentPlace(name, existing(entry) or f"{folder_of(root, name)}/current")
        for name, entry in cluster["cluster_environments"].items()
    )
    return (EnvironmentPlace(DEFAULT, default), *named)


def folder_of(root: str, name: str) -> str:
    """The folder of a named environment, which holds the link current, envs/ and wheels/ as pytorch_root does."""
    return f"{root.rstrip('/')}/{name}"


def torchrun(cluster: Mapping[str, Any], name: str) -> str:
    """The torchrun of the environment of this name, "" for the default one. Raises KeyError where there is none."""
    if name in ("", DEFAULT):
        return str(cluster["cluster_torchrun"])
    return {place.name: place.torchrun for place in places(cluster)}[name]


def unknown(cluster: Mapping[str, Any], name: str) -> str:
    """Said of a launch that names an environment which is none."""
    known = ", ".join(place.name for place in places(cluster))
    return f"launch_environment is {name!r}, which is none of the environments of this cluster: {known}."


def built(declared: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The names of those that are built here; the others are there by somebody else."""
    return tuple(name for name, entry in declared.items() if not entry.get(PROVIDED) and not existing(entry))


def existing(entry: Mapping[str, Any]) -> str:
    """The path of one that somebody else has made there; "" for one in Muster's own folder."""
    return str(entry.get(PREFIX, ""))


def in_its_words(text: str, name: str, entry: Mapping[str, Any]) -> str:
    """What is said of the default environment's options, as it is of this environment's."""
    source = next((str(entry[option]) for option in SOURCES if entry.get(option)), "its file")
    own = {
        "pytorch_packages": source,
        "cluster_torch_version": f"torch of {name} in cluster_environments",
        "pytorch_variant": f"variant of {name} in cluster_environments",
        "pytorch_python": f"python of {name} in cluster_environments",
        "pytorch_lock": f"{name}.lock.txt",
        "pytorch_root": "cluster_environments_root",
    }
    return re.sub("|".join(rf"\b{option}\b" for option in own), lambda found: own[found[0]], text)


def problems(declared: Any) -> list[tuple[str, str]]:
    """What is wrong with cluster_environments, and the fix of each; without a look at any file."""
    if not isinstance(declared, dict):
        return [("cluster_environments is no mapping", "Write NAME: {requirements: FILE}")]
    found: list[tuple[str, str]] = []
    for name, entry in declared.items():
        where = f"cluster_environments: {name!r}"
        if not is_name(str(name)):
            what = "is taken" if name in TAKEN else "cannot be a name"
            found.append((f"{where} {what}", "Use small letters, digits, - and _, beginning with a letter"))
        elif not isinstance(entry, dict):
            found.append((f"{where} is no mapping", f"Write {name}: {{requirements: FILE}}"))
        else:
            found += [(f"{where} {what}", fix) for what, fix in _faults(entry)]
    return found


def _faults(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for option in entry:
        if option not in _OPTIONS:
            yield f"has {option!r}, which is no option of an environment", f"It has {', '.join(_OPTIONS)}"
    for option, kind in _OPTIONS.items():
        value = entry.get(option)
        if option in entry and not isinstance(value, kind):
            words = {str: "text", list: "a list", bool: "true or false"}
            yield f"has {option}: {value!r}, which is not {words[kind]}", f"Correct {option}"
        elif option in _VALUES and option in entry and not _VALUES[option][0].fullmatch(str(value)):
            yield f"has {option}: {value!r}", f"Write {_VALUES[option][1]}"
    yield from _clashes(entry)


def _clashes(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Options that do not go with each other."""
    chosen = [option for option in (*SOURCES, PREFIX, PROVIDED) if entry.get(option)]
    if not chosen:
        fix = "Write requirements: FILE, pyproject: FILE or conda: FILE, or prefix: PATH for one that is there"
        yield "says nothing of what is in it", fix
    elif len(chosen) > 1:
        yield f"has {' and '.join(chosen)}", "Keep one of them"
    if entry.get("extras") and not entry.get("pyproject"):
        yield "has extras, which only a pyproject has", "Take them out, or name a pyproject"
    of_a_build = [option for option in ("torch", "variant", "python") if option in entry]
    for option in of_a_build if entry.get("conda") else ():
        yield f"has {option}, which an environment of conda says in its file", f"Take {option} out"
    for option in of_a_build if entry.get(PREFIX) else ():
        yield f"has {option}, and nothing is built at a prefix", f"Take {option} out"
    if "cuda" in entry and not entry.get("conda"):
        yield "has cuda, which only an environment of conda has", "Write variant instead"
