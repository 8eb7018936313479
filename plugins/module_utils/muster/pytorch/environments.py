"""Names and paths of the environments on a node. Other modules get them only from here. Pure functions.

An environment is used only through its path, which is a link to the current build. `places` lists these paths for
launches, Jupyter kernels and checks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

# Options that declare environments: the administrator's, and those of a launch user in the user's own folder.
OPTION, OWN = "cluster_environments", "cluster_own_environments"
LOGIN = "NAME"  # placeholder for the account that logs in, in paths that are made before the nodes are contacted
# The environment that the role pytorch builds when no name is given.
DEFAULT = "default"
# pytorch.lock.txt is the lock of the default environment, in the same folder as the other locks.
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
    "torch": (re.compile(r"\d+\.\d+\.\d+[a-z0-9.]*"), "an exact PyTorch version, for example 2.13.0"),
    "variant": (re.compile(r"auto|cpu|cuda|cu\d{2,4}"), "auto, cpu, cuda, or a build such as cu126"),
    "cuda": (re.compile(r"\d{1,2}\.\d{1,2}"), 'the highest CUDA version that the driver supports, for example "12.8"'),
    "python": (re.compile(r"/[^\s]+"), "the absolute path of a Python interpreter on the node"),
    # This path becomes part of PATH.
    PREFIX: (re.compile(r"(/(?!\.{1,2}(/|$))[\w.@+-]+)+", re.ASCII), "an absolute path on the node"),
}


@dataclass(frozen=True)
class EnvironmentPlace:
    """path: a link that all users of the environment refer to. It stays the same when a new build
    replaces the old one.
    """

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
    """Return all environments of a node, the default one first. cluster: the node's variables of the role cluster."""
    # If the site has its own torchrun, its environment is the default.
    default = cluster["cluster_torchrun"].rpartition("/")[0].rpartition("/")[0]
    return (EnvironmentPlace(DEFAULT, default), *_named(cluster[OPTION], cluster["cluster_environments_root"]))


def _named(declared: Mapping[str, Mapping[str, Any]], root: str) -> Iterator[EnvironmentPlace]:
    for name, entry in declared.items():
        yield EnvironmentPlace(name, existing(entry) or f"{folder_of(root, name)}/current")


def own_root(users_root: str, user: str) -> str:
    """Return the folder of a launch user's own environments."""
    return f"{folder_of(users_root, user)}/envs"


def of_login(path: str, users_root: str, user: str) -> str:
    """Return the path with the account that logs in, instead of its placeholder."""
    return path.replace(f"{own_root(users_root, LOGIN)}/", f"{own_root(users_root, user)}/", 1)


def folder_of(root: str, name: str) -> str:
    """Return the folder of a named environment.

    Like pytorch_root, this folder contains the link current, envs/ and wheels/.
    """
    return f"{root.rstrip('/')}/{name}"


def torchrun(cluster: Mapping[str, Any], name: str) -> str:
    """Return the path of torchrun in the named environment; "" names the default environment.

    In an environment of a launch user, the account is LOGIN. Raises KeyError for an unknown name.
    """
    if name in ("", DEFAULT):
        return str(cluster["cluster_torchrun"])
    own = _named(cluster[OWN], own_root(cluster["cluster_users_root"], LOGIN))
    return {place.name: place.torchrun for place in (*own, *places(cluster))}[name]


def unknown(cluster: Mapping[str, Any], name: str) -> str:
    """Return the error message for a launch that names an unknown environment."""
    known = ", ".join((*(place.name for place in places(cluster)), *cluster[OWN]))
    return f"launch_environment is {name!r}, but this cluster has only the environments {known}."


def only_own(name: str) -> str:
    """Return why an administrator launch cannot use a user's own environment: the user controls its code."""
    return f"launch_environment {name!r} is an environment of {OWN}, which only a user launch can use"


