"""What the modules of the GPU stack see on a node, and what they write there."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from modules_here import Commands, among_files_of, answer, load, write

if TYPE_CHECKING:
    from pathlib import Path

USER = pwd.getpwuid(os.getuid()).pw_name
NVCC = "Cuda compilation tools, release {}, V1"


def test_toolkits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = among_files_of(tmp_path, load("cuda_toolkits"), monkeypatch)
    local = tmp_path / "usr/local"
    for folder in ("cuda-12.8", "cuda-13.0", "cuda-13.0-old", "cuda-samples"):
        (local / folder).mkdir(parents=True)
    (local / "cuda").symlink_to("cuda-12.8")
    (local / "cuda-13").symlink_to("cuda-13.0")
    write(local / "cuda-9.0", "no folder")
    compilers = {f"{local}/cuda-{version}/bin/nvcc": NVCC.format(version) for version in ("12.8", "13.0")}
    owner = {f"dpkg-query --search {local}/cuda-13.0": f"cuda: {local}/cuda-13.0", "dpkg-query": ""}
    monkeypatch.setattr(module, "run", commands := Commands({**compilers, **owner}))
    given: dict[str, Any] = {"node": "node1", "versions": ["12.8", "13.0"], "fix": "Run it"}
    by_hand = "/usr/local/cuda-12.8, which no package brought (a runfile, as a rule), is taken as it is"
    common = {"changed": False, "warnings": [f"node1: {by_hand}."], "notes": [by_hand]}
    headers = dict.fromkeys(("before_header", "after_header"), "/usr/local/cuda")
    packages, refused = ["cuda-toolkit-13-0"], module.domain.REFUSED
    assert answer(module, **given) == {
        **common,
        "packages": packages,
        "default": "",
        "refused": refused,
        "needed": False,
        "diff": {"before": "", "after": "", **headers},
    }
    assert commands.ran == [
        *(f"{local}/cuda-12.8/bin/nvcc --version", f"dpkg-query --search {local}/cuda-12.8"),
        *(f"{local}/cuda-13.0/bin/nvcc --version", f"dpkg-query --search {local}/cuda-13.0"),
    ]
    verified = answer(module, **given, mode="verify")
    assert (verified["packages"], verified["refused"], verified["changed"]) == ([], {}, False)
    (local / "cuda").unlink()
    (local / "cuda").symlink_to("/etc/alternatives/cuda")
    wanted = {"default": "/usr/local/cuda-13.0", "needed": True, "packages": packages, "refused": refused}
    there = {"before": "\n", "after": "/usr/local/cuda-13.0\n", **headers}
    for check in (True, False):
        answered = answer(module, **given, default="13.0", check=check)
        assert answered == {**common, **wanted, "diff": there, "changed": check}
    assert answer(module, **given, default="13.0", mode="verify")["msg"] == (
        "node1: /usr/local/cuda leads to nothing and not to /usr/local/cuda-13.0. Run it."
    )


@pytest.mark.parametrize(
    ("made", "what"),
    [("folder", "a folder"), ("link", "a link to cuda-13.0")],
)
def test_a_default_that_somebody_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: str, what: str) -> None:
    module = among_files_of(tmp_path, load("cuda_toolkits"), monkeypatch)
    monkeypatch.setattr(module, "run", Commands({"": ""}))
    (tmp_path / "usr/local").mkdir(parents=True)
    where = tmp_path / "usr/local/cuda"
    where.mkdir() if made == "folder" else where.symlink_to("cuda-13.0")
    said = answer(module, node="node1", versions=["13.0"], default="13.0")["msg"]
    assert said.startswith(f"node1: /usr/local/cuda is {what} that somebody made by hand")


def test_the_manifest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = load("gpu_stack_manifest")
    stack = {"running": "6.8", "loaded": "", "kernels": {}, "packages": {}}
    seen: dict[str, Any] = {
        "system": {"id": "ubuntu", "version": "24.04"},
        "stack": stack,
        "gpus": {"devices": [{"id": "10de:2330"}]},
    }
    monkeypatch.setattr(module, "facts", lambda looks: seen if list(looks) == ["system", "pci", "stack"] else {})
    for look in (module.system, module.bus, module.stack):
        monkeypatch.setattr(look, "look", dict)
    policy = "libnccl2:\n *** 2.29.7 500\n        500 https://user@mirror.example.org/ubuntu noble/main\n"
    monkeypatch.setattr(module, "run", commands := Commands({"apt-cache": policy}))
    path = tmp_path / "state/gpu_stack.json"
    given: dict[str, Any] = {"node": "node1", "path": str(path)}
    headers = dict.fromkeys(("before_header", "after_header"), str(path))
    checked = answer(module, **given, check=True)
    first = json.dumps(module.domain.manifest("node1", seen, {}), indent=2) + "\n"
    assert checked == {"changed": True, "diff": {**headers, "before": "", "after": first}}
    assert not path.parent.exists()
    assert answer(module, **given) == checked
    assert (path.read_text(), path.stat().st_mode & 0o777) == (first, 0o644)
    assert answer(module, **given) == {"changed": False}
    assert commands.ran == []  # no packages are asked for
    stack["packages"] = {"libnccl2": {"version": "2.29.7", "state": "installed"}}
    second = json.loads(first)
    second["packages"] = {"libnccl2": {"version": "2.29.7", "from": "https://mirror.example.org/ubuntu noble/main"}}
    after = json.dumps(second, indent=2) + "\n"
    assert answer(module, **given) == {"changed": True, "diff": {**headers, "before": first, "after": after}}
    assert path.read_text() == after
    assert commands.ran == ["apt-cache policy libnccl2"]
    for damaged in ("[]", "{"):
        path.write_text(damaged)
        assert answer(module, **given)["diff"]["before"] == ""


ADDRESSES = [
    {"ifname": "lo", "flags": ["UP", "LOWER_UP"], "addr_info": [{"local": "127.0.0.1"}]},
    {"ifname": "eno1", "flags": ["UP", "LOWER_UP"], "addr_info": [{"local": "10.0.0.1"}]},
    {"ifname": "eno2", "flags": ["UP", "LOWER_UP"], "addr_info": [{"local": "10.1.0.1"}, {"local": "fd00:0::1"}]},
    {"ifname": "eno3", "flags": ["UP"], "addr_info": [{"local": "10.2.0.1"}]},
    {"ifname": "eno4", "flags": ["UP", "LOWER_UP"], "addr_info": []},
    {},
]
BLOCK = (
    "# BEGIN muster: what the interfaces of this node call for, or nccl_conf says\n"
    "NCCL_SOCKET_IFNAME==eno2\n"
    "# END muster\n"
)
LACKS = "/etc/nccl.conf lacks NCCL_SOCKET_IFNAME==eno2"


@pytest.mark.parametrize("address", ["10.1.0.1", "fd00::1"])
def test_nccl_conf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str) -> None:
    module = among_files_of(tmp_path, load("nccl_conf"), monkeypatch)
    monkeypatch.setattr(module, "run", commands := Commands({"ip -json addr": json.dumps(ADDRESSES)}))
    conf = tmp_path / "etc/nccl.conf"
    given: dict[str, Any] = {"node": "node1", "address": address}
    conf.parent.mkdir()
    headers = dict.fromkeys(("before_header", "after_header"), "/etc/nccl.conf")
    answered = {
        "changed": True,
        "reasons": ["eno2 carries the training, and NCCL by itself takes eno1, eno2"],
        "differences": [LACKS],
        "diff": {**headers, "before": "", "after": BLOCK},
    }
    assert answer(module, **given, check=True) == answered
    assert answer(module, **given, mode="verify")["msg"] == (
        f"node1: {LACKS}. To change it, run ansible-playbook site.yml --tags gpu_stack -e nccl_mode=manage."
    )
    assert not conf.exists()
    assert answer(module, **given) == answered
    assert (conf.read_text(), conf.stat().st_mode & 0o777) == (BLOCK, 0o644)
    assert answer(module, **given)["changed"] is False
    assert answer(module, **given, interface="eno1")["diff"]["after"] == BLOCK.replace("eno2", "eno1")
    assert answer(module, **given, conf="off")["differences"] == [
        "our block in /etc/nccl.conf still has NCCL_SOCKET_IFNAME==eno1"
    ]
    assert not conf.exists()
    for nobodys in ("node1.example.org", "10.9.0.1"):
        assert answer(module, node="node1", address=nobodys)["differences"] == []
    (tmp_path / "elsewhere").write_bytes(b"NCCL_NSOCKS_PERTHREAD=\xff\n")
    conf.symlink_to(tmp_path / "elsewhere")
    assert answer(module, **given)["msg"].startswith(
        f"node1: {conf} is a link to {tmp_path}/elsewhere, so another tool writes it. "
    )
    assert (tmp_path / "elsewhere").read_bytes() == b"NCCL_NSOCKS_PERTHREAD=\xff\n"
    conf.unlink()
    (tmp_path / "elsewhere").rename(conf)
    assert answer(module, **given)["changed"] is True
    assert conf.read_bytes() == b"NCCL_NSOCKS_PERTHREAD=\xff\n" + BLOCK.encode()
    commands.answers.clear()
    assert answer(module, **given)["msg"] == "node1: its interfaces cannot be looked at: ip is not there."


def test_all_that_is_wrong_with_a_request_is_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = among_files_of(tmp_path, load("nccl_conf"), monkeypatch)
    monkeypatch.setattr(module, "run", Commands({"ip": json.dumps(ADDRESSES)}))
    conf = {"NCCL_SOCKET_IFNAME": "eno1"}
    options: dict[str, Any] = {
        "hca": ["mlx5_7"],
        "gid_index": "x",
        "pkey": "y",
        "traffic_class": "z",
        "service_level": "16",
    }
    said = answer(module, node="node1", conf=conf, interface="eno2", **options)["msg"]
    assert said.split("; ") == [
        'node1: nccl_ib_gid_index is \'x\'. Write a number from "0" to "255", or nothing',
        'nccl_ib_tc is \'z\'. Write a number from "0" to "255", or nothing',
        'nccl_ib_sl is \'16\'. Write a number from "0" to "15", or nothing',
        "nccl_ib_pkey is 'y'. Write the key of the partition, such as \"0x8001\"",
        "nccl_ib_hca names the RDMA adapter mlx5_7, and it has none. Correct it on this node",
        f"{module.domain.contradiction(conf, 'eno2')}.",
    ]
    assert answer(module, node="node1", conf=False)["msg"].startswith("node1: nccl_conf is False, as YAML reads off")


def port(folder: Path, device: str, number: int, **told: str) -> None:
    there = folder / f"sys/class/infiniband/{device}/ports/{number}"
    texts = {"state": "4: ACTIVE\n", "link_layer": "InfiniBand\n", "gids/0": f"fe80:{'0' * 4}:0000:0001:9\n", **told}
    for name, text in texts.items():
        write(there / name, text)


def test_adapters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = among_files_of(tmp_path, load("nccl_conf"), monkeypatch)
    pkeys = {"pkeys/0": "0x7fff\n", "pkeys/1": "0x8001\n", "pkeys/10": "0x8002\n", "pkeys/no": ""}
    port(tmp_path, "mlx5_0", 1, rate="400 Gb/sec (4X NDR)\n", **pkeys)
    port(tmp_path, "mlx5_0", 2, state="1: DOWN\n", rate="")
    port(tmp_path, "mlx5_1", 1, rate="2.5 Gb/sec (1X SDR)\n", link_layer="Ethernet\n")
    (tmp_path / "sys/class/infiniband/mlx5_0/device").symlink_to("../../0000:2a:00.0")
    found = module.look_at_ports()
    of = module.nccl_ib.RdmaPort
    first = {"prefix": "fe80:0000:0000:0001", "layer": "InfiniBand"}
    slot = "0000:2a:00.0"
    assert found == [
        of(device="mlx5_0", port=1, rate=400, pkeys=("0x7fff", "0x8001", "0x8002"), slot=slot, **first),
        of(device="mlx5_0", port=2, active=False, slot=slot, **first),
        of(device="mlx5_1", port=1, rate=2, **{**first, "layer": "Ethernet"}),
    ]


@pytest.mark.parametrize(("device", "halves"), [("0x2e12\n", True), ("0x2330\n", False)])
def test_a_machine_whose_cables_are_two_adapters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str, halves: bool
) -> None:
    module = among_files_of(tmp_path, load("nccl_conf"), monkeypatch)
    monkeypatch.setattr(module, "run", Commands({"ip": "[]"}))
    write(tmp_path / "sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    write(tmp_path / "sys/bus/pci/devices/0000:01:00.0/device", device)
    assert module.look("", "").halves is False  # it has no adapters
    for name in ("rocep1s0f0", "roceP2p1s0f0"):
        port(tmp_path, name, 1, link_layer="Ethernet\n", rate="200 Gb/sec\n")
    assert module.look("", "").halves is halves
    assert answer(module, node="node1", check=True)["changed"] is halves


def source(folder: Path, makefile: str) -> dict[str, Any]:
    """The archive of a source, and options that ask for its build."""
    makefile = makefile.replace("    ", "\t")
    folder.mkdir()
    with tarfile.open(folder / "source.tar", "w") as archive:
        archive.add(write(folder / "made/Makefile", makefile), "nccl-tests-2.19.6/Makefile")
    (folder / "builds").mkdir()
    return {
        "node": "node1",
        "user": USER,
        "version": "2.19.6",
        "sha256": hashlib.sha256((folder / "source.tar").read_bytes()).hexdigest().upper(),
        "toolkits": ["13.0"],
        "packages": {"libnccl2": "2.29.7-1+cuda13.0"},
        "root": str(folder / "builds"),
        "archive": str(folder / "source.tar"),
    }


STARTS = "all:\n    mkdir build\n    cp /bin/true build/all_reduce_perf\n    echo $(NVCC) $(CUDA_HOME) > build/by\n"


@pytest.fixture
def nccl_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module, on a node with a compiler."""
    module = load("nccl_tests")
    real = module.Path
    compiler = write(tmp_path / "bin/nvcc", "")

    def path(first: str, *more: str) -> Any:
        return compiler if (first, *more) == ("/usr/local/cuda-13.0", "bin/nvcc") else real(first, *more)

    monkeypatch.setattr(module, "Path", path)
    return module


