"""Every file in cases/ describes one node: nccl_conf, the node's state, the file before and after, and the messages.

before: null if there is no file. after: empty if the file is removed, omitted if it is unchanged. BEGIN, END: markers
of Muster's block. Interfaces are listed by name; `down` lists those that are down. Ports use the fields of PORT.
options: nccl_ib_* options, named as in nccl_ib.Options. refused: problems with the options on this node.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.gpu_stack import nccl_conf, nccl_ib
from muster.gpu_stack.nccl_conf import NcclInterface, NcclNodeFacts
from muster.gpu_stack.nccl_ib import Options, RdmaPort

PORT = ("device", "port", "layer", "rate", "prefix", "slot", "pkeys")


def port_of(given: list[Any], *, active: bool) -> RdmaPort:
    shown: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in zip(PORT, given, strict=False)
    }
    return RdmaPort(active=active, **shown)


def options_of(case: dict[str, Any]) -> Options:
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in case.get("options", {}).items()
    }
    return Options(**given)


def seen_of(case: dict[str, Any]) -> NcclNodeFacts:
    return NcclNodeFacts(
        interfaces=(
            *(NcclInterface(name) for name in case.get("up", ["lo", "eth0"])),
            *(NcclInterface(name, up=False) for name in case.get("down", [])),
        ),
        training=case.get("training", "eth0"),
        ports=(
            *(port_of(each, active=True) for each in case.get("ports", [])),
            *(port_of(each, active=False) for each in case.get("inactive_ports", [])),
        ),
        halves=case.get("halves", False),
    )


def filled(text: str) -> str:
    return text.replace("BEGIN\n", f"{nccl_conf.BEGIN}\n").replace("END\n", f"{nccl_conf.END}\n")


@cases(__file__, "nccl_conf")
def test_nccl_conf_file_matches_the_case(case: dict[str, Any]) -> None:
    seen = seen_of(case)
    options = options_of(case)
    assert list(nccl_ib.problems(options, seen.ports)) == case.get("refused", [])
    want = nccl_conf.wanted(case.get("request", "auto"), seen, options)
    before = None if case["before"] is None else filled(case["before"])
    result = nccl_conf.rewrite(before, want, seen.training)
    assert result.text == (filled(case["after"]) if "after" in case else before)
    assert list(result.differences) == case.get("differences", [])
    assert list(result.notes) == case.get("notes", [])
    assert list(want.undecided) == case.get("undecided", [])
    assert list(want.reasons) == case.get("reasons", [])
    again = nccl_conf.rewrite(result.text or None, want, seen.training)
    assert again.text == result.text
    assert again.differences == ()


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ("auto", []),
        ("off", []),
        (False, ["nccl_conf is False, because YAML reads off without quotes as False"]),
        ("on", ["nccl_conf is 'on'"]),
        ({"NCCL_IB_TC": 106, "NCCL_DEBUG": "WARN"}, []),
        ({"nccl_ib_tc": 1}, ["nccl_conf has 'nccl_ib_tc', which is not a variable name"]),
        ({"export NCCL_IB_TC": 1}, ["nccl_conf has 'export NCCL_IB_TC', which is not a variable name"]),
        ({"NCCL_IB_TC": [1]}, ["the value of NCCL_IB_TC in nccl_conf is not a single value"]),
        ({"NCCL_IB_TC": "1\nNCCL_ALGO=Ring"}, ["the value of NCCL_IB_TC in nccl_conf is not a single value"]),
    ],
)
def test_invalid_nccl_conf_requests_are_reported(conf: object, said: list[str]) -> None:
    assert [what for what, _ in nccl_conf.request_problems(conf)] == said


@pytest.mark.parametrize(
    "name", ["NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_ALGO", "NCCL_MIN_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_NTHREADS"]
)
def test_variables_for_debugging_are_rejected(name: str) -> None:
    assert "is only for debugging" in next(nccl_conf.request_problems({name: 1}))[0]


@pytest.mark.parametrize(
    ("name", "value", "debugging"),
    [
        ("NCCL_DEBUG", "WARN", False),
        ("NCCL_DEBUG", "VERSION", False),
        ("NCCL_DEBUG", "info", True),
        ("NCCL_DEBUG", "TRACE", True),
        ("NCCL_DEBUG_FILE", "/var/log/nccl", False),
        ("NCCL_CUMEM_ENABLE", "1", False),
        ("NCCL_CUMEM_ENABLE", "0", True),
    ],
)
def test_debugging_variables_are_recognized_by_name_and_value(name: str, value: str, *, debugging: bool) -> None:
    assert nccl_conf.is_debugging(name, value) is debugging


@pytest.mark.parametrize(
    ("conf", "training", "contradicts"),
    [
        ("auto", "eth1", False),
        ({"NCCL_IB_TC": 106}, "eth1", False),
        ({"NCCL_SOCKET_IFNAME": "=eth1"}, "eth1", False),
        ({"NCCL_SOCKET_IFNAME": "=eth1"}, "", False),
        ({"NCCL_SOCKET_IFNAME": "eth1"}, "eth1", True),
        ({"NCCL_SOCKET_IFNAME": "^docker"}, "eth1", True),
    ],
)
def test_contradiction_between_file_and_launch_is_detected(conf: object, training: str, *, contradicts: bool) -> None:
    assert bool(nccl_conf.contradiction(conf, training)) is contradicts


@pytest.mark.parametrize(
    ("options", "conf", "said"),
    [
        ({"hca": ("mlx5_0", "mlx5_1:1", "rocep1s0f0")}, "auto", []),
        ({"gid_index": "3", "traffic_class": "106", "service_level": "15", "pkey": "0x8001"}, {}, []),
        ({"hca": ("=mlx5_0",)}, "auto", ["nccl_ib_hca has '=mlx5_0', which is not the name of an RDMA adapter"]),
        ({"hca": ("a,b",)}, "auto", ["nccl_ib_hca has 'a,b', which is not the name of an RDMA adapter"]),
        ({"hca": ("mlx5_0", "mlx5_0")}, "auto", ["nccl_ib_hca lists 2 adapters"]),
        ({"gid_index": "256"}, "auto", ["nccl_ib_gid_index is '256'"]),
        ({"traffic_class": "-1"}, "auto", ["nccl_ib_tc is '-1'"]),
        ({"service_level": "16"}, "auto", ["nccl_ib_sl is '16'"]),
        ({"pkey": "1"}, "auto", ["nccl_ib_pkey is '1'"]),
        ({"pkey": "0x8000"}, "auto", ["nccl_ib_pkey is '0x8000'"]),
        ({"traffic_class": "106"}, "off", ['nccl_conf is "off", but nccl_ib_tc is set']),
        (
            {"traffic_class": "106"},
            {"NCCL_IB_TC": 96},
            ["NCCL_IB_TC is set in nccl_conf and also by an nccl_ib_* option"],
        ),
    ],
)
def test_invalid_nccl_ib_options_are_reported(options: dict[str, Any], conf: object, said: list[str]) -> None:
    assert [what for what, _ in nccl_ib.request_problems(Options(**options), conf)] == said
