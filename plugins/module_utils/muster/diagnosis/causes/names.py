"""The name of the head node is not known on a node, or leads elsewhere there."""

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
    """Each node that was to call the head node by a name; the head node looks itself up too."""
    name = case.launch["master_addr"]
    if name and not is_address(name):
        yield from (CausePlace(node, what=name) for node in dict.fromkeys((*callers(case, by), case.head)))


def answers_of(case: LaunchCase, place: CausePlace) -> list[str] | None:
    record = case.record(place.node)
    return record["names"].get(place.what) if record else None


def name_unknown(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    answers = answers_of(case, place)
    if answers is None:
        return not_looked(case.why_not(place.node, "names"))
    if answers:
        return no(f"it leads to {few(answers)}", f"getaddrinfo on {place.node}")
    return yes(f"the name {place.what} has no address there", f"getaddrinfo on {place.node}")


def name_is_loopback(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    answers = answers_of(case, place)
    if answers is None:
        return not_looked(case.why_not(place.node, "names"))
    if answers and all(map(is_loopback, answers)):
        return yes(f"{place.what} leads to {few(answers)}", f"getaddrinfo on {place.node}")
    return no(f"it leads to {few(answers)}", f"getaddrinfo on {place.node}")


def name_is_foreign(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    answers = answers_of(case, place)
    if answers is None:
        return not_looked(case.why_not(place.node, "names"))
    right = addresses_of(case, case.head)
    wrong = [one for one in answers if one not in right and not is_loopback(one)]
    if wrong and right:
        return yes(
            f"{place.what} leads to {few(wrong)}, which {case.head} does not have", f"getaddrinfo on {place.node}"
        )
    return no(f"it leads to {few(answers)}", f"getaddrinfo on {place.node}")


RESOLVE = OnNode("getent ahosts {what}")
NAME_UNKNOWN = Question("name.unknown", "does {node} not know the name {what}?", name_unknown, RESOLVE)
NAME_LOOPBACK = Question("name.loopback", "does {what} lead to the loopback on {node}?", name_is_loopback, RESOLVE)
NAME_FOREIGN = Question("name.foreign", "does {what} lead to another machine on {node}?", name_is_foreign, RESOLVE)
NETWORK = playbook("site.yml", tags="network")

CAUSES = (
    Cause(
        "head.name_unknown",
        group="head",
        scope="node",
        says="{node} does not know the name of the head node, {what}",
        fix="Write the nodes into /etc/hosts, or give the address instead of the name",
        command=NETWORK,
        symptoms=(*CALLED_HEAD, *WAITED),
        places=before_they_met(by_name),
        confirm=(NAME_UNKNOWN,),
    ),
    Cause(
        "head.name_loopback",
        group="head",
        scope="node",
        says="on {node} the name of the head node, {what}, leads to the loopback",
        fix="Take the name off the line of 127.0.1.1 in /etc/hosts, or give the address instead of the name",
        command=NETWORK,
        symptoms=(*CALLED_HEAD, *WAITED),
        places=before_they_met(by_name),
        confirm=(NAME_LOOPBACK,),
    ),
    Cause(
        "head.name_foreign",
        group="head",
        scope="node",
        says="on {node} the name of the head node, {what}, leads to another machine",
        fix="Correct /etc/hosts or the name server, or give the address instead of the name",
        command=RESOLVE,
        symptoms=(*CALLED_HEAD, *WAITED),
        places=before_they_met(by_name),
        confirm=(NAME_FOREIGN,),
    ),
)
