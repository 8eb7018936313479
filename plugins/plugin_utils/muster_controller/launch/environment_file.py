"""Reads the environment file of a launch on the controller: YAML, JSON or NAME=value lines, optionally in a vault."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import yaml
from ansible.errors import AnsibleError
from ansible.parsing.vault import EncryptedString, is_encrypted

from muster.launch.environment import add, holds_lines, parse_lines
from muster.launch.plan import PlanError
from muster_node.tools import files

MOST = 128 * 1024  # bytes; the kernel accepts no longer variable


def read_environment(path: str) -> dict[str, str]:
    """Return the variables in the file. Raises PlanError, whose text never contains a value."""
    try:
        text = _text(_home(Path(path)))
        return parse_lines(text) if holds_lines(text) else _mapping(text)
    except PlanError as problem:
        raise PlanError([f"launch_env_file {path}: {sentence}" for sentence in problem.problems]) from None


def _home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise PlanError([f"the user {path.parts[0].lstrip('~')} does not exist on the controller."]) from None


def _text(path: Path) -> str:
    try:
        with files.opened(str(path), links=True) as handle:
            mode = os.fstat(handle).st_mode
            content = os.pread(handle, MOST + 1, 0)
    except OSError as problem:
        raise PlanError([f"the file cannot be read: {problem.strerror}."]) from None
    if len(content) > MOST:
        raise PlanError([f"the file is larger than {MOST} bytes."])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PlanError(["the file is not valid UTF-8 text."]) from None
    if is_encrypted(content):
        return _decrypted(text)
    if mode & 0o077:
        raise PlanError([f"the file is readable by other users. Run: chmod 600 {shlex.quote(str(path))}"])
    return text


def _decrypted(text: str) -> str:
    try:
        return str(EncryptedString(ciphertext=text))
    except AnsibleError:
        how = "Add --ask-vault-pass or --vault-password-file FILE"
        raise PlanError([f"no vault password of this run decrypts the file. {how}."]) from None


def _mapping(text: str) -> dict[str, str]:
    """Return a YAML or JSON mapping with the values as written: yes stays yes, and 0123 keeps its zero."""
    try:
        tree = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as problem:
        line = problem.problem_mark.line + 1 if problem.problem_mark else 1
        raise PlanError([f"line {line}: neither NAME=value nor valid YAML."]) from None
    except (yaml.YAMLError, RecursionError):
        raise PlanError(["the file contains neither lines NAME=value nor valid YAML."]) from None
    if not isinstance(tree, yaml.MappingNode):
        raise PlanError(["the file contains neither lines NAME=value nor a mapping of names to values."])
    found: dict[str, str] = {}
    problems = []
    for name, value in tree.value:
        try:
            add(found, _scalar(name), _scalar(value))
        except (PlanError, ValueError) as problem:
            problems.append(f"line {name.start_mark.line + 1}: {str(problem).removesuffix('.')}.")
    if problems:
        raise PlanError(problems)
    return found


def _scalar(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError("not a string")
    return _decrypted(node.value) if node.tag == "!vault" else str(node.value)
