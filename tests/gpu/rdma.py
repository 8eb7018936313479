#!/usr/bin/env python3
"""Inspect real RDMA adapters, and test each adapter against itself.

    python3 tests/gpu/rdma.py [OUT]

Run from the repository's root on a machine with an InfiniBand or RoCE adapter. The script changes nothing and needs
only Python. With ibverbs-utils and perftest, the adapters also transfer data. Three parts:

1. Probes of ports, user-space libraries and Ethernet flow control, saved to OUT/rdma.json without the machine's GIDs
   and GUIDs.
2. Findings from the rules about adapters.
3. Tests of every adapter against itself: ibv_rc_pingpong, ib_write_bw, ib_write_lat, as between nodes.

Exit status: 0 if all parts passed, 1 if one failed, 77 without an adapter.
"""

from __future__ import annotations

import getpass
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plugins/module_utils"))

from muster.health import rdma as ports
from muster.health import rdma_addresses, rdma_verbs, roce
from muster.rails import judge, outputs, plan
from muster.verdict.check import collect
from muster.verdict.finding import as_lines
from muster_node.looks import rdma as look_rdma
from muster_node.looks import roce as look_roce
from muster_node.looks import verbs as look_verbs
from muster_node.looks.host import nccl_conf
from muster_node.programs import rails

NO_ADAPTER = 77
# The second half of a GID belongs to the adapter. The first is the subnet's, or with RoCE v2 an address of the site.
OWN_GID = re.compile(r"\b((?:[0-9a-f]{4}:){4})[0-9a-f]{4}(?::[0-9a-f]{4}){3}\b")
PORTS = [29400, 29599, 29500]
REQUEST: dict[str, Any] = {"node": "here", "backend": "nccl", "gpus": 1}


def main() -> int:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "artifacts/gpu")
    looks: dict[str, Any] = {"rdma": look_rdma.look(), "verbs": look_verbs.look(), "roce": look_roce.look()}
    if not looks["rdma"]["devices"]:
        print("no RDMA adapter found; nothing was tested")
        return NO_ADAPTER
    out.mkdir(parents=True, exist_ok=True)
    text = OWN_GID.sub(r"\g<1>0000:0000:0000:0001", json.dumps(looks, indent=1))
    (out / "rdma.json").write_text(text + "\n")
    print(f"1. {len(looks['rdma']['devices'])} adapters, kept in {out / 'rdma.json'}: review before sharing")
    looks |= {"host": {"nccl_conf": nccl_conf(), "environment": ""}, "unit": {"inside": None}}
    looks["later"] = {"rdma": look_rdma.again(looks["rdma"])}
    facts: dict[str, Any] = {
        "rdma": ports.facts_of(looks, REQUEST),
        "rdma_verbs": rdma_verbs.facts_of(looks, REQUEST),
        "roce": roce.facts_of(looks, REQUEST),
        "system": {"container": ""},
    }
    found = collect(one for rules in (ports, rdma_verbs, rdma_addresses, roce) for one in rules.judge(facts, REQUEST))
    print("2. findings of the rules", *(as_lines(found.findings) or ["nothing"]), sep="\n   ")
    print("   skipped", *(f"{entry['id']}: {entry['why']}" for entry in found.skipped), sep="\n   ")
    trials = met(plan.hcas(facts))
    print("3. each adapter against itself", *(json.dumps(one.as_dict()) for one in trials), sep="\n   ")
    return int(any(one.step for one in trials) or judge.result(trials, {})["verdict"]["status"] == "failed")


def met(adapters: list[plan.Hca]) -> list[outputs.RailTrial]:
    """Test each adapter against itself."""
    request = {"user": whoami(), "ports": PORTS, "rails": [plan.commands(each) for each in adapters], "seconds": 40}
    served = [] if not adapters else rails.serve(request)["rails"]
    calls = [
        [
            [*words, "-p", str(end["port"]), "127.0.0.1"]
            for words, end in zip(plan.commands(each), ends, strict=True)
            if not end["why"]
        ]
        for each, ends in zip(adapters, served, strict=True)
    ]
    called = rails.call({"user": whoami(), "rails": calls, "seconds": 15})["rails"]
    missing = {"text": "", "aside": "", "why": "it is not there", "missing": True}
    return [
        outputs.trial(("here", "here"), (each, each), said or [missing], "" if ends[0]["missing"] else ends[0]["why"])
        for each, said, ends in zip(adapters, called, served, strict=True)
    ]


def whoami() -> str:
    """Return the current user, which runs the test."""
    return getpass.getuser()


if __name__ == "__main__":
    sys.exit(main())