def test_nccl_tests_are_built_and_kept(nccl_tests: Any, tmp_path: Path) -> None:
    given = source(tmp_path / "it", STARTS)
    folder = tmp_path / f"it/builds/2.19.6_cuda13.0_nccl2.29.7_{given['sha256'][:8].lower()}"
    headers = dict.fromkeys(("before_header", "after_header"), "nccl-tests")
    diff = {**headers, "before": "", "after": f"{folder}\n"}
    answered = {"changed": True, "needed": True, "folder": f"{folder}/build", "diff": diff}
    half = write(folder.with_name(f"{folder.name}.half") / "rest", "").parent
    assert answer(nccl_tests, **given, check=True) == answered
    assert answer(nccl_tests, **{**given, "archive": ""}) == {**answered, "changed": False}
    assert answer(nccl_tests, **given, mode="verify")["msg"] == (
        f"node1: nccl-tests 2.19.6 do not start in {folder} (it is not there)."
    )
    assert not folder.exists()
    write(folder / "rest", "")
    assert answer(nccl_tests, **given) == answered
    assert (folder / "build/by").read_text() == "/usr/local/cuda-13.0/bin/nvcc /usr/local/cuda-13.0\n"
    assert sorted(path.name for path in folder.iterdir()) == ["Makefile", "build"]
    assert not half.exists()
    assert folder.stat().st_mode & 0o777 == 0o755
    kept = {**answered, "changed": False, "needed": False, "diff": {**diff, "before": f"{folder}\n"}}
    assert answer(nccl_tests, **given) == answer(nccl_tests, **given, mode="verify") == kept


