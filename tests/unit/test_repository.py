"""Rules that all files of the project must follow."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
PLAYBOOKS = sorted([ROOT / "site.yml", *(ROOT / "playbooks").glob("*.yml")])
MODULES = sorted((ROOT / "library").glob("*.py"))
WITH_ATTRIBUTES = {"role_options.posix", "role_options.debian"}  # fragments of modules
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))

# Written in parts, so that this file does not match its own patterns.
LINTERS = "an exception to the linters"
FORBIDDEN = {
    "a registry or mirror: read it from the host at run time": (
        r"(pypi|pythonhosted)\.or" + r"g|deb\.debia" + r"n\.org|ubuntu\.co" + r"m/ubuntu|npmj" + r"s\.|"
        r"docker\.i" + r"o/|quay\.i" + r"o|gh" + r"cr\.io|n" + r"vcr\.io"
    ),
    "a path of one developer's machine": r"(?<![\w.}-])/(wor" + r"k|roo" + r"t|opt/whee" + r"ls)/",
    LINTERS: r"# *no" + r"qa|type: *igno" + r"re|pragma: no co" + r"ver",
    "a failure that is hidden": r"^\s*(- )?(igno" + r"re_errors|igno" + r"re_unreachable):|failed_when: fal" + r"se\b",
    "a change that is not looked at": r"changed_when: (tr" + r"ue|ye" + r"s)",
    "an unchecked host key": (
        r"StrictHostKeyChecking[= ]*(n" + r"o|of" + r"f|accept)|host_key_checking *[=:] *(fal" + r"se|n" + r"o)|"
        r"UserKnownHostsFile[= ]*/dev/nu" + r"ll"
    ),
    "work that is not done": r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b",
    "a kill by name or pattern": r"\b(pki" + r"ll|killa" + r"ll)\b",
}
# The only exception: Ubuntu's public archive, the default of an option.
UBUNTU_ARCHIVE = ("plugins/module_utils/muster/sandbox/bases.py", 'UBUNTU_ARCHIVE = "')
BINARY = {".png", ".svg", ".gz", ".zip", ".ico"}


def committed_files() -> list[Path]:
    """Return the files that git tracks or would add."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [ROOT / name for name in listing.stdout.splitlines()]
    return [path for path in paths if path.is_file() and path.suffix not in BINARY]


def argument_specs(role: Path) -> dict[str, Any]:
    specs: dict[str, Any] = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    return specs


def options(role: Path) -> dict[str, Any]:
    """Return the options of the entry point main, or of the only entry point."""
    declared: dict[str, Any] = next(iter(argument_specs(role).values())).get("options", {})
    return declared


def names(paths: list[Path]) -> list[str]:
    return [path.stem for path in paths]


@pytest.mark.parametrize("role", ROLES, ids=names(ROLES))
def test_argument_specs_match_the_role_defaults(role: Path) -> None:
    file = role / "defaults/main.yml"
    defaults = (yaml.safe_load(file.read_text()) if file.exists() else None) or {}
    required = {name for name, option in options(role).items() if option.get("required")}
    declared = {name: option.get("default") for name, option in options(role).items() if name not in required}
    assert declared == defaults
    for name in options(role):
        assert f"{name}_".startswith(f"{role.name}_"), f"{name} does not begin with the name of its role"


def test_cluster_mode_is_the_default_of_every_mode() -> None:
    declared = {name: option for role in ROLES for name, option in options(role).items()}
    modes = {
        name: option["default"]
        for name, option in declared.items()
        if {"manage", "verify"} <= {*option.get("choices", ())} and name != "cluster_mode"
    }
    # What is installed on request only.
    assert {modes.pop(name) for name in ("watch_mode", "monitoring_mode", "slurm_mode")} == {"off"}
    assert len(modes) == 16
    assert set(modes.values()) == {"{{ cluster_mode }}"}
    assert declared["cluster_mode"]["choices"] == ["manage", "verify"]


@pytest.mark.parametrize("role", ROLES, ids=names(ROLES))
def test_every_option_is_described(role: Path) -> None:
    for entry in argument_specs(role).values():
        assert entry["short_description"]
        for name, option in entry.get("options", {}).items():
            assert option.get("description"), f"{name} has no description"
            assert option.get("type"), f"{name} has no type"


