"""Run modules of library/ in this process with Ansible's AnsibleModule and stubbed commands."""

from __future__ import annotations

import importlib.util
import io
import json
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import ansible.module_utils
import pytest
from ansible.module_utils.testing import patch_module_args

from muster_node.tools.run import CommandResult
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

if str(ROOT / "plugins/module_utils") not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(str(ROOT / "plugins/module_utils"))


def load(name: str) -> ModuleType:
    """Import a module of library/ again, and return it."""
    described = importlib.util.spec_from_file_location(name, ROOT / f"library/{name}.py")
    assert described
    assert described.loader
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def among_files_of(folder: Path, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Redirect the module's file access to a folder."""
    functions = {"Path": Path, **{name: getattr(module, name) for name in ("read", "names") if hasattr(module, name)}}
    for name, function in functions.items():
        monkeypatch.setattr(module, name, partial(_below, function, folder))
    return module


def _below(function: Callable[[str], Any], folder: Path, path: Any, *more: str) -> Any:
    whole = str(path)
    return function("/".join([whole if whole.startswith(str(folder)) else f"{folder}{whole}", *more]))


def answer(module: ModuleType, *, check: bool = False, **options: Any) -> dict[str, Any]:
    """Run a module's main function. Return the module's result."""
    printed, warned = io.StringIO(), list[str]()
    with (
        patch.object(module.AnsibleModule, "warn", lambda _self, text: warned.append(text)),
        patch_module_args({**options, "_ansible_check_mode": check}),
        redirect_stdout(printed),
        pytest.raises(SystemExit) as ended,
    ):
        module.main()
    answered: dict[str, Any] = json.loads(printed.getvalue())
    answered.pop("invocation", None)
    answered.update({"warnings": warned} if warned else {})
    assert ended.value.code == (1 if answered.get("failed") else 0)
    return answered


def write(file: Path, text: str) -> Path:
    """Write a file and create missing parent folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@dataclass
class Commands:
    """Stub for `run`. answers: results by command or command prefix. A command without an answer counts as not
    installed."""

    answers: dict[str, str]
    ran: list[str] = field(default_factory=list)

    def __call__(self, *argv: str, **_: Any) -> CommandResult:
        command = " ".join(argv)
        self.ran.append(command)
        begin = max((each for each in self.answers if command.startswith(each)), key=len, default=None)
        return (
            CommandResult("", f"{argv[0]} is not there")
            if begin is None
            else CommandResult(self.answers[begin], code=0)
        )
