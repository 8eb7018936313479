"""docs/findings.md lists exactly the declared checks. Each check is declared once, in the module of its rule."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.health import gpu
from muster.health.subjects import subjects
from muster.verdict.check import Check
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

UTILS = ROOT / "plugins/module_utils"
# A diagnosis names findings and symptoms by id; another test covers that these ids exist.
SOURCES = sorted(
    path for path in (UTILS / "muster").rglob("*.py") if "diagnosis" not in path.parts or path.name == "findings.py"
)
MAKERS = sorted({*(ROOT / "plugins").rglob("*.py"), *(ROOT / "library").glob("*.py")})
LISTED = re.findall(r"^\| `([a-z0-9_.]+)` \|", (ROOT / "docs/findings.md").read_text(), re.MULTILINE)
JUDGES = (*subjects().values(), *gpu.PARTS)


def named(path: Path) -> str:
    return ".".join(path.relative_to(UTILS).with_suffix("").parts)


def checks_of(path: Path) -> dict[str, Check]:
    """Return the checks that a module declares, by variable name."""
    text = path.read_text()
    if "Check(" not in text and ".check import" not in text:
        return {}
    assigned = {
        target.id
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    module = importlib.import_module(named(path))
    return {name: value for name, value in vars(module).items() if name in assigned and isinstance(value, Check)}


def used_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of every check that a module uses to report findings. Skipped checks do not count."""
    tree = ast.parse(path.read_text())
    home = {}
    for one in ast.walk(tree):
        if isinstance(one, ast.ImportFrom):
            package = named(path).split(".")[: -one.level] if one.level else []
            home.update({name.asname or name.name: ".".join([*package, one.module or ""]) for name in one.names})
    modules = {name: f"{above.rstrip('.')}.{name}" for name, above in home.items()}
    idle = {id(name) for one in ast.walk(tree) for name in _idle(one)}
    for one in ast.walk(tree):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and id(one) not in idle:
            yield home.get(one.id, named(path)), one.id
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id in modules:
            yield modules[one.value.id], one.attr


def _idle(one: ast.AST) -> Iterator[ast.AST]:
    """Yield the syntax nodes that only list or skip checks."""
    if isinstance(one, ast.Tuple) and all(isinstance(each, (ast.Name, ast.Starred)) for each in one.elts):
        yield from ast.walk(one)
    if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "skip_all":
        yield from ast.walk(one.args[0])
    if isinstance(one, ast.Attribute) and one.attr == "skip":
        yield one.value


def test_catalogue_matches_the_declared_checks() -> None:
    assert shown(ROOT) == (ROOT / "docs/findings.md").read_text()


def shown(root: Path) -> str:
    command = [sys.executable, str(root / "script/findings.py"), "--show"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout


def test_ids_are_unique_dotted_and_lower_case() -> None:
    assert len(LISTED) == len(set(LISTED))
    for finding in LISTED:
        assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", finding)


def test_ids_are_written_literally_and_only_once() -> None:
    """A literal id lets grep find the rule that produced an id in a verdict."""
    texts = Counter(
        part.value
        for path in SOURCES
        for part in ast.walk(ast.parse(path.read_text()))
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )
    # A skip of gpu_info has the id of its check.
    assert {name for name in LISTED if texts[name] != 1} <= {"fabric_manager.log"}


def test_every_check_is_reported_by_a_rule() -> None:
    declared = {(named(path), name) for path in SOURCES for name in checks_of(path)}
    names = {name for _, name in declared}
    users = [path for path in sorted(UTILS.rglob("*.py")) if not names.isdisjoint(re.findall(r"\w+", path.read_text()))]
    used = {each for path in users for each in used_in(path)}
    assert declared - used == set()


@pytest.mark.parametrize("path", MAKERS, ids=lambda path: path.name)
def test_findings_are_created_only_by_checks(path: Path) -> None:
    """Findings that are read back are allowed, with Finding(**shape) or from a report."""
    if path.parent.name in ("verdict", "report"):
        return
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Finding":
            assert not call.args, ast.unparse(call)
            assert [word.arg for word in call.keywords] == [None], ast.unparse(call)


@pytest.mark.parametrize("judge", JUDGES, ids=lambda judge: judge.__name__)
def test_modules_list_all_of_their_checks(judge: Any) -> None:
    own = checks_of(Path(str(judge.__file__)))
    assert set(own.values()) <= set(judge.CHECKS)
    borrowed = {value for value in vars(judge).values() if isinstance(value, Check)} - set(own.values())
    assert borrowed <= {check for each in JUDGES for check in each.CHECKS}


def test_new_check_appears_in_catalogue_and_coverage(tmp_path: Path) -> None:
    """No other file is edited: the check appears in the catalogue and among the checks that ran."""
    shutil.copytree(ROOT / "script", tmp_path / "script")
    shutil.copytree(UTILS, tmp_path / "plugins/module_utils", ignore=shutil.ignore_patterns("__pycache__"))
    rule = tmp_path / "plugins/module_utils/muster/health/ras.py"
    new = (
        'SLOW = Check("job.slow", seen="never", reads="its answers", fires="warn: they are late", fix="Wait")\n'
        "CHECKS = (RAS, SLOW)"
    )
    rule.write_text(rule.read_text().replace("CHECKS = (RAS,)", new))
    assert "| `job.slow` | its answers | warn: they are late | Wait | never |\n" in shown(tmp_path)
    said = (
        "from muster.health import node; from muster.verdict.check import CheckResults as R;"
        " print(node.checks_run(R([], [])))"
    )
    command = [sys.executable, "-c", said]
    env = {"PYTHONPATH": str(tmp_path / "plugins/module_utils")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    assert "'job.slow'" in done.stdout
