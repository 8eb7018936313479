"""Whether what was given with -e can be an upgrade: all that is wrong with it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.commands import playbook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Request


def problems(request: Request, driver: str = "", kernel: str = "") -> Iterator[str]:
    """driver, kernel: what is asked of them, which is another playbook's work."""
    if driver:
        how = playbook("playbooks/gpu_stack.yml", gpu_stack_driver=driver)
        yield f"This changes PyTorch alone. For a driver, which is also done node by node: {how}."
    if kernel:
        how = playbook("playbooks/gpu_stack.yml")
        yield f"This changes PyTorch alone. Into a new kernel, nodes with GPUs are rebooted one by one with: {how}."
    if not (request.torch or request.rollback or driver or kernel):
        yield "Nothing is asked for. Give -e torch_version=2.13.0 or another release, or -e rollback=true."
    for name, value in (("batch", request.batch), ("wait", request.wait)):
        if value < 0:
            yield f"{name} is {value}, and cannot be below 0."
