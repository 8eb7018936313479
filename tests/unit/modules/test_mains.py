"""Modules whose work is done elsewhere: what they hand on, what they answer, and what they say of an error."""

from __future__ import annotations

import os
import pwd
import stat
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
    """Does the work of a module: notes what it is given, and under which umask."""

    def __init__(self, **result: Any) -> None:
        self.result, self.given, self.umask = result, list[Any](), -1

    def __call__(self, *given: Any, **named: Any) -> dict[str, Any]:
        self.given.append((given, named))
        self.umask = now()
        return dict(self.result)


def fails(*_: Any, **__: Any) -> dict[str, Any]:
    raise OSError(28, "No space left on device", "/x/y")


def options_of(name: str) -> dict[str, Any]:
    """The options that a module cannot do without."""
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
def test_what_is_handed_on(name: str, work: str, check: bool, monkeypatch: pytest.MonkeyPatch) -> None:
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
    # What is made on the node can be read by everybody.
    assert recorder.umask == (0o077 if name in ("package_sources", "node_plan") else 0o022)
    monkeypatch.setattr(module, work, fails)
    assert answer(module, **given)["msg"] == "node1: /x/y: No space left on device."


def test_the_names_of_nodes_are_kept_or_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("hosts_file")
    monkeypatch.setattr(module, "provide", kept := Recorder(changed=True, reasons=["one"]))
    monkeypatch.setattr(module, "forget", forgotten := Recorder(changed=False, reasons=[]))
    monkeypatch.setattr(module.socket, "gethostname", lambda: "vm7")
    cluster = module.Cluster({"node1": "10.0.0.1"}, "node1", "vm7")
    options: dict[str, Any] = {"nodes": {"node1": "10.0.0.1"}, "own": "node1"}
    for mode, check in (("manage", True), ("verify", False)):
        assert answer(module, **options, mode=mode, check=check) == {"changed": True, "reasons": ["one"]}
        assert kept.given.pop() == ((cluster, mode), {"check": check})
        assert answer(module, own="node1", mode=mode, check=check) == {"changed": False, "reasons": []}
        assert forgotten.given.pop() == ((), {"check": check})
    monkeypatch.setattr(module, "provide", fails)
    assert answer(module, **options)["msg"] == "node1: /x/y: No space left on device."


def test_keys_of_repositories_are_fetched_by_the_proxies_of_the_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("step", ["look", "provide"])
def test_an_environment_of_conda_packages(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    module = load("conda_env")
    made: list[Any] = []

    def manager(root: Any, params: dict[str, Any]) -> Any:
        made.append((root, params["target"], now()))
        steps = {name: staticmethod(lambda name=name: {"changed": name == "provide"}) for name in ("look", "provide")}
        return type("Manager", (), steps)()

    monkeypatch.setattr(module, "CondaManager", manager)
    monkeypatch.setattr(module, "CondaRoot", lambda *given: given)
    monkeypatch.setattr(module.LookedAs, "choose", lambda user: f"as {user}")
    given: dict[str, Any] = {"root": "/x/bio", "user": "trainer", "target": "bio-1", "step": step}
    assert answer(module, **NODE, **given) == {"changed": step == "provide"}
    assert made == [(("/x/bio", "as trainer"), "bio-1", 0o022)]
    for problem, said in ((module.LockError("it is locked"), "it is locked."), (OSError(28, "full"), "/x/bio: full.")):
        monkeypatch.setattr(module, "CondaRoot", lambda *_, problem=problem: raised(problem))
        assert answer(module, **NODE, **given)["msg"] == f"node1: {said}"


def raised(problem: Exception) -> None:
    raise problem


def test_an_environment_of_somebody_else_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("existing_env")
    monkeypatch.setattr(module, "look", lambda prefix, user: {"there": True, "said": f"{prefix} as {user}"})
    found = {"changed": False, "there": True, "said": "/x as trainer"}
    assert answer(module, **USER, prefix="/x", check=True) == found
    monkeypatch.setattr(module, "look", lambda *_: raised(PermissionError(1, "Operation not permitted")))
    assert answer(module, **USER, prefix="/x")["msg"] == "node1: /x: Operation not permitted."


def test_looks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("gpu_info")
    monkeypatch.setattr(module.gpu, "look", lambda seconds: {"seconds": seconds})
    monkeypatch.setattr(module, "facts", lambda look: {"of": look})
    assert answer(module, seconds=2.5, check=True) == {"changed": False, "facts": {"of": {"seconds": 2.5}}}
    for seconds in (0, -1):
        assert answer(module, seconds=seconds)["msg"] == (
            "seconds is the time that nvidia-smi is given, and must be more than 0"
        )
    module = load("nccl_health")
    monkeypatch.setattr(module, "look", looked := Recorder(system={}))
    monkeypatch.setattr(module, "unit_properties", lambda *given: given)
    given: dict[str, Any] = {**USER, "address": "10.0.0.1", "torchrun": "/x/torchrun"}
    assert answer(module, **given, check=True) == {"changed": False, "looks": module.encode({"system": {}})}
    ((params, unit), _) = looked.given[0]
    assert (params["user"], unit) == ("trainer", ("trainer", "/", 5))


@pytest.mark.parametrize(
    ("options", "needs_a_user"),
    [
        ({}, True),
        ({"only": ["users"]}, True),
        ({"only": ["clock", "environments"]}, True),
        ({"only": ["clock"]}, False),
    ],
)
def test_who_is_looked_at_for(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], needs_a_user: bool) -> None:
    module = load("node_inspect")
    monkeypatch.setattr(module, "look_at", lambda params: {"only": params["only"]})
    monkeypatch.setattr(module, "facts", lambda looks: looks)
    found = {"changed": False, "facts": {"only": options.get("only", [])}}
    assert answer(module, **options, user="trainer", check=True) == found
    needed = "user is required where users or environments is looked at"
    assert answer(module, **options) == ({"failed": True, "msg": needed} if needs_a_user else found)


