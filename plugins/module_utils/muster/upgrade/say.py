"""Format the plan and the result of an upgrade: changes, postponed nodes, packages and the commands to run."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ..verdict.commands import playbook
from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .kernel import KernelFix
    from .model import Order, UpgradeNode, UpgradeRequest

WIDTH = 8


def planned(nodes: Sequence[UpgradeNode], order: Order, request: UpgradeRequest, *, launches: bool) -> str:
    """Return the changes of each node, the downtime and the order as text.

    launches: whether trial launches will run.
    """
    lines = [*_changes(nodes), *_out(nodes, request, launches=launches), *_in_order(order, request)]
    waiting = f"Muster waits up to {request.wait} s" if request.wait else "postponed unless idle by then"
    busy = [node for node in nodes if node.busy and node.changes]
    lines += [_line("busy", f"{node.name}: {few(node.busy, '; ')}: {waiting}") for node in busy]
    lines += [_line("left", f"{name}: {why.rstrip('. ')}: postponed") for name, why in order.silent.items()]
    if order.proved and order.batches:
        lines.append(_line("done", f"{few(order.proved)}: already as requested"))
    return "\n".join(lines)


def _line(what: str, text: str) -> str:
    return f"{what:<{WIDTH}} {text}"


def _changes(nodes: Sequence[UpgradeNode]) -> Iterator[str]:
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for node in nodes:
        if node.changes:
            alike[tuple(map(str, node.changes))].append(node.name)
    for changes, names in alike.items():
        yield _line("changes", f"{', '.join(names)}: {'; '.join(changes)}")
    if not alike:
        yield _line("changes", "none: every node that responds is up to date")


def _out(nodes: Sequence[UpgradeNode], request: UpgradeRequest, *, launches: bool) -> Iterator[str]:
    if not any(node.changes for node in nodes):
        return
    trial = ", then health check and trial launches (about a minute)" if launches else ""
    if request.kind == "kernel":
        then = trial.replace(" (about a minute)", "") or ", then health check"
        yield _line("out", f"each node during its reboot (a few minutes){then}")
    elif request.kind == "driver":
        then = trial.replace(" (about a minute)", "") or ", then health check"
        yield _line("out", f"each node during driver replacement and reboot (a few minutes){then}")
    elif request.rollback:
        yield _line("out", "each node is briefly interrupted while the link to its environment changes; no reboot")
    else:
        yield _line(
            "out", f"each node is briefly interrupted while the link to its environment changes{trial}; no reboot"
        )


def _in_order(order: Order, request: UpgradeRequest) -> Iterator[str]:
    if request.rollback and order.batches:
        yield _line("order", "all at once")
    elif order.batches:
        first, *behind = order.batches
        then = "".join(f", then {' and '.join(batch)}" for batch in behind[:6])
        more = f", then {sum(map(len, behind[6:]))} more" if behind[6:] else ""
        yield _line("order", f"{first[0]} first, alone{then}{more}; a failed batch stops the upgrade")


def ended_red(
    request: UpgradeRequest, red: Mapping[str, str], untouched: Sequence[str], back: Sequence[str] = ()
) -> str:
    """Describe an upgrade that failed.

    red: why each node of the batch failed. untouched: nodes that were not upgraded. back: rollback commands.
    """
    said: dict[str, list[str]] = defaultdict(list)
    for name, why in red.items():
        said[why].append(name)
    lines = [f"{few(names)}: {why.rstrip('. ')}." for why, names in said.items()]
    unchanged = [*([few(untouched)] if untouched else []), *([] if request.kind == "kernel" else ["the inventory"])]
    if unchanged:
        verb = "is" if len(unchanged) == 1 and len(untouched) < 2 else "are"
        lines.append(f"The upgrade stops: {' and '.join(unchanged)} {verb} unchanged.")
    else:
        lines.append("The upgrade stops.")
    if request.kind != "pytorch":
        lines += to_go_back(request, back)
    elif not request.rollback:
        lines.append(f"To roll back in seconds: {playbook('playbooks/upgrade.yml', rollback='true')}.")
    return "\n".join([*lines, f"To try again: {repeated(request)}."])


def to_go_back(request: UpgradeRequest, back: Sequence[str]) -> list[str]:
    """Return the lines about the rollback. back: commands, or sentences if there is no command."""
    if not back:
        return []
    how = "To boot the older kernel once (the next boot uses the newest again):"
    if request.kind == "driver":
        how = "To roll back to the previous driver from its kept packages:"
    return [how, *(f"  {one}" for one in back)]


def left_for_later(request: UpgradeRequest, left: Mapping[str, str], done: Sequence[str]) -> str:
    lines = [f"{name} is postponed: {why.rstrip('. ')}." for name, why in left.items()]
    have = f"{few(done)} {'is' if len(done) == 1 else 'are'} upgraded. " if done else ""
    stays = "The inventory remains unchanged until all nodes are upgraded. "
    if request.kind == "kernel":
        stays = "Nodes that already have the packages boot the newer kernel at their next reboot. "
    lines.append(f"{have}{stays}To upgrade the postponed nodes later: {repeated(request)}.")
    return "\n".join(lines)


def repeated(request: UpgradeRequest) -> str:
    if request.rollback:
        return playbook("playbooks/upgrade.yml", torch_version=request.torch, rollback="true")
    if request.kind == "kernel":
        return playbook("playbooks/upgrade.yml", kernel=request.kernel)
    if request.kind == "driver":
        return playbook("playbooks/upgrade.yml", driver=request.driver)
    return playbook("playbooks/upgrade.yml", torch_version=request.torch)


def complete(request: UpgradeRequest, done: Sequence[str], silent: Mapping[str, str]) -> str:
    what = f"the driver {request.driver}" if request.kind == "driver" else f"PyTorch {request.torch}"
    if request.kind == "kernel":
        what = f"the newest security fixes of {'its' if len(done) == 1 else 'their'} kernel"
    text = f"{plural(len(done), 'node')} {'has' if len(done) == 1 else 'have'} {what}."
    if silent and request.kind == "kernel":
        return f"{text} {few(list(silent))}: postponed (reasons above). To upgrade them later: {repeated(request)}."
    if silent:
        text += f" {few(list(silent))} did not respond. When they respond again, run site.yml to upgrade them."
    return text


def kernel_packages(fixes: Mapping[str, KernelFix], order: Order) -> Iterator[str]:
    """Yield the packages that apt installs on the changed nodes, and the kernels that stay installed."""
    changed = [name for batch in order.batches for name in batch]
    brought: dict[str, list[str]] = defaultdict(list)
    stays: dict[str, list[str]] = defaultdict(list)
    for name in (name for name in fixes if name in changed):
        fix = fixes[name]
        if fix.installs:
            brought[", ".join(f"{package} {version}" for package, version in fix.installs.items())].append(name)
        if fix.reboot:
            stays[few(fix.stays) if fix.stays else "no other kernel"].append(name)
    for what, names in brought.items():
        yield f"packages {', '.join(names)}: {what}"
    for what, names in stays.items():
        yield f"back     {', '.join(names)}: {what} remains installed"
