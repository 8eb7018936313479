"""Decisions of the probes: which facts they return, and how they handle hostile machines."""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases import load_cases
from muster.health.kernel_log import SIGNS
from muster.health.xids import SXID_LINE, XID_LINE
from muster_node.looks import code, jobs, kernel_log, ras, stack
from muster_node.tools import kernel_lines, process
from muster_node.tools.pack import pack, sent
from muster_node.tools.program import BOOTSTRAP, answer_in, framed
from muster_node.tools.run import CommandResult
from muster_node.units import collective_ranks, torch_facts
from muster_node.units import inside as look_inside

if TYPE_CHECKING:
    import pytest

CASES = load_cases(Path(__file__).parents[2] / "health/cases/judge")
ME = pwd.getpwuid(os.getuid()).pw_name
KERNEL_LINES = [
    line["text"] for case in CASES.values() for line in case.get("looks", {}).get("kernel_log", {}).get("lines", [])
]


def test_relevant_kernel_lines_are_returned() -> None:
    patterns = {"xid": XID_LINE, "sxid": SXID_LINE}
    meant = [(kind, text) for kind, pattern in patterns.items() for text in KERNEL_LINES if pattern.search(text)]
    assert [(kind, text) for kind, text in meant if kernel_lines.kind_of(text)[0] != kind] == []
    # Every sign occurs in a case.
    assert {sign.kind for sign in SIGNS} <= {kernel_lines.kind_of(text)[0] for text in KERNEL_LINES}


def test_unrelated_kernel_lines_do_not_displace_faults() -> None:
    fatal = "NVRM: Xid (PCI:0000:1b:00): 48, pid=1896, name=python3, DBE (double bit error) ECC Error"
    noise = [f"NVRM: Xid (PCI:0000:43:00): 31, pid={pid}, name=python3, Ch 00000008" for pid in range(450)]
    noise += [f"pcieport 0000:15:01.0: AER: Corrected error received: 0000:18:00.0 {one}" for one in range(450)]
    kept, cut = kernel_log.sort((float(when), text) for when, text in enumerate([fatal, *noise]))
    assert kept[0] == (0.0, fatal)
    assert [text for _, text in kept if "Corrected" in text] == noise[-20:]
    assert len(kept) == 1 + 2 + 20
    assert cut == {}, "only similar lines are omitted"


def test_fatal_link_event_is_kept_among_many_nonfatal_events() -> None:
    fatal = "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000)"
    others = [f"NVRM: Xid (PCI:0018:01:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link {link:02}" for link in range(18)]
    kept, _ = kernel_log.sort(enumerate([fatal, *others]))
    assert [text for _, text in kept] == [fatal, *others[-2:]]


def test_dropped_kernel_lines_are_counted() -> None:
    lines = [(float(one), f"NVRM: Xid (PCI:0000:{one // 256:02x}:{one % 256:02x}): 31, MMU") for one in range(500)]
    kept, cut = kernel_log.sort(lines)
    assert len(kept) == 400
    assert kept == lines[-400:], "the newest lines are kept"
    assert cut == {"xid": 100}


def test_journal_and_ring_buffer_yield_the_same_lines() -> None:
    journal = (
        "[  110.500000] node1 sshd[1]: kernel: no\n"
        "[  100.100000] node1 kernel: NVRM: Xid (PCI:0000:1b:00): 79\n"
        "-- Boot --\n"
        "[    0.000000] node1 kernel: Linux version 6.8.0\n"
    )
    ring = "<6>[  100.100000] eth0: Link is Down\nnoise\n<3>[ 110.5] NVRM: Xid\n"
    assert kernel_lines.from_journal(journal) == [
        (0.0, "Linux version 6.8.0"),
        (100.1, "NVRM: Xid (PCI:0000:1b:00): 79"),
    ]
    assert kernel_lines.from_ring(ring) == [(100.1, "eth0: Link is Down"), (110.5, "NVRM: Xid")]