AGAIN = "run ansible-playbook playbooks/network.yml again when it answers, without --limit."
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKqPzXmr0g8 admin@laptop"


def test_the_key_of_an_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    # One that leads elsewhere goes on leading there, and bytes that are no text are kept.
    (tmp_path / "elsewhere").write_bytes(b"# \xff\n")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert answer(module, **NODE, key=KEY)["diff"]["before"] == "# ?\n"
    assert (tmp_path / "elsewhere").read_bytes() == b"# \xff\n" + f"{KEY}\n".encode()
    assert path.is_symlink()
    path.unlink()
    path.mkdir()
    assert answer(module, **NODE, key=KEY)["msg"] == f"node1: the key cannot be written to {path}: is not a regular file."


@pytest.fixture
def proof(monkeypatch: pytest.MonkeyPatch) -> Any:
    """ssh_mesh_proof on a node whose logins work, except that on node3 where `broken` says so."""
    module: Any = load("ssh_mesh_proof")
    module.memory, module.tried, module.broken = {}, [], []

    def log_in_on(entry: str, peers: list[Any]) -> list[Any]:
        assert entry == "trainer's"
        module.tried = [peer.name for peer in peers]
        return [module.ssh_mesh.Attempt(peer, 255 * (peer.name in module.broken), "no", "") for peer in peers]

    monkeypatch.setattr(module.pwd, "getpwnam", lambda user: f"{user}'s")
    monkeypatch.setattr(module.mesh_logins, "log_in_on", log_in_on)
    monkeypatch.setattr(module.mesh_logins, "remembered", lambda path: dict(module.memory) if path == "/x" else {})
    monkeypatch.setattr(module.mesh_logins, "remember", lambda _path, proved: setattr(module, "memory", proved))
    return module


def mesh(*seen: str, **options: Any) -> dict[str, Any]:
    members = [
        {"name": f"node{at}", "address": f"10.0.0.{at}", "sources": [], "host_keys": [], "seen": f"node{at}" in seen}
        for at in (1, 2, 3, 4)
    ]
    return {**USER, "members": members, "ways": {"node2": "a", "node3": "b", "node4": "c"}, "memory": "/x", **options}


def test_logins_are_tried_where_something_has_changed(proof: Any) -> None:
    three = ("node1", "node2", "node3")
    absent = "it took no part in this run: run ansible-playbook playbooks/network.yml with it"
    first = answer(proof, **mesh(*three))
    assert first == {"changed": False, "tried": ["node2", "node3"], "not_tried": {"node4": absent}}
    assert (proof.tried, proof.memory) == (["node2", "node3"], {"node2": "a", "node3": "b"})
    proof.memory["gone"] = "x"
    # Of peers that are not due, the first one is tried all the same.
    again = answer(proof, **mesh(*three))
    unchanged = "nothing has changed since it was logged in on"
    assert again["not_tried"] == {"node4": absent, "node3": unchanged}
    assert (proof.tried, proof.memory) == (["node2"], {"node2": "a", "node3": "b"})
    assert answer(proof, **mesh(*three, full=True))["tried"] == ["node2", "node3"]
    assert answer(proof, **mesh(*three, memory=""))["tried"] == ["node2", "node3"]
    assert answer(proof, **mesh(*three, ways={"node3": "new"}))["tried"] == ["node2", "node3"]
    proof.broken = ["node3"]
    assert answer(proof, **mesh(*three, full=True)) == {
        "changed": False,
        "failed": True,
        "tried": ["node2", "node3"],
        "not_tried": {"node4": absent},
        "msg": "node1: trainer cannot log in from here on\n- node3: no",
    }
    assert proof.memory == {"node2": "a"}
    proof.tried = []
    assert answer(proof, **mesh(*three), check=True) == {
        "changed": False,
        "skipped": True,
        "msg": "Logins are not tried in check mode.",
        "tried": [],
        "not_tried": {},
    }
    assert proof.tried == []


