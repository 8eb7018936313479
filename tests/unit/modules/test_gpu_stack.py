"""Modules of the GPU stack: what they detect on a node, and what they write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from modules_here import Commands, among_files_of, answer, load, write

if TYPE_CHECKING:
    from pathlib import Path

NVCC = "Cuda compilation tools, release {}, V1"


def test_toolkits_are_inspected_without_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    by_hand = "/usr/local/cuda-12.8 was installed without a package (usually from a runfile) and is used unchanged"
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
        "node1: /usr/local/cuda points to nothing instead of /usr/local/cuda-13.0. Run it."
    )


def test_manifest_is_written_only_on_change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    assert commands.ran == []  # no packages are queried
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
    "# BEGIN muster: settings that this node's interfaces require or that nccl_conf requests\n"
    "NCCL_SOCKET_IFNAME==eno2\n# END muster\n"
)
LACKS = "missing in /etc/nccl.conf: NCCL_SOCKET_IFNAME==eno2"


@pytest.mark.parametrize("address", ["10.1.0.1", "fd00::1"])
def test_nccl_conf_is_written_and_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str) -> None:
    module = among_files_of(tmp_path, load("nccl_conf"), monkeypatch)
    monkeypatch.setattr(module, "run", commands := Commands({"ip -json addr": json.dumps(ADDRESSES)}))
    conf = tmp_path / "etc/nccl.conf"
    given: dict[str, Any] = {"node": "node1", "address": address}
    conf.parent.mkdir()
    headers = dict.fromkeys(("before_header", "after_header"), "/etc/nccl.conf")
    answered = {
        "changed": True,
        "reasons": ["eno2 is the interface for training, but NCCL would use eno1, eno2"],
        "differences": [LACKS],
        "diff": {**headers, "before": "", "after": BLOCK},
    }
    assert answer(module, **given, check=True) == answered
    assert answer(module, **given, mode="verify")["msg"] == (
        f"node1: {LACKS}. To apply the changes, run ansible-playbook site.yml --tags gpu_stack -e nccl_mode=manage."
    )
    assert not conf.exists()
    assert answer(module, **given) == answered
    assert (conf.read_text(), conf.stat().st_mode & 0o777) == (BLOCK, 0o644)
    assert answer(module, **given)["changed"] is False
    assert answer(module, **given, interface="eno1")["diff"]["after"] == BLOCK.replace("eno2", "eno1")
    assert answer(module, **given, conf="off")["differences"] == [
        "obsolete in Muster's block in /etc/nccl.conf: NCCL_SOCKET_IFNAME==eno1"
    ]
    assert not conf.exists()
    for nobodys in ("node1.example.org", "10.9.0.1"):
        assert answer(module, node="node1", address=nobodys)["differences"] == []
    (tmp_path / "elsewhere").write_bytes(b"NCCL_NSOCKS_PERTHREAD=\xff\n")
    conf.symlink_to(tmp_path / "elsewhere")
    assert answer(module, **given)["msg"].startswith(
        f"node1: {conf} is a link to {tmp_path}/elsewhere, so another tool manages it. "
    )
    assert (tmp_path / "elsewhere").read_bytes() == b"NCCL_NSOCKS_PERTHREAD=\xff\n"
    conf.unlink()
    (tmp_path / "elsewhere").rename(conf)
    assert answer(module, **given)["changed"] is True
    assert conf.read_bytes() == b"NCCL_NSOCKS_PERTHREAD=\xff\n" + BLOCK.encode()
    commands.answers.clear()
    assert answer(module, **given)["msg"] == "node1: the network interfaces could not be read: ip is not there."
