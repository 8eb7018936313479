"""What is shown before an upgrade and after it: who changes and who is left, what apt brings, and what to run."""

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
    """Every node with what changes there, how long it is out, and in which order. launches: whether trials are made."""
    lines = [*_changes(nodes), *_out(nodes, request, launches=launches), *_in_order(order, request)]
    waiting = f"it is waited for up to {request.wait} s" if request.wait else "it is left for later unless idle by then"
    busy = [node for node in nodes if node.busy and node.changes]
    lines += [_line("busy", f"{node.name}: {few(node.busy, '; ')}: {waiting}") for node in busy]
    lines += [_line("left", f"{name}: {why.rstrip('. ')}: it is left for later") for name, why in order.silent.items()]
    if order.proved and order.batches:
        lines.append(_line("done", f"{few(order.proved)}: as requested already"))
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
        yield _line("changes", "none: every node that answers has it")


def _out(nodes: Sequence[UpgradeNode], request: UpgradeRequest, *, launches: bool) -> Iterator[str]:
    if not any(node.changes for node in nodes):
        return
    trial = ", then for its health and its trial launches, about a minute" if launches else ""
    if request.kind == "kernel":
        then = trial.replace(", about a minute", "") or ", then for its health"
        yield _line("out", f"each node while it is started anew, some minutes{then}")
    elif request.kind == "driver":
        then = trial.replace(", about a minute", "") or ", then for its health"
        yield _line("out", f"each node while its driver is replaced and it is started anew, some minutes{then}")
    elif request.rollback:
        yield _line("out", "each node for a moment, in which its link is switched; nothing is rebooted")
    else:
        yield _line("out", f"each node for a moment, in which its link is switched{trial}; nothing is rebooted")


def _in_order(order: Order, request: UpgradeRequest) -> Iterator[str]:
    if request.rollback and order.batches:
        yield _line("order", "all at once")
    elif order.batches:
        first, *behind = order.batches
        then = "".join(f", then {' and '.join(batch)}" for batch in behind[:6])
        more = f", then {sum(map(len, behind[6:]))} more" if behind[6:] else ""
        yield _line("order", f"{first[0]} first, by itself{then}{more}; a batch that is not good ends it")


def ended_red(
    request: UpgradeRequest, red: Mapping[str, str], untouched: Sequence[str], back: Sequence[str] = ()
) -> str:
    """red: of each node of the batch that was not good, why. untouched: the nodes behind it. back: commands."""
    said: dict[str, list[str]] = defaultdict(list)
    for name, why in red.items():
        said[why].append(name)
    lines = [f"{few(names)}: {why.rstrip('. ')}." for why, names in said.items()]
    inventory = "" if request.kind == "kernel" else ", and the inventory too"
    if untouched:
        verb = "is" if len(untouched) == 1 else "are"
        lines.append(f"The upgrade ends here: {few(untouched)} {verb} as before{inventory}.")
    else:
        lines.append(f"The upgrade ends here{inventory.replace('too', 'is as before')}.")
    if request.kind != "pytorch":
        lines += to_go_back(request, back)
    elif not request.rollback:
        lines.append(f"To go back, in seconds: {playbook('playbooks/upgrade.yml', rollback='true')}.")
    return "\n".join([*lines, f"To try again: {repeated(request)}."])


def to_go_back(request: UpgradeRequest, back: Sequence[str]) -> list[str]:
    """back: commands, or sentences where there is none."""
    if not back:
        return []
    how = "To start the older kernel once more (a start after that takes the newest again):"
    if request.kind == "driver":
        how = "To go back to the driver that was there, whose packages were kept:"
    return [how, *(f"  {one}" for one in back)]


def left_for_later(request: UpgradeRequest, left: Mapping[str, str], done: Sequence[str]) -> str:
    lines = [f"{name} is left for later: {why.rstrip('. ')}." for name, why in left.items()]
    have = f"{few(done)} {'has' if len(done) == 1 else 'have'} it. " if done else ""
    stays = "The inventory stays as it was until all have it. "
    if request.kind == "kernel":
        stays = "Where its packages have come already, the next start takes the newer kernel. "
    lines.append(f"{have}{stays}Type this again then: {repeated(request)}.")
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
        return f"{text} {few(list(silent))}: left, as said before. For them, later: {repeated(request)}."
    if silent:
        text += f" {few(list(silent))} did not answer: once they do, site.yml brings it there too."
    return text


def kernel_packages(fixes: Mapping[str, KernelFix], order: Order) -> Iterator[str]:
    """Of the nodes that change: every package that apt brings, and the kernels that stay beside the new one."""
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
        yield f"back     {', '.join(names)}: {what} stays installed"