def test_of_many_peers_a_sample_is_tried(proof: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof.ssh_mesh, "MAX_PEERS", 2)
    answered = answer(proof, **mesh("node1", "node2", "node3", "node4"))
    assert answered["tried"] == ["node2", "node3"]
    assert answered["not_tried"] == {"node4": "a sample of 2 peers was tried"}


def test_what_is_taken_off_a_node(tmp_path: Path) -> None:
    module = load("wipe_node")
    ours, theirs = write(tmp_path / "conf/90-muster.conf", ""), write(tmp_path / "muster/notes", "theirs")
    write(tmp_path / "muster/wheels/one", "ours")
    folders = [{"path": str(theirs.parent), "only": ["wheels"], "keeps": "people wrote"}]
    given: dict[str, Any] = {**NODE, "files": [str(ours)], "folders": folders}
    gone, left = [str(ours), f"{tmp_path}/muster/wheels"], f"{tmp_path}/muster stays, with what people wrote: notes"
    header = "node1: what Muster has there"
    diff = {"before_header": header, "after_header": header, "before": f"{gone[0]}\n{gone[1]}\n", "after": ""}
    answered = {"changed": True, "gone": gone, "left": [left], "msg": f"node1: {left}.", "diff": diff}
    assert answer(module, **given, check=True) == answered
    assert ours.exists()
    assert answer(module, **given) == answered
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["muster", "notes"]
    assert answer(module, **given) == {"changed": False, "gone": [], "left": [left], "msg": f"node1: {left}."}
    assert answer(module, **NODE) == {"changed": False, "gone": [], "left": []}


def test_what_could_not_be_taken_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = load("wipe_node")
    ours = write(tmp_path / "90-muster.conf", "")
    account = {"name": "nobody", "comment": "made by Muster"}
    monkeypatch.setattr(module, "act", lambda *_: None)
    answered = answer(module, **NODE, files=[str(ours)], account=account)
    assert answered["msg"] == f"node1: {ours} could not be taken off. Run this again."
    assert answer(module, **NODE, account=account)["left"] == ["the account nobody was there before Muster, and stays"]


def test_files_of_peers_in_check_mode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = load("peer_files")
    there = write(tmp_path / "one.whl", "")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    files = [{"name": there.name, "sha256": empty}, {"name": "two.whl", "sha256": empty}]
    given: dict[str, Any] = {**USER, "peers": ["node2"], "source": "/x", "target": str(tmp_path)}
    nothing: dict[str, Any] = {"fetched": [], "tried": []}
    assert answer(module, **given, files=files, check=True) == {
        **nothing,
        "changed": True,
        "complete": False,
        "missing": ["two.whl"],
    }
    some = {**nothing, "changed": False, "complete": True, "missing": []}
    assert answer(module, **given, files=files[:1], check=True) == some
    tried = module.domain.Attempt("node2", ("two.whl",), 7, "")
    monkeypatch.setattr(module.peer_files, "fetch", lambda *given: ([given[4][0].name], [tried]))
    assert answer(module, **given, files=files) == {
        "changed": True,
        "complete": False,
        "missing": ["one.whl"],
        "fetched": ["two.whl"],
        "tried": [{"peer": "node2", "fetched": ["two.whl"], "bytes": 7, "why": ""}],
    }
    monkeypatch.setattr(module.peer_files, "fetch", fails)
    assert answer(module, **given, files=files)["msg"] == "node1: /x/y: No space left on device."


def test_what_peers_do_not_have_apt_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_files_of_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("ssh_mesh_files")
    given: dict[str, Any] = {**USER, "address": "10.0.0.1", "cluster": "lab", "identity": "/x/id", "members": []}
    monkeypatch.setattr(module, "keep", kept := Recorder(changed=True, strangers=["node3", "node4"]))
    assert answer(module, **given, check=True) == {
        "changed": True,
        "strangers": ["node3", "node4"],
        "warnings": [f"node3, node4 took no part in this run, and the other nodes do not know its key yet: {AGAIN}"],
    }
    assert kept.given[0][1] == {"check": True}
    monkeypatch.setattr(module, "keep", Recorder(changed=False, strangers=[]))
    assert answer(module, **given) == {"changed": False, "strangers": []}
    monkeypatch.setattr(module, "keep", fails)
    assert answer(module, **given)["msg"] == "node1: /x/y: No space left on device, as trainer."
    monkeypatch.setattr(module, "keep", lambda *_, **__: raised(module.BlockError("config has no end")))
    assert answer(module, **given)["msg"] == "node1: config has no end."
