"""Differences between nodes as causes: torch, NCCL, Python, driver, packages, code, settings, data, clocks.

Most differences are harmless. A difference is a cause only if the launch shows a matching symptom. With two nodes, the
cause names neither of them. With more nodes, the cause names the node that differs, if that node shows the symptom
itself.
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

# With DETAIL, torch runs additional collectives before each collective of the script (torch 2.13, distributed_c10d.py).
DEBUG, DETAIL = "TORCH_DISTRIBUTED_DEBUG", "DETAIL"
# Transport settings of NCCL that must be equal on all ranks (NCCL's guide; read, not run).
OF_NCCL = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_NET", "NCCL_IB_DISABLE", "NCCL_BUFFSIZE", "NCCL_NTHREADS")
FIRST_CALLS = 3  # collectives; different settings break these first ones
SAME_ENVIRONMENT = playbook("site.yml", tags="pytorch")
OF_MODELS = (
    *("program.parameter_differs", "program.parameter_count"),
    *("program.operation_differs", "program.shapes_differ", "program.types_differ", "program.sizes_differ"),
)
OF_VERSIONS = ("python.attribute_missing", "python.syntax", "python.module_missing", "python.library_missing")


def known_of(what: Callable[[Program], str | None]) -> Callable[[LaunchCase], Mapping[str, str]]:
    return lambda case: of_programs(case, what)


def version(name: str) -> Callable[[LaunchCase], Mapping[str, str]]:
    return known_of(lambda program: program["versions"].get(name))


def code_of(program: Program) -> str | None:
    """Return the digests of the script and of the Python files in its folder; None if both are unknown."""
    found = [program["digests"][name] for name in ("script", "code") if name in program["digests"]]
    return " ".join(one[:12] for one in found) or None


def odd_one(known: Callable[[LaunchCase], Mapping[str, str]]) -> Places:
    """Yield the node that differs, if only this node showed the symptom itself; otherwise a place without a node."""

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
            return not_looked(f"{what} is known for fewer than two nodes")
        found = difference(values)
        return yes(f"{what}: {found.text}", "node records") if found else no(f"{what} is the same on all nodes")

    return look


def settings_differ(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether settings that must be equal differ between nodes. They are only a cause if
    ranks timed out waiting for each other."""
    del place
    if own_end(case) or not others_waited(case):
        return no("a rank had already failed, or no rank timed out")
    first = furthest(case)
    if first is not None and first.enqueued > FIRST_CALLS:
        return no(f"rank {first.rank} had already started {first.enqueued} collectives")
    known = {name: found for name in case.nodes if (found := environment(case, name)) is not None}
    if len(known) < 2:
        return not_looked("the environment is known for fewer than two nodes")
    detailed = [name for name in known if value_among(case, name, DEBUG, (DETAIL, DETAIL.lower()))]
    if 0 < len(detailed) < len(known):
        return yes(f"{DEBUG} is {DETAIL} only on {', '.join(detailed)}", "launch environment")
    for name in OF_NCCL if case.launch["backend"] == "nccl" else ():
        if len({one.get(name, "") for one in known.values()}) > 1:
            if first is None:
                return not_looked(f"{name} differs between nodes, but the progress of the ranks is unknown")
            return yes(f"{name} differs between nodes", "launch environment")
    return no("no setting that must be equal differs between the nodes")


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
    """Return a cause that compares the records of all nodes."""
    question = Question(f"differs.{name}", f"does {what} differ between the nodes?", differs(known, what))
    return Cause(
        f"drift.{name}",
        scope="pair",
        says=f"{what} differs between the nodes",
        fix=fix,
        command=command,
        symptoms=symptoms,
        places=odd_one(known),
        confirm=(question,),
        instead_of=(
            *("program.other_model", "program.other_operation", "program.other_sizes", "program.bytes"),
            *("process.missing.package", "process.missing.library"),
        ),
    )


CAUSES = (
    cause(
        "torch",
        "the torch version",
        version("torch"),
        (*OF_MODELS, "python.attribute_missing", "nccl.internal_error"),
        "Install the same environment on all nodes",
        SAME_ENVIRONMENT,
    ),
    cause(
        "nccl",
        "the NCCL version",
        version("nccl"),
        ("nccl.internal_error", "nccl.system_error", "nccl.truncated"),
        "Check LD_LIBRARY_PATH for another libnccl, and install the same environment on all nodes",
        SAME_ENVIRONMENT,
    ),
    cause(
        "python",
        "the Python version",
        version("python"),
        ("python.syntax", "python.attribute_missing", "ray.version"),
        "Install the same environment on all nodes",
        SAME_ENVIRONMENT,
    ),
    cause(
        "packages",
        "the set of installed packages",
        version("muster_environment"),
        (*OF_VERSIONS, "ray.version"),
        "Install the same environment on all nodes",
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
        "Set launch_project to copy the same code to all nodes at each launch, or copy the code manually",
    ),
    Cause(
        "drift.environment",
        scope="config",
        says="environment variables that must be equal on all ranks differ between the nodes",
        fix="Set the variables in launch_env, and remove them from login files such as ~/.profile on the nodes",
        symptoms=("launch.stalled", "gloo.timeout", "nccl.timeout", "nccl.internal_error", "nccl.truncated"),
        places=no_node,
        confirm=(Question("differs.environment", "do environment variables of the launch differ?", settings_differ),),
        instead_of=("program.other_operation", "program.other_sizes", "program.straggler"),
    ),
    Cause(
        "drift.driver",
        scope="node",
        says="the driver version on {node} differs from the other nodes, and a rank on {node} had a CUDA error",
        fix="Install the same driver version on all nodes",
        command=playbook("site.yml", tags="gpu_stack"),
        symptoms=("cuda.failed", "cuda.driver_old", "nccl.cuda_error"),
        places=where_met,
        confirm=(probe("versions.driver.differ", "does the driver version on {node} differ from the other nodes?"),),
    ),
    Cause(
        "drift.data",
        scope="node",
        says="the data on {node} differ from the data on the other nodes",
        fix="Copy the same data to all nodes",
        symptoms=("python.file_missing", "python.file_corrupt", "program.checkpoint_keys", "program.checkpoint_sizes"),
        places=where_met,
        confirm=(probe("launch.data", "do the launch data on {node} differ from the other nodes?"),),
        instead_of=("process.missing.file", "program.checkpoint.keys", "program.checkpoint.sizes"),
    ),
    Cause(
        "drift.clock",
        scope="node",
        says="the clock of {node} is wrong",
        fix="Synchronize the clock with a time server",
        command=playbook("site.yml", tags="baseline"),
        symptoms=("python.certificate_time",),
        places=where_met,
        confirm=(
            probe("net.clock.offset", "is the clock of {node} wrong?"),
            probe("time.unsynchronised", "is the clock of {node} not synchronized?"),
        ),
    ),
)