def test_message_of_the_driver_with_two_lines_is_read_as_one() -> None:
    first = "NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c58)"
    second = "NVRM: installed in this system requires use of the NVIDIA open kernel modules."
    journal = f"[    5.559842] node1 kernel: {first}\n               {second}\n[    5.1] node1 kernel: before\n"
    ring = f"<4>[    5.1] before\n<4>[    5.559842] {first}\n{second}\n"
    both = [(5.1, "before"), (5.559842, kernel_log.line_of(f"{first} {second}", 0)["text"])]
    assert [(when, " ".join(text.split())) for when, text in kernel_lines.from_journal(journal)] == both
    assert kernel_lines.from_ring(ring) == both
    assert kernel_lines.kind_of(both[1][1]) == ("unsupported", ("0000:02:00.0", "requires use of the NVIDIA open"))


def test_time_of_the_oldest_kernel_line_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, str] = {"journalctl": "[ 9000.000000] node1 kernel: NVRM: Xid (PCI:0000:1b:00): 79\n"}
    monkeypatch.setattr(kernel_log, "run", lambda *argv, **_: CommandResult(said[argv[0]]))
    monkeypatch.setattr("muster_node.looks.kernel_log.time.monotonic", lambda: 10000.0)
    seen = kernel_log.look()
    assert (seen["reach"], seen["lines"]) == (1000, [kernel_log.line_of("NVRM: Xid (PCI:0000:1b:00): 79", 1000)])
    said["journalctl"] += "[    0.000000] node1 kernel: Linux version 6.8.0\n"
    assert kernel_log.look()["reach"] is None


def test_identical_files_have_identical_code_digests(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "lib").mkdir(parents=True)
        (tmp_path / name / "train.py").write_text("print(1)")
        (tmp_path / name / "lib/model.py").write_text("")
    (tmp_path / "two/.git").mkdir()
    (tmp_path / "two/.git/HEAD").write_text("ref: refs/heads/other")
    (tmp_path / "two/lib/__pycache__").mkdir()
    (tmp_path / "two/lib/__pycache__/model.pyc").write_text("x")
    paths = [str(tmp_path / name) for name in ("one", "two")]
    seen = code.look([*paths, str(tmp_path / "three")], ME)
    assert seen[paths[0]] == seen[paths[1]]
    assert seen[paths[0]]["files"] == 2
    assert seen[str(tmp_path / "three")] == {"digest": "", "files": 0, "why": "not found"}
    (tmp_path / "two/lib/model.py").rename(tmp_path / "two/lib/models.py")
    assert code.look(paths, ME)[paths[1]]["digest"] != seen[paths[0]]["digest"]


def test_oversized_code_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MOST_BYTES", 10)
    (tmp_path / "data.bin").write_bytes(b"0" * 11)
    (tmp_path / "other.bin").write_bytes(b"0")
    seen = code.look([str(tmp_path)], ME)[str(tmp_path)]
    assert seen["digest"] == ""
    assert "more than" in seen["why"]


