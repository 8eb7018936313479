"""Modules that delegate their work to a function: passed options, results and errors."""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modules_here import answer, load, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODE: dict[str, Any] = {"node": "node1"}
USER: dict[str, Any] = {**NODE, "user": "trainer"}


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def now() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class Recorder:
    """Stub of a module's work function that records its arguments and the umask."""

    def __init__(self, **result: Any) -> None:
        self.result, self.given, self.umask = result, list[Any](), -1

    def __call__(self, *given: Any, **named: Any) -> dict[str, Any]:
        self.given.append((given, named))
        self.umask = now()
        return dict(self.result)


def fails(*_: Any, **__: Any) -> dict[str, Any]:
    raise OSError(28, "No space left on device", "/x/y")


def options_of(name: str) -> dict[str, Any]:
    """Return the required options of a module."""
    spec = load(name).SPEC
    made = {"str": "one", "path": "/x", "list": [], "dict": {}, "int": 1, "raw": "", "bool": False, "float": 1.0}
    return {key: made[each["type"]] for key, each in spec.items() if each.get("required")} | NODE


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("launch_users", "provide"),
        ("workbench", "provide"),
        ("shared_data", "provide"),
        ("package_sources", "set_up"),
        ("node_plan", "compare"),
        ("ssh_mesh_key", "provide"),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_modules_pass_on_their_options(name: str, work: str, check: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module, given = load(name), options_of(name)
    noted: dict[str, Any] = {"notes": ["one", "two"]} if name in ("launch_users", "workbench") else {}
    noted |= {"overridden": "sshd_config"} if name == "ssh_mesh_key" else {}
    monkeypatch.setattr(module, "warnings", lambda _params, found: [f"node1: {found}."], raising=False)
    monkeypatch.setattr(module, work, recorder := Recorder(changed=True, found="it", **noted))
    said = [f"node1: {each}." for each in [*noted.get("notes", []), *noted.get("overridden", "").split()]]
    answered = {"changed": True, "found": "it"}
    assert answer(module, **given, check=check) == (answered | {"warnings": said} if said else answered)
    ((handed,), named) = recorder.given[0]
    assert named == {"check": check}
    assert {key: handed[key] for key in given} == given
    # All users can read created files.
    assert recorder.umask == (0o077 if name in ("package_sources", "node_plan") else 0o022)
    monkeypatch.setattr(module, work, fails)
    assert answer(module, **given)["msg"] == "node1: /x/y: No space left on device."


def test_module_fetches_repository_keys_through_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("apt_repositories")
    monkeypatch.setenv("https_proxy", "http://other:1")
    asked = []

    def open_url(url: str, timeout: float) -> Any:
        asked.append((url, timeout, os.environ["https_proxy"]))
        return type("Answer", (), {"read": lambda _self: b"a key"})()

    def set_up(repositories: list[dict[str, Any]], fetch: Any, *, check: bool) -> dict[str, Any]:
        return {"changed": not check, "keys": [fetch(one["key_urls"][0]).decode() for one in repositories]}

    monkeypatch.setattr(module, "open_url", open_url)
    monkeypatch.setattr(module, "set_up", set_up)
    given: dict[str, Any] = {"repositories": [{"name": "cuda", "key_urls": ["https://x/key"]}]}
    proxies = {"environment": {"https_proxy": "http://proxy:3128"}}
    for check in (True, False):
        assert answer(module, **NODE, **given, **proxies, check=check) == {"changed": not check, "keys": ["a key"]}
    assert asked == [("https://x/key", 30, "http://proxy:3128")] * 2


def raised(problem: Exception) -> None:
    raise problem


def test_inspection_modules_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("gpu_info")
    monkeypatch.setattr(module.gpu, "look", lambda seconds: {"seconds": seconds})
    monkeypatch.setattr(module, "facts", lambda look: {"of": look})
    assert answer(module, seconds=2.5, check=True) == {"changed": False, "facts": {"of": {"seconds": 2.5}}}
    for seconds in (0, -1):
        assert answer(module, seconds=seconds)["msg"] == (
            "seconds (the time limit of nvidia-smi) must be greater than 0"
        )
    module = load("nccl_health")
    monkeypatch.setattr(module, "look", looked := Recorder(system={}))
    monkeypatch.setattr(module, "unit_properties", lambda *given: given)
    given: dict[str, Any] = {**USER, "address": "10.0.0.1", "torchrun": "/x/torchrun"}
    assert answer(module, **given, check=True) == {"changed": False, "looks": module.encode({"system": {}})}
    ((params, unit), _) = looked.given[0]
    assert (params["user"], unit) == ("trainer", ("trainer", "/", 5))


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKqPzXmr0g8 admin@laptop"


def test_key_is_added_to_authorized_keys_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = load("ssh_copy_key")
    own = pwd.getpwuid(os.getuid())
    home = pwd.struct_passwd([str(tmp_path) if part == own.pw_dir else part for part in own])
    monkeypatch.setattr(module.pwd, "getpwuid", lambda uid: home if uid == os.getuid() else None)
    path = tmp_path / ".ssh/authorized_keys"
    headers = dict.fromkeys(("before_header", "after_header"), str(path))
    added = {"changed": True, "path": str(path), "diff": {**headers, "before": "", "after": f"{KEY}\n"}}
    assert answer(module, **NODE, key=KEY, check=True) == added
    assert not path.parent.exists()
    assert answer(module, **NODE, key=KEY).items() >= added.items()
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == (f"{KEY}\n", 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    kept = {**added, "changed": False, "diff": {**headers, "before": f"{KEY}\n", "after": f"{KEY}\n"}}
    path.touch()
    there = path.stat().st_mtime_ns
    assert answer(module, **NODE, key=KEY).items() >= kept.items()
    assert path.stat().st_mtime_ns == there
    # A link stays a link, and bytes that are not UTF-8 are kept.
    (tmp_path / "elsewhere").write_bytes(b"# \xff\n")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert answer(module, **NODE, key=KEY)["diff"]["before"] == "# ?\n"
    assert (tmp_path / "elsewhere").read_bytes() == b"# \xff\n" + f"{KEY}\n".encode()
    assert path.is_symlink()
    path.unlink()
    path.mkdir()
    assert (
        answer(module, **NODE, key=KEY)["msg"] == f"node1: the key cannot be written to {path}: is not a regular file."
    )


def test_wipe_removes_only_files_of_muster(tmp_path: Path) -> None:
    module = load("wipe_node")
    ours, theirs = write(tmp_path / "conf/90-muster.conf", ""), write(tmp_path / "muster/notes", "theirs")
    write(tmp_path / "muster/wheels/one", "ours")
    folders = [{"path": str(theirs.parent), "only": ["wheels"], "keeps": "people wrote"}]
    given: dict[str, Any] = {**NODE, "files": [str(ours)], "folders": folders}
    gone = [str(ours), f"{tmp_path}/muster/wheels"]
    left = f"{tmp_path}/muster is kept, because it contains files that people wrote: notes"
    header = "node1: files and settings of Muster"
    diff = {"before_header": header, "after_header": header, "before": f"{gone[0]}\n{gone[1]}\n", "after": ""}
    answered = {"changed": True, "gone": gone, "left": [left], "msg": f"node1: {left}.", "diff": diff}
    assert answer(module, **given, check=True) == answered
    assert ours.exists()
    assert answer(module, **given) == answered
    # Other folders named conf belong to the site; a parent is removed only below /etc or in a folder of Muster.
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["conf", "muster", "notes"]
    assert answer(module, **given) == {"changed": False, "gone": [], "left": [left], "msg": f"node1: {left}."}
    assert answer(module, **NODE) == {"changed": False, "gone": [], "left": []}


def test_wiping_a_node_in_use_is_shown_and_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("wipe_node")
    make_plan = module.make_plan
    busy = "launch 7 is running: the node is in use, so nothing is removed"
    monkeypatch.setattr(module, "make_plan", lambda *given: replace(make_plan(*given), problems=[busy]))
    given: dict[str, Any] = {**NODE, "files": [str(write(tmp_path / "90-muster.conf", ""))]}
    shown = answer(module, **given, check=True)
    assert (shown["gone"], shown["msg"]) == (given["files"], f"node1: {busy}.")
    assert answer(module, **given)["failed"]
    assert (tmp_path / "90-muster.conf").exists()


def test_peer_errors_do_not_fail_the_shared_debs_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("shared_debs")
    monkeypatch.setattr(module.debs, "look", looked := Recorder(changed=False, why=""))
    monkeypatch.setattr(module.debs, "get", got := Recorder(changed=True, why=""))
    given: dict[str, Any] = {**USER, "packages": ["one"]}
    assert answer(module, **given, check=True) == {"changed": False, "why": ""}
    for step in ("download", "get"):
        assert answer(module, **given, step=step) == {"changed": True, "why": ""}
    assert (len(looked.given), len(got.given)) == (1, 2)
    nothing = {"changed": False, "fetched": [], "downloaded": [], "tried": [], "debs": []}
    for problem, why in ((module.PeerFilesError("no peer"), "no peer"), (OSError("full"), "full")):
        monkeypatch.setattr(module.debs, "look", lambda _params, problem=problem: raised(problem))
        assert answer(module, **given) == {**nothing, "why": why}
