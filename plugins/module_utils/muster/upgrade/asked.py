"""Whether what was given with -e can be an upgrade: all that is wrong with it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.commands import playbook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Request


SECURITY = "security"


def problems(request: Request, driver: str = "") -> Iterator[str]:
    """driver: what is asked of it, which is another playbook's work."""
    if driver:
        how = playbook("playbooks/gpu_stack.yml", gpu_stack_driver=driver)
        yield f"This changes PyTorch or the kernel. For a driver, which is also done node by node: {how}."
    if request.kernel not in ("", SECURITY):
        yield f"kernel is {request.kernel}. What can be asked for is -e kernel={SECURITY}, the newest security fixes."
    if request.kernel and request.torch:
        yield "torch_version and kernel are two upgrades. Give each a run of its own: then it is known what went wrong."
    if request.kernel and request.rollback:
        yield "rollback=true goes back to an earlier PyTorch. An upgrade that fails says how older kernels start."
    if not (request.torch or request.rollback or request.kernel or driver):
        yield "Nothing is asked for. Give -e torch_version=2.13.0 or another, -e kernel=security, or -e rollback=true."
    for name, value in (("batch", request.batch), ("wait", request.wait)):
        if value < 0:
            yield f"{name} is {value}, and cannot be below 0."
