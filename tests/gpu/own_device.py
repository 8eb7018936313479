"""Show the GPU rates measured by the acceptance test together with the limits, and the samples of a short soak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.acceptance.reports import Reports


def show(reports: Reports, measured: dict[str, Any], say: Callable[[str], None]) -> bool:
    """Return whether every GPU has rates and nvidia-smi readings from the time of the computation."""
    whole = True
    for row in measured["device"]["ranks"]:
        rates = ", ".join(
            f"{name} {row[name]} (floor {row.get(floor)})"
            for name, floor in (
                ("gemm_tflops", "gemm_floor"),
                ("memory_gbps", "memory_floor"),
                ("h2d_gbps", "h2d_floor"),
            )
        )
        say(f"  GPU of rank {row['rank']}, {row['model']}: {rates}, d2h_gbps {row['d2h_gbps']}; {row['basis']}")
        whole = whole and None not in (row["gemm_tflops"], row["memory_gbps"], row["h2d_gbps"], row["d2h_gbps"])
    for rank, said in reports.facts("device").items():
        silent = [name for name, value in (said.get("smi") or {"nvidia-smi": None}).items() if value is None]
        say(f"  rank {rank}: {said.get('gemm_checked')} products, peers {said.get('p2p')}, DCGM {said.get('dcgm')}")
        if silent:
            say(f"  rank {rank}: nvidia-smi did not report {', '.join(silent)}")
    for rank, said in reports.facts("stragglers").items():
        say(f"  rank {rank}: {said.get('compute_ms')} ms a step without data, {said.get('data_ms')} ms for its data")
    return whole


def show_soak(measured: dict[str, Any], say: Callable[[str], None]) -> bool:
    soak = measured["soak"]
    say(f"soak: {soak['rounds']} rounds, ended by {soak['ended']}")
    for point in soak["series"][-3:]:
        say(f"  {point}")
    told = [point for point in soak["series"] if point["temperature_c"] is not None and point["throttled"] is not None]
    if not told:
        say("  nvidia-smi reported neither temperatures nor clock reasons during the soak")
    return soak["ended"] == "time" and bool(told)