def test_code_is_read_with_the_rights_of_the_training_user() -> None:
    """A link to a file of root gives no digest of that file."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        folder = Path(place, "code")
        folder.mkdir()
        (folder / "train.py").write_text("print(1)")
        Path(place, "secret").write_text("of root")
        Path(place, "secret").chmod(0o600)
        Path(place).chmod(0o755)
        readable = code.look([str(folder)], "nobody")[str(folder)]
        (folder / "link.py").symlink_to("../secret")
        seen = code.look([str(folder)], "nobody")[str(folder)]
        assert (readable["files"], readable["why"]) == (1, "")
        if os.geteuid() == 0:
            assert seen == {"digest": "", "files": 0, "why": f"{folder}/link.py: Permission denied"}
        absent = code.look([str(folder)], "no-such-user")[str(folder)]
        assert absent == {"digest": "", "files": 0, "why": "the user no-such-user does not exist"}


def inside(torchrun: Path, seconds: float = 5.0) -> dict[str, Any]:
    request = {
        "torchrun": str(torchrun),
        "ask": "print('noise {')\nprint('{not json')",
        "depth": "build",
        "seconds": seconds,
    }
    argv = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, "look"]
    done = subprocess.run(argv, input=sent(look_inside.__name__, request), capture_output=True, check=True, timeout=60)
    return answer_in(done.stdout.decode()) or {}


def environment_with(folder: Path, python: str) -> Path:
    for name, text in (("python", python), ("torchrun", "#!/bin/sh\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder / "torchrun"


def test_unrelated_output_of_an_environment_is_not_parsed_as_an_answer(tmp_path: Path) -> None:
    torchrun = environment_with(tmp_path, f'#!/bin/sh\necho a warning >&2\necho banner\nexec {sys.executable} "$@"\n')
    seen = inside(torchrun)["torch"]
    assert seen["there"]
    assert seen["usable"]
    assert "said" not in seen
    assert seen["why"].endswith("ended with exit code 0: a warning")


def test_answer_within_unrelated_output_is_parsed(tmp_path: Path) -> None:
    answer = '{\\"torch\\": null}'
    torchrun = environment_with(tmp_path, f'#!/bin/sh\necho banner\necho "{answer}"\necho "{{half of a line"\n')
    assert inside(torchrun)["torch"]["said"] == {"torch": None}


def test_hanging_environment_is_reported(tmp_path: Path) -> None:
    torchrun = environment_with(tmp_path, "#!/bin/sh\nexec sleep 60\n")
    seen = inside(torchrun, seconds=0.5)["torch"]
    assert seen["hangs"]
    assert "said" not in seen


def test_missing_environment_is_reported(tmp_path: Path) -> None:
    seen = inside(tmp_path / "bin/torchrun")
    assert seen["torch"] == {"there": False, "usable": False, "python": ""}
    assert seen["limits"]["nofile"][0] > 0
    assert seen["tmp"]["path"]


def run_ranks(body: str, seconds: float = 20.0) -> dict[str, Any]:
    """Run three ranks that execute `body`, in which `n` is the number of the rank."""
    given = {"backend": "gloo", "nproc": 3, "interface": "", "seconds": seconds}
    whole = pack(collective_ranks.__name__)
    own = repr("def rank(given: dict[str, Any]) -> dict[str, Any]:\n")
    stub = repr(f"def rank(given):\n    n = given['number']\n    {body}\n\n\ndef unused(given):\n")
    assert whole.count(own) == 1
    argv = [sys.executable, "-I", "-c", BOOTSTRAP, "start"]
    text = framed(whole.replace(own, stub)) + json.dumps(given).encode()
    done = subprocess.run(argv, input=text, capture_output=True, check=True, timeout=60)
    return answer_in(done.stdout.decode()) or {}


RESULT = "print('banner'); return {'rank': n, 'right': n != 2, 'speeds': [n]}"


def test_rank_with_wrong_sum_is_reported() -> None:
    result = run_ranks(RESULT)
    assert result["why"] == ""
    assert result["wrong"] == [2]
    assert result["speeds"] == [0]


def test_first_failed_rank_is_reported_and_others_are_stopped() -> None:
    result = run_ranks("if n == 1: raise RuntimeError('no')\n    time.sleep(60)")
    assert result["why"] == "rank 1 ended with exit code 1: RuntimeError: no"
    assert result["seconds"] < 30


def test_hanging_rank_is_reported() -> None:
    done = run_ranks(f"if n == 1: time.sleep(60)\n    {RESULT}", seconds=2.0)
    assert done["why"] == "rank 1 did not finish within 2 s"


def test_port_holders_are_read_from_ss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "who", lambda pid: {"pid": pid})
    text = (
        'tcp LISTEN 0 128 0.0.0.0:29500 0.0.0.0:* users:(("a",pid=7,fd=3),("a",pid=6,fd=3))\n'
        'tcp LISTEN 0 128 [::]:129500 [::]:* users:(("b",pid=8,fd=3))\n'
        'udp UNCONN 0 0 0.0.0.0:29500 0.0.0.0:* users:(("c",pid=9,fd=3))\n'
    )
    assert jobs.holders(text, 29500) == [{"pid": 6}, {"pid": 7}]
    assert jobs.holders("", 29500) == []


def test_blocking_process_does_not_block_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SECONDS", 0.5)
    monkeypatch.setattr(process, "environment", lambda _pid: time.sleep(30))
    began = time.monotonic()
    seen = jobs.look({"ss": ""}, 29500)
    assert time.monotonic() - began < 10
    why = "the processes could not be read: no result within the time limit"
    assert seen == {"processes": [], "saw_all": False, "port_holders": [], "why": why}


def ras_server(answer: bytes, silent: bool = False) -> tuple[socket.socket, threading.Thread]:
    """Start a server that accepts one query and then answers or stays silent."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        line, _ = listener.accept()
        with line:
            line.recv(100)
            if silent:
                line.recv(100)
            line.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return listener, thread


