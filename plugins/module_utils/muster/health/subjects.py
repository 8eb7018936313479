"""The subjects of a node's health. Each subject has one file in this folder: `limits`, `jobs`, `rdma` and so on.

A file is a subject if it defines these names:

    CHECKS = (STALE, OTHER)             its checks
    LOOKS = ("jobs", "listeners")       the looks (modules in muster_node/looks) whose data it uses
    judge(facts, request)               yields findings and skipped checks

Optional: `facts_of(looks, request)` converts the data of the looks into compact facts without secrets. If `facts_of` is
not defined, the facts are the data of the look that has the subject's name. Facts are stored under the subject's name.
request: the options of nccl_health. After a new subject or a change to LOOKS, run script/subjects.py, which lists both.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from .every_subject import SUBJECTS

if TYPE_CHECKING:
    from types import ModuleType

# The order of findings in reports. Other subjects follow, sorted by name.
ORDER = (
    *("host", "limits", "software", "environment", "jobs", "ras", "ethernet", "rdma"),
    *("rdma_verbs", "rdma_addresses", "roce", "gpudirect", "pci", "kernel_log", "collective", "gpu", "code"),
)


@cache
def subjects() -> dict[str, ModuleType]:
    """Return the module of each subject by the name of the subject."""
    there = sorted(SUBJECTS, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return {name: SUBJECTS[name] for name in there}


def facts_of(name: str, looks: Any, request: Any) -> dict[str, Any]:
    """Return the facts of a subject under its name; {} if the subject has none or its looks did not run."""
    subject = subjects()[name]
    if not (has_facts(name) and looks.keys() >= set(subject.LOOKS)):
        return {}
    return {name: subject.facts_of(looks, request) if hasattr(subject, "facts_of") else looks[name]}


def has_facts(name: str) -> bool:
    """Return whether a subject has its own facts, in addition to facts of other subjects."""
    return hasattr(subjects()[name], "facts_of") or name in subjects()[name].LOOKS