@pytest.mark.parametrize("role", ROLES, ids=names(ROLES))
def test_every_role_depends_on_the_cluster_role(role: Path) -> None:
    if role.name in ("cluster", "sandbox"):  # the sandbox is created before the cluster
        return
    meta = yaml.safe_load((role / "meta/main.yml").read_text())
    dependencies = [entry if isinstance(entry, str) else entry["role"] for entry in meta["dependencies"]]
    assert "cluster" in dependencies


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=names(PLAYBOOKS))
def test_playbooks_are_short(playbook: Path) -> None:
    assert len(playbook.read_text().splitlines()) < 40


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=names(PLAYBOOKS))
def test_playbooks_validate_the_inventory_first(playbook: Path) -> None:
    if playbook.stem in ("validate", "sandbox_up", "sandbox_down"):
        return
    first = yaml.safe_load(playbook.read_text())[0]
    assert first["ansible.builtin.import_playbook"].endswith("validate.yml")


def test_pipeline_validates_the_inventory_once() -> None:
    validate, *steps = yaml.safe_load((ROOT / "site.yml").read_text())
    assert validate["ansible.builtin.import_playbook"] == "playbooks/validate.yml"
    for step in steps:
        assert step["vars"] == {"cluster_validated": True}
        first = yaml.safe_load((ROOT / step["ansible.builtin.import_playbook"]).read_text())[0]
        assert first["when"] == "not (cluster_validated | default(false) | bool)"


@pytest.mark.parametrize("module", MODULES, ids=names(MODULES))
def test_modules_are_documented(module: Path) -> None:
    texts = {
        target.id: yaml.safe_load(ast.literal_eval(node.value))
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in ("DOCUMENTATION", "EXAMPLES", "RETURN")
    }
    documentation = texts["DOCUMENTATION"]
    assert documentation["module"] == module.stem
    if not WITH_ATTRIBUTES.intersection(documentation["extends_documentation_fragment"]):
        assert documentation["attributes"]["check_mode"]["support"]
        assert documentation["attributes"]["diff_mode"]["support"]
    for name, option in documentation.get("options", {}).items():
        assert option["description"], f"{name} has no description"
    assert texts["EXAMPLES"]
    assert texts["RETURN"]


def test_sample_inventory_shows_every_option() -> None:
    script = ROOT / "script/lab_options.py"
    wanted = subprocess.run([sys.executable, script, "--show"], check=True, capture_output=True, text=True)
    shown = (ROOT / "inventory/lab/group_vars/all.yml").read_text()
    assert shown == wanted.stdout, "run .venv/bin/python script/lab_options.py"


def test_job_example_shows_every_launch_option() -> None:
    script = ROOT / "script/lab_options.py"
    wanted = subprocess.run([sys.executable, script, "--show-job"], check=True, capture_output=True, text=True)
    text = (ROOT / "examples/job.yml").read_text()
    assert text == wanted.stdout, "run .venv/bin/python script/lab_options.py"
    commented = yaml.safe_load("\n".join(re.findall(r"^# ([a-z]\w+: .*)$", text, re.MULTILINE)))
    for name, option in options(ROOT / "roles/launch").items():
        assert (
            name in ("launch_attach", "launch_stop", "launch_export_to", "launch_export_file")
            or name in yaml.safe_load(text)
            or (commented[name] == option.get("default"))
        )


def test_sample_options_can_be_uncommented() -> None:
    text = (ROOT / "inventory/lab/group_vars/all.yml").read_text()
    shown = yaml.safe_load("\n".join(re.findall(r"^# ([a-z]+_\w+: .*)$", text, re.MULTILINE)))
    for role in ROLES:
        for name, option in options(role).items():
            assert role.name in ("onboard", "sandbox") or shown[name] == option.get("default")


@pytest.mark.parametrize("lock", LOCKS, ids=names(LOCKS))
def test_locks_pin_hashes_and_do_not_name_an_index(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    assert not re.search(r"^--?(index|extra|find|trusted)", text, re.MULTILINE)
    for requirement in re.split(r"\n(?=\S)", text):
        if not requirement.startswith("#"):
            assert re.match(r"[\w.-]+(\[[\w,-]+\])?==", requirement), requirement.splitlines()[0]
            assert "--hash=sha256:" in requirement, requirement.splitlines()[0]


@pytest.mark.parametrize("reason", FORBIDDEN)
def test_no_file_contains_forbidden_text(reason: str) -> None:
    pattern = re.compile(FORBIDDEN[reason])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in committed_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if path.name != "LICENSE" and pattern.search(line)
        if not (reason == LINTERS and path.suffix == ".log")  # a traceback quotes foreign code
        if not (str(path.relative_to(ROOT)) == UBUNTU_ARCHIVE[0] and line.startswith(UBUNTU_ARCHIVE[1]))
    ]
    assert not found, f"{reason}:\n" + "\n".join(found)