def test_nccl_ras_is_queried_only_if_its_port_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ras.look({"ss": "tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:*"}) == {"asked": False, "why": "", "text": ""}
    listener, thread = ras_server(b"Job summary\n===========\n")
    port = listener.getsockname()[1]
    monkeypatch.setattr(ras, "HOST", "127.0.0.1")
    monkeypatch.setattr(ras, "PORT", port)
    seen = ras.look({"ss": f"tcp LISTEN 0 128 127.0.0.1:{port} 0.0.0.0:*"})
    thread.join(5)
    listener.close()
    assert seen == {"asked": True, "why": "", "text": "Job summary\n===========\n"}


def test_silent_ras_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    listener, _ = ras_server(b"", silent=True)
    port = listener.getsockname()[1]
    monkeypatch.setattr(ras, "HOST", "127.0.0.1")
    monkeypatch.setattr(ras, "PORT", port)
    monkeypatch.setattr(ras, "SECONDS", 0.3)
    seen = ras.look({"ss": f"tcp LISTEN 0 128 127.0.0.1:{port} 0.0.0.0:*"})
    listener.close()
    assert seen["asked"]
    assert seen["why"]


TORCH = """
import mmap, types
handle = open({library!r}, "rb")
mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
__version__ = "2.13.0+cu130"
version = types.SimpleNamespace(cuda="13.0")
cuda = types.SimpleNamespace(
    nccl=types.SimpleNamespace(version=lambda: (2, 27, 3)), is_available=lambda: True, device_count=lambda: 2,
    get_arch_list=lambda: ["sm_90"], get_device_capability=lambda number: (9, 0),
)
"""
DISTRIBUTED = "is_available = is_gloo_available = is_nccl_available = lambda: True\nis_mpi_available = lambda: False\n"


def test_loaded_nccl_is_reported(tmp_path: Path) -> None:
    """A stub of torch maps a libnccl other than the one in its wheel."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    site = next((tmp_path / "env/lib").glob("python*/site-packages"))
    wheel, other = site / "nvidia/nccl/lib/libnccl.so.2", tmp_path / "libnccl.so.2.27.3"
    for library in (wheel, other):
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_text("a library")
    (site / "nvidia_nccl_cu13-2.29.7.dist-info").mkdir()
    (site / "torch").mkdir()
    (site / "torch/version.py").write_text("__version__ = '2.13.0+cu130'\ncuda: str = '13.0'\n")
    (site / "torch/__init__.py").write_text(TORCH.format(library=str(other)))
    (site / "torch/distributed.py").write_text(DISTRIBUTED)

    def ask(depth: str) -> dict[str, Any]:
        done = subprocess.run(
            [tmp_path / "env/bin/python", "-I", "-", depth],
            input=pack(torch_facts.__name__),
            capture_output=True,
            text=True,
            check=True,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    files = ask("build")
    assert files["torch"] == {
        "version": "2.13.0+cu130",
        "cuda": "13.0",
        "nccl": {"version": "2.29.7", "file": str(wheel)},
    }
    assert files["loaded"] is None
    loaded = ask("load")["loaded"]
    assert loaded["nccl"] == {"version": "2.27.3", "file": str(other)}
    assert (loaded["device_count"], loaded["capabilities"], loaded["code_for"]) == (2, ["9.0", "9.0"], ["sm_90"])
    (site / "torch/__init__.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')")
    broken = ask("load")
    assert broken["error"] == "OSError: libcudart.so.13: cannot open shared object file"
    assert broken["torch"]["nccl"]["version"] == "2.29.7"


def test_driver_check_detects_user_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    own, system = process.LaunchUnit("20260101-120000-abcd", 0), process.LaunchUnit("20260101-130000-abcd")
    at = {11: own, 12: own, 13: system}
    monkeypatch.setattr(process, "ids", lambda: [*at, 14])
    monkeypatch.setattr(process, "launch_at", at.get)
    monkeypatch.setattr(
        stack, "run", lambda *_argv, **_how: CommandResult("muster-launch-20260101-130000-abcd.service loaded active")
    )
    units = stack.look()
    assert units["own_launches"] == ["muster-launch-20260101-120000-abcd.service of root"]
    assert "muster-launch-20260101-130000-abcd" in units["launches"]
