"""Every file in cases/nccl_log contains an NCCL log, its source, and the expected result of parsing.

expect: differences to the result of an empty log.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from cases import cases
from payload_parts import part

EMPTY: dict[str, Any] = {
    "nccl": "",
    "net": "",
    "adapters": [],
    "gdr": None,
    "nvls": None,
    "graph": [],
    "reasons": [],
    "channels": [],
}


nccl_log, sockets = part("nccl_log"), part("sockets")


@cases(__file__, "nccl_log")
def test_nccl_log_is_parsed(case: dict[str, Any]) -> None:
    assert nccl_log.parse(case["log"]) == {**EMPTY, **case["expect"]}


def test_size_of_the_parsed_report_is_limited() -> None:
    lines = [f"a:1:2 [0] NCCL INFO Channel 00/0 : {n}[0] -> {n + 1}[0] via P2P/{'x' * 500}" for n in range(5000)]
    lines += [f"a:1:2 [0] NCCL INFO NET/IB : Unable to open device {n}\x1b" for n in range(5000)]
    found = nccl_log.parse("\n".join(lines))
    assert len(found["channels"]) == nccl_log.MOST_CHANNELS
    assert len(found["reasons"]) == nccl_log.MOST_REASONS
    assert all(len(one["via"]) <= nccl_log.MOST_TEXT for one in found["channels"])
    assert "\x1b" not in "".join(found["reasons"])


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in nccl_log.OWN:
        monkeypatch.delenv(name, raising=False)
    made = nccl_log.Log()
    yield made
    os.close(made.handle)
    for name in nccl_log.OWN:
        os.environ.pop(name, None)


def test_log_file_is_read_up_to_the_mark(log: Any) -> None:
    with Path(os.environ["NCCL_DEBUG_FILE"]).open("w", encoding="utf-8") as file:  # as NCCL does
        file.write("a:1:2 [0] NCCL INFO Using network IB\n")
        file.flush()
        log.mark()
        file.write("a:1:2 [0] NCCL INFO Using network Socket\n")
        file.flush()
        log.mark()
        assert nccl_log.parse(log.text())["net"] == "IB"


def test_nccl_debug_settings_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.delenv("NCCL_DEBUG_FILE", raising=False)
    made = nccl_log.Log()
    assert made.why_not == "NCCL_DEBUG is set to WARN, and is left so"
    assert "NCCL_DEBUG_FILE" not in os.environ
    made.mark()


# Format of Linux on a little-endian machine, without the columns after the socket's number
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0B20CB0A:7275 0C20CB0A:9C4A 01 00000000:00000000 00:00000000 00000000  1001        0 4711
   1: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712
   2: 0B20CB0A:1234 0C20CB0A:5678 01 00000000:00000000 00:00000000 00000000     0        0 4713
"""
MAPPED = "0000000000000000FFFF0000"
TCP6 = f"""\
  sl  local_address remote_address st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: {MAPPED}0B20CB0A:7275 {MAPPED}0C20CB0A:9C4A 01 0:0 00:00000000 00000000  1001        0 4714
"""


def test_only_connections_with_the_given_inodes_are_returned() -> None:
    pair = (("10.203.32.11", 29301), ("10.203.32.12", 40010))
    assert sockets.connections(TCP, {"4711", "4712"}) == [pair]
    assert sockets.connections(TCP6, {"4714"}) == [pair]
    assert sockets.connections("", {"4714"}) == []


def test_own_connections_and_interfaces_are_listed() -> None:
    assert "lo" in sockets.interfaces().values()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert (client.getsockname(), client.getpeername()) in sockets.own_connections()
