"""What a node's health consists of, one file here for each subject: `limits`, `jobs`, `rdma` and so on.

A file is a subject by having these:

    CHECKS = (STALE, OTHER)             what can be found
    LOOKS = ("jobs", "listeners")       the looks (muster_node/looks) that it is judged from
    judge(facts, request)               yields findings, and what was skipped and why

and may have `facts_of(looks, request)`, which makes facts of those looks: small, and without secrets. Without it, the
look of its own name is its fact as it is. Facts have the subject's name. request: the options of nccl_health. After a
change to LOOKS, script/subjects.py lists the looks for the node.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

# In this order people read what was found. A subject that is not named here follows by its name.
ORDER = (
    *("host", "limits", "software", "environment", "jobs", "ras", "ethernet", "rdma"),
    *("rdma_verbs", "rdma_addresses", "roce", "gpudirect", "pci", "kernel_log", "collective", "gpu", "code"),
)


@cache
def subjects() -> dict[str, ModuleType]:
    """Return the file of each subject, by its name."""
    package = __name__.rpartition(".")[0]
    folder = importlib.import_module(package).__path__
    names = [each.name for each in pkgutil.iter_modules(folder) if not each.name.startswith("_")]
    found = {name: importlib.import_module(f"{package}.{name}") for name in names}
    there = [name for name, file in found.items() if hasattr(file, "LOOKS") and hasattr(file, "judge")]
    there.sort(key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return {name: found[name] for name in there}


def facts_of(name: str, looks: Any, request: Any) -> dict[str, Any]:
    """Return the facts of a subject under its name: nothing where it has none, or was not looked at."""
    subject = subjects()[name]
    if not (has_facts(name) and looks.keys() >= set(subject.LOOKS)):
        return {}
    return {name: subject.facts_of(looks, request) if hasattr(subject, "facts_of") else looks[name]}


def has_facts(name: str) -> bool:
    """Whether a subject has facts of its own, and is not judged from those of others alone."""
    return hasattr(subjects()[name], "facts_of") or name in subjects()[name].LOOKS
