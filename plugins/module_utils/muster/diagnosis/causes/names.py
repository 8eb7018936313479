"""Causes of name resolution: a node does not resolve the head node's name, or resolves it to a wrong address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...verdict.commands import OnNode, playbook
from ...verdict.words import few
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..reaching import CALLED_HEAD, WAITED, addresses_of, before_they_met, callers, is_address, is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..model import CauseAnswer, Symptom


def by_name(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield each node that connects to the head node by name, and the head node itself, which also resolves its own
    name."""
    said = {one.node: one.about.get("address", "") for one in by if one.id == "store.name"}
    yield from (CausePlace(node, what=name) for node, name in said.items())
    name = case.launch["master_addr"]
    if name and not is_address(name) and not said:
        yield from (CausePlace(node, what=name) for node in dict.fromkeys((*callers(case, by), case.head)))


def answers_of(case: LaunchCase, place: CausePlace) -> list[str] | None:
    record = case.record(place.node)
    return record["names"].get(place.what) if record else None


def name_unknown(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    answers = answers_of(case, place)
    if answers is None:
        return not_looked(case.why_not(place.node, "names"))
    if answers:
        return no(f"{place.what} resolves to {few(answers)}", f"getaddrinfo on {place.node}")
    return yes(f"{place.what} does not resolve", f"getaddrinfo on {place.node}")


def name_is_loopback(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    answers = answers_of(case, place)
    if answers is None:
        return not_looked(case.why_not(place.node, "names"))
    if answers and all(map(is_loopback, answers)):
        return yes(f"{place.what} resolves to {few(answers)}", f"getaddrinfo on {place.node}")
    return no(f"{place.what} resolves to {few(answers)}", f"getaddrinfo on {place.node}")


def name_is_foreign(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    answers = answers_of(case, place)
    if answers is None:
        return not_looked(case.why_not(place.node, "names"))
    right = addresses_of(case, case.head)
    wrong = [one for one in answers if one not in right and not is_loopback(one)]
    if wrong and right:
        return yes(
            f"{place.what} resolves to {few(wrong)}, not to an address of {case.head}", f"getaddrinfo on {place.node}"
        )
    return no(f"{place.what} resolves to {few(answers)}", f"getaddrinfo on {place.node}")


RESOLVE = OnNode("getent ahosts {what}")
NAME_UNKNOWN = Question("name.unknown", "is {node} unable to resolve {what}?", name_unknown, RESOLVE)
NAME_LOOPBACK = Question("name.loopback", "does {node} resolve {what} to loopback?", name_is_loopback, RESOLVE)
NAME_FOREIGN = Question("name.foreign", "does {node} resolve {what} to a wrong address?", name_is_foreign, RESOLVE)
NETWORK = playbook("site.yml", tags="network")

CAUSES = (
    Cause(
        "head.name_unknown",
        scope="node",
        says="{node} cannot resolve the name of the head node ({what})",
        fix="Use the address instead of the name, or add the nodes to /etc/hosts",
        command=NETWORK,
        symptoms=(*CALLED_HEAD, *WAITED),
        places=before_they_met(by_name),
        confirm=(NAME_UNKNOWN,),
        decisive=("store.name",),
    ),
    Cause(
        "head.name_loopback",
        scope="node",
        says="{node} resolves the name of the head node ({what}) to a loopback address",
        fix="Use the address instead of the name, or remove the name from the 127.0.1.1 line in /etc/hosts",
        command=NETWORK,
        symptoms=(*CALLED_HEAD, *WAITED),
        places=before_they_met(by_name),
        confirm=(NAME_LOOPBACK,),
    ),
    Cause(
        "head.name_foreign",
        scope="node",
        says="{node} resolves the name of the head node ({what}) to an address that the head node does not have",
        fix="Use the address instead of the name, or correct /etc/hosts or the DNS record, and check the resolution",
        command=RESOLVE,
        symptoms=(*CALLED_HEAD, *WAITED),
        places=before_they_met(by_name),
        confirm=(NAME_FOREIGN,),
    ),
)