@pytest.mark.parametrize(
    ("makefile", "options", "why"),
    [
        ("all:\n    @echo one; false\n", {}, "make ended with 2 over nccl-tests; all of it is in {log}: one | "),
        (
            "all:\n    @seq 20; exit 1\n",
            {},
            "make ended with 2 over nccl-tests; all of it is in {log}: 14 | 15 | 16 | 17 | 18 | 19 | 20 | make",
        ),
        (
            "all:\n    mkdir build\n    cp /bin/false build/all_reduce_perf\n",
            {},
            "all_reduce_perf was built, and does not start (1). See: ldd {half}/build/*_perf.",
        ),
        (
            "all:\n    mkdir build\n    touch build/all_reduce_perf\n",
            {},
            "all_reduce_perf was built, and does not start (126). See: ldd {half}/build/*_perf.",
        ),
        ("all:\n", {}, "all_reduce_perf was built, and does not start (it is not there). See: ldd {half}/"),
        (
            STARTS,
            {"user": "nobody-here"},
            "there is no user nobody-here. Run the baseline first: ansible-playbook site.yml --tags baseline.",
        ),
        (
            STARTS,
            {"toolkits": ["13.1"]},
            "/usr/local/cuda-13.1/bin/nvcc is not there, which compiles nccl-tests. Set cuda_toolkit_mode to manage.",
        ),
        (STARTS, {"packages": {}}, "the stack gives it no NCCL of the system, which nccl-tests need: set nccl_install"),
    ],
)
def test_why_nccl_tests_are_not_built(
    nccl_tests: Any, tmp_path: Path, makefile: str, options: dict[str, Any], why: str
) -> None:
    given = {**source(tmp_path / "it", makefile), **options}
    half = f"{given['root']}/2.19.6_cuda13.0_nccl2.29.7_{given['sha256'][:8].lower()}.half"
    assert answer(nccl_tests, **given)["msg"].startswith(
        f"node1: {why.format(half=half, log=half.replace('.half', '.log'))}"
    )


def test_another_source_is_not_unpacked(nccl_tests: Any, tmp_path: Path) -> None:
    given = source(tmp_path / "it", STARTS)
    found = given["sha256"].lower()
    assert answer(nccl_tests, **{**given, "sha256": "0" * 64})["msg"] == (
        f"node1: the source of nccl-tests has the SHA-256 {found}, and nccl_tests_sha256 is {'0' * 64}: it is another "
        "file. Nothing was unpacked."
    )
    assert not (tmp_path / "it/source.tar").exists()
    assert not list((tmp_path / "it/builds").iterdir())
