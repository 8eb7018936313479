"""What differs between nodes: torch, NCCL, Python, driver, packages, code, settings, data, clocks.

Nodes differ in many ways that harm nobody. A difference is a cause only where the launch shows what such a difference
does. With two nodes it blames neither; with more, the odd one is named where it shows the symptom too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...verdict.commands import playbook
from ..drift import difference, environment, of_programs, value_among
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..progress import furthest
from ..questions import probe
from .program import others_waited, own_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..case import LaunchCase
    from ..evidence import Program
    from ..model import CauseAnswer, Places, Symptom

# Under DETAIL torch makes calls of its own before each of the script's (torch 2.13, distributed_c10d.py).
DEBUG, DETAIL = "TORCH_DISTRIBUTED_DEBUG", "DETAIL"
# What changes how ranks send to each other; all of them have to have the same (NCCL's guide; read, not run).
OF_NCCL = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_NET", "NCCL_IB_DISABLE", "NCCL_BUFFSIZE", "NCCL_NTHREADS")
FIRST_CALLS = 3  # settings that differ break these; ranks that came further agree
SAME_ENVIRONMENT = playbook("site.yml", tags="pytorch")
OWN = ("process.exception", "process.exception.everywhere", "process.crash")
OF_MODELS = (
    *("program.parameter_differs", "program.parameter_count"),
    *("program.collectives_differ", "program.sizes_differ"),
)
OF_VERSIONS = ("python.attribute_missing", "python.syntax", "python.module_missing", "python.library_missing")


def known_of(what: Callable[[Program], str | None]) -> Callable[[LaunchCase], Mapping[str, str]]:
    return lambda case: of_programs(case, what)


def version(name: str) -> Callable[[LaunchCase], Mapping[str, str]]:
    return known_of(lambda program: program["versions"].get(name))


def code_of(program: Program) -> str | None:
    """Of the script and what lies beside it. Without a digest of either, nothing is known."""
    found = [program["digests"][name] for name in ("script", "code") if name in program["digests"]]
    return " ".join(one[:12] for one in found) or None


def odd_one(known: Callable[[LaunchCase], Mapping[str, str]]) -> Places:
    """The odd node where it showed a symptom by itself; else no node."""

    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        if not any(one.final for one in by):
            return
        found = difference(known(case))
        shown = {one.node for one in by if one.final and not one.victim}
        yield CausePlace(found.odd if found and found.odd in shown and shown == {found.odd} else "")

    return places


def differs(
    known: Callable[[LaunchCase], Mapping[str, str]], what: str
) -> Callable[[LaunchCase, CausePlace], CauseAnswer]:
    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        del place
        values = known(case)
        if len(values) < 2:
            return not_looked(f"{what} of fewer than two nodes is known")
        found = difference(values)
        return yes(f"{what}: {found.text}", "records of the nodes") if found else no(f"{what} is the same everywhere")

    return look


def settings_differ(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Of a launch in which ranks waited for each other, or did not understand each other."""
    del place
    if own_end(case) or not others_waited(case):
        return no("a rank ended by itself, or none waited until its time was over")
    first = furthest(case)
    if first is not None and first.enqueued > FIRST_CALLS:
        return no(f"rank {first.rank} had made {first.enqueued} calls")
    known = {name: found for name in case.nodes if (found := environment(case, name)) is not None}
    if len(known) < 2:
        return not_looked("the environments of fewer than two nodes are known")
    detailed = [name for name in known if value_among(case, name, DEBUG, (DETAIL, DETAIL.lower()))]
    if 0 < len(detailed) < len(known):
        return yes(f"{DEBUG} is {DETAIL} on {', '.join(detailed)}, and on no other node", "environments of the launch")
    for name in OF_NCCL if case.launch["backend"] == "nccl" else ():
        if len({one.get(name, "") for one in known.values()}) > 1:
            if first is None:
                return not_looked(f"{name} differs between nodes; how far the ranks had come is not known")
            return yes(f"{name} differs between nodes", "environments of the launch")
    return no("what must be the same is the same")


