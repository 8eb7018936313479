"""The Ansible collection contains the repository: once installed, it is used from its folder like a clone."""

from __future__ import annotations

import filecmp
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PYTHON = sys.executable
OF_A_COLLECTION = {"FILES.json", "MANIFEST.json", "meta/runtime.yml"}
# Ansible's sanity tests that need no network and apply to modules or plugins. Without action-plugin-docs, because
# actions that only roles use have no module documentation.
SANITY = (
    "line-endings",
    "no-get-exception",
    "replace-urlopen",
    "symlinks",
    "use-argspec-type-path",
)
# Keys that Ansible allows for attributes and return values in module documentation.
OF_AN_ATTRIBUTE = {"description", "details", "platforms", "support", "version_added"}
OF_A_RESULT = {"choices", "contains", "description", "elements", "returned", "sample", "type", "version_added"}
EMPTY = "# Changelog\n\n## [Unreleased]\n\n"


def run(*words: object, home: Path, folder: Path, collections: Path | None = None) -> str:
    """Run a command without Ansible settings, and with a home folder without collections."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    if collections:
        bare["ANSIBLE_COLLECTIONS_PATH"] = str(collections)
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**bare, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def installed(home: Path) -> Path:
    """The installation folder of the collection."""
    run(sys.executable, ROOT / "script/collection.py", home / "built", home=home, folder=home)
    (archive,) = (home / "built").iterdir()
    run(BIN / "ansible-galaxy", "collection", "install", archive, "-p", home / "collections", home=home, folder=home)
    return home / "collections/ansible_collections/muster/muster"


def test_collection_contains_all_tracked_files_with_their_modes(installed: Path) -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    names = set(filter(None, listing.stdout.split("\0")))
    modules = {f"plugins/modules/{path.name}" for path in (ROOT / "library").glob("*.py")}
    rooms = ROOT / "plugins/module_utils"
    rooms_again = {f"plugins/module_utils/of_modules/{path.relative_to(rooms)}" for path in rooms.rglob("*.py")}
    found = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    assert found == names | OF_A_COLLECTION | modules | rooms_again
    assert filecmp.cmpfiles(ROOT, installed, names, shallow=False)[1:] == ([], [])
    assert {name for name in names if os.access(ROOT / name, os.X_OK) != os.access(installed / name, os.X_OK)} == set()


def test_collection_can_parse_site_yml(installed: Path, home: Path) -> None:
    words = ("site.yml", "-i", "inventory/lab", "--syntax-check")
    assert "playbook: site.yml" in run(BIN / "ansible-playbook", *words, home=home, folder=installed)


def test_collection_validates_an_inventory(installed: Path, home: Path) -> None:
    words = ("playbooks/validate.yml", "-i", "inventory/sandbox")
    said = run(BIN / "ansible-playbook", *words, home=home, folder=installed)
    assert (
        said.splitlines()[-1]
        == "DONE: validate.yml found no problems in the inventory (2 nodes); no node was contacted or changed"
    )


def test_collection_module_runs_on_this_machine(installed: Path, home: Path) -> None:
    words = ("localhost", "-c", "local", "-m", "gpu_info", "-e", f"ansible_python_interpreter={sys.executable}")
    said = run(BIN / "ansible", *words, home=home, folder=installed)
    assert "localhost | SUCCESS" in said
    assert "facts:" in said


def test_collection_module_runs_from_a_playbook_outside_the_project(installed: Path, home: Path) -> None:
    """The playbook uses the full module name. No ansible.cfg sets the path, and imports are resolved within the
    collection."""
    words = ("localhost", "-c", "local", "-m", "muster.muster.gpu_info", "-e", f"ansible_python_interpreter={PYTHON}")
    said = run(BIN / "ansible", *words, home=home, folder=home, collections=home / "collections")
    assert "localhost | SUCCESS" in said
    assert "facts:" in said or '"facts":' in said


def test_documentation_of_every_module_is_valid(installed: Path, home: Path) -> None:
    """In one-line YAML, a comma splits a description, and the rest of the text becomes a key."""
    names = [f"muster.muster.{path.stem}" for path in (ROOT / "library").glob("*.py")]
    said = run(BIN / "ansible-doc", "--json", *names, home=home, folder=home, collections=home / "collections")
    documented = json.loads(said)
    assert documented.keys() == set(names)
    for name, module in documented.items():
        for attribute, about in module["doc"].get("attributes", {}).items():
            assert about.keys() <= OF_AN_ATTRIBUTE, f"{name}: {attribute}"
            assert about["description"], f"{name}: {attribute}"
        assert unknown_keys(module["return"] or {}) == [], name


def unknown_keys(returned: dict[str, Any]) -> list[str]:
    found = []
    for value in returned.values():
        found += [key for key in value if key not in OF_A_RESULT]
        found += unknown_keys(value.get("contains", {}))
    return found


def test_ansible_sanity_tests_pass(installed: Path, home: Path) -> None:
    run(BIN / "ansible-test", "sanity", *(f"--test={name}" for name in SANITY), home=home, folder=installed)


@pytest.mark.parametrize(
    ("changelog", "version"),
    [
        (f"{EMPTY}## [0.2.1] - 2026-01-01\n\n- One\n\n## [0.1.0] - 2025-01-01\n", "0.2.1"),
        (f"{EMPTY}- Two\n\n## [0.2.1] - 2026-01-01\n\n- One\n\n## [0.1.0] - 2025-01-01\n", "0.3.0-dev"),
    ],
)
def test_collection_version_matches_changelog(changelog: str, version: str) -> None:
    spec = importlib.util.spec_from_file_location("collection_script", ROOT / "script/collection.py")
    assert spec
    assert spec.loader
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.version(changelog) == version


def test_collection_manifest_is_complete(installed: Path) -> None:
    manifest = json.loads((installed / "MANIFEST.json").read_text())["collection_info"]
    assert (manifest["namespace"], manifest["name"]) == ("muster", "muster")
    assert manifest["dependencies"] == {}