def built(declared: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of the environments that Muster builds. Users manage all other environments."""
    return tuple(name for name, entry in declared.items() if not entry.get(PROVIDED) and not existing(entry))


def existing(entry: Mapping[str, Any]) -> str:
    """Return the path of an environment that the user built; "" for an environment in Muster's folder."""
    return str(entry.get(PREFIX, ""))


def in_its_words(text: str, name: str, entry: Mapping[str, Any], *, own: bool = False) -> str:
    """Replace option names of the default environment in a text with those of the named environment.

    own: whether a launch user declares it.
    """
    option, root = (OWN, "cluster_users_root") if own else (OPTION, "cluster_environments_root")
    source = next((str(entry[option]) for option in SOURCES if entry.get(option)), "its file")
    words = {
        "pytorch_packages": source,
        "cluster_torch_version": f"torch of {name} in {option}",
        "pytorch_variant": f"variant of {name} in {option}",
        "pytorch_python": f"python of {name} in {option}",
        "pytorch_lock": f"{name}.lock.txt",
        "pytorch_root": root,
    }
    return re.sub("|".join(rf"\b{one}\b" for one in words), lambda found: words[found[0]], text)


def problems(declared: Any, option: str = OPTION, others: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return the errors in an option that declares environments, with their fixes. No files are read.

    others: names of environments in the administrator's option.
    """
    if not isinstance(declared, dict):
        return [(f"{option} is not a mapping", "Use the form NAME: {requirements: FILE}")]
    found: list[tuple[str, str]] = []
    for name, entry in declared.items():
        where = f"{option}: {name!r}"
        if not is_name(str(name)):
            what = "is a reserved name" if name in TAKEN else "is not a valid name"
            found.append((f"{where} {what}", "Use lowercase letters, digits, - and _, starting with a letter"))
        elif name in others:
            found.append((f"{where} is already an environment of the cluster ({OPTION})", "Choose another name"))
        elif not isinstance(entry, dict):
            found.append((f"{where} is not a mapping", f"Use the form {name}: {{requirements: FILE}}"))
        else:
            found += [(f"{where} {what}", fix) for what, fix in _faults(entry)]
    return found


def _faults(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for option in entry:
        if option not in _OPTIONS:
            yield f"has the unknown option {option!r}", f"Supported options: {', '.join(_OPTIONS)}"
    for option, kind in _OPTIONS.items():
        value = entry.get(option)
        if option in entry and not isinstance(value, kind):
            words = {str: "text", list: "a list", bool: "true or false"}
            yield f"has {option}: {value!r}, which is not {words[kind]}", f"Correct {option}"
        elif option in _VALUES and option in entry and not _VALUES[option][0].fullmatch(str(value)):
            yield f"has {option}: {value!r}", f"Use {_VALUES[option][1]}"
    yield from _clashes(entry)


def _clashes(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield an error for each pair of options that exclude each other."""
    chosen = [option for option in (*SOURCES, PREFIX, PROVIDED) if entry.get(option)]
    if not chosen:
        fix = "Set requirements, pyproject or conda to a file, or prefix to the path of an existing environment"
        yield "does not define where its packages come from", fix
    elif len(chosen) > 1:
        yield f"has {' and '.join(chosen)}, but only one is allowed", "Keep one of them"
    if entry.get("extras") and not entry.get("pyproject"):
        yield "has extras, which require pyproject", "Remove extras, or set pyproject"
    of_a_build = [option for option in ("torch", "variant", "python") if option in entry]
    for option in of_a_build if entry.get("conda") else ():
        yield f"has {option}, but the file of a conda environment defines it", f"Remove {option}"
    for option in of_a_build if entry.get(PREFIX) else ():
        yield f"has {option}, but Muster builds no environment at a prefix", f"Remove {option}"
    if "cuda" in entry and not entry.get("conda"):
        yield "has cuda, which only a conda environment supports", "Use variant instead"