def no_node(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    if any(one.final for one in by):
        yield CausePlace()


def where_met(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    return (CausePlace(one.node) for one in by if one.node and one.final)


def cause(
    name: str,
    what: str,
    known: Callable[[LaunchCase], Mapping[str, str]],
    symptoms: tuple[str, ...],
    fix: str,
    command: str = "",
) -> Cause:
    """What differs in the records, where ranks show that it does harm."""
    question = Question(f"differs.{name}", f"is {what} different between the nodes?", differs(known, what))
    return Cause(
        f"drift.{name}",
        group="drift",
        scope="pair",
        says=f"{what} is not the same on all nodes",
        fix=fix,
        command=command,
        symptoms=symptoms,
        places=odd_one(known),
        confirm=(question,),
        instead_of=(
            *OWN,
            *("program.other_model", "program.other_operation", "program.other_sizes", "program.bytes"),
            *("process.missing.package", "process.missing.library"),
        ),
    )


CAUSES = (
    cause(
        "torch",
        "torch's version",
        version("torch"),
        (*OF_MODELS, "python.attribute_missing", "nccl.internal_error"),
        "Bring all nodes to the same environment",
        SAME_ENVIRONMENT,
    ),
    cause(
        "nccl",
        "NCCL's version",
        version("nccl"),
        ("nccl.internal_error", "nccl.system_error"),
        "Bring all nodes to the same environment; look for another libnccl in LD_LIBRARY_PATH",
        SAME_ENVIRONMENT,
    ),
    cause(
        "python",
        "Python's version",
        version("python"),
        ("python.syntax", "python.attribute_missing"),
        "Bring all nodes to the same environment",
        SAME_ENVIRONMENT,
    ),
    cause(
        "packages",
        "the set of installed packages",
        version("muster_environment"),
        OF_VERSIONS,
        "Bring all nodes to the same environment",
        SAME_ENVIRONMENT,
    ),
    cause(
        "code",
        "the code of the launch",
        known_of(code_of),
        (
            *OF_MODELS,
            "python.attribute_missing",
            "python.syntax",
            "program.checkpoint_keys",
            "program.checkpoint_sizes",
        ),
        "Bring the same code to all nodes; launch_project does so with each launch",
    ),
    Cause(
        "drift.environment",
        group="drift",
        scope="config",
        says="variables that all ranks must have alike are not the same on all nodes",
        fix="Set them for the launch (launch_env), and not in the logins of nodes",
        symptoms=("launch.stalled", "gloo.timeout", "nccl.timeout", "nccl.internal_error"),
        places=no_node,
        confirm=(Question("differs.environment", "do such variables differ between the nodes?", settings_differ),),
        instead_of=("program.other_operation", "program.other_sizes", "program.straggler"),
    ),
    Cause(
        "drift.driver",
        group="drift",
        scope="node",
        says="the driver on {node} is not the one of the other nodes, and its ranks alone met an error of CUDA",
        fix="Bring all nodes to the same driver",
        command=playbook("site.yml", tags="gpu_stack"),
        symptoms=("cuda.failed", "cuda.driver_old", "nccl.cuda_error"),
        places=where_met,
        confirm=(probe("versions.driver.differ", "is the driver on {node} another one?"),),
        instead_of=OWN,
    ),
    Cause(
        "drift.data",
        group="drift",
        scope="node",
        says="the data on {node} are not those of the other nodes",
        fix="Bring the same data to all nodes",
        symptoms=("python.file_missing", "program.checkpoint_keys", "program.checkpoint_sizes"),
        places=where_met,
        confirm=(probe("launch.data", "are the data of the launch on {node} other ones?"),),
        instead_of=(*OWN, "process.missing.file", "program.checkpoint.keys", "program.checkpoint.sizes"),
    ),
    Cause(
        "drift.clock",
        group="drift",
        scope="node",
        says="the clock of {node} is wrong",
        fix="Have a time server set it",
        command=playbook("site.yml", tags="baseline"),
        symptoms=("python.certificate_time",),
        places=where_met,
        confirm=(
            probe("net.clock.offset", "is the clock of {node} off?"),
            probe("time.unsynchronised", "is the clock of {node} not set by a server?"),
        ),
        instead_of=OWN,
    ),
)
