#!/usr/bin/env python3
"""Inspect real GPUs and record their output for tests without GPUs.

    python3 tests/gpu/run.py [OUT]

Run from the repository's root on a machine with an NVIDIA GPU and driver. The script changes nothing and needs only
Python. If torch is installed, ranks compute as well. Eight parts:

1. gpu_info: four outputs of nvidia-smi are saved to OUT/recorded/<branch>-<model>-real/ without identifiers of the
   machine, with provenance. Unit tests read these outputs after you move them to tests/unit/gpu_info/recorded/.
2. Comparison of the gpu_info facts with --query-gpu, value by value; access to each GPU by its bus address, and checks
   that have a reading (own_rules.py).
3. nccl_health with the short collective on all GPUs (own_health.py).
4. Reports by status, launch and health about a process that holds GPU memory (own_holder.py).
5. The acceptance test in full mode under torchrun and NCCL, evaluated as in a launch: GPU rates with their limits, and
   nvidia-smi readings during the computation (own_device.py).
6. Programs with common failures, and the diagnosis of their output (own_mishaps.py).
7. The examples (own_examples.py).
8. A soak of one minute.

Exit status: 0 if all parts passed, 1 if one failed, 77 without a GPU.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import traceback
import types
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.launch.planned import LaunchPlan, PlannedNode

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
MODULE_UTILS = ROOT / "plugins/module_utils"
sys.path.insert(0, str(MODULE_UTILS))
if importlib.util.find_spec("ansible") is None:
    # On a node, the code is part of ansible.module_utils. Without Ansible, create that package for the same files.
    for _name in ("ansible", "ansible.module_utils"):
        sys.modules[_name] = types.ModuleType(_name)
    sys.modules["ansible.module_utils"].__path__ = [str(MODULE_UTILS)]

import own_device
import own_examples
import own_health
import own_holder
import own_mishaps
import own_rules
from muster.acceptance import judge, reports
from muster.gpu_info.facts import facts as gpu_facts
from muster.health import gpu as gpu_rules
from muster.verdict.check import collect
from muster.verdict.finding import Finding, with_fix
from muster.verdict.words import plural
from muster_node.looks import gpu as look_gpu

NO_GPU = 77
# Prefix of the GPU ids of tests/standins/nvml.c.
STANDIN = "GPU-00000000-0000-4000-8000-"
PAYLOAD = ROOT / "roles/ddp_smoke/files/acceptance"
CHOSEN = runpy.run_path(str(PAYLOAD / "payload/stages.py"))["chosen"]
# The DCGM diagnostics of full mode alone may take four minutes.
FULL_SECONDS, SOAK_SECONDS = 900, 60
# The default of ddp_smoke_loss_ratio.
LOSS_RATIO = 0.9
# Fields of --query-gpu and their paths in gpu_info.
SAME = {
    "index": ("index",),
    "name": ("name",),
    "uuid": ("uuid",),
    "vbios_version": ("vbios",),
    "memory.total": ("memory", "total"),
    "power.default_limit": ("power", "default"),
    "power.limit": ("power", "limit"),
    "clocks.max.sm": ("clocks", "sm_max"),
    "clocks.max.memory": ("clocks", "memory_max"),
    "pcie.link.width.max": ("link", "width_max"),
    "pcie.link.gen.max": ("link", "generation_max"),
    "ecc.mode.current": ("ecc", "on"),
    "mig.mode.current": ("mig",),
    "persistence_mode": ("persistence",),
    "compute_mode": ("compute_mode",),
    "remapped_rows.pending": ("remap", "pending"),
    "remapped_rows.failure": ("remap", "failed"),
    "ecc.errors.uncorrected.volatile.dram": ("ecc", "volatile", "dram_uncorrectable"),
}
WORDS = {"Enabled": True, "Disabled": False, "Yes": True, "No": False}


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def keep(folder: Path, name: str, content: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, indent=2, sort_keys=True, default=str) + "\n"
    (folder / name).write_text(text)


def scrubbed(text: str, facts: dict[str, Any]) -> str:
    """Return a text without identifiers of this machine: GPU ids, serial numbers and process names."""
    for gpu in facts["gpus"]:
        if gpu["uuid"]:
            text = text.replace(gpu["uuid"], f"GPU-00000000-0000-4000-9000-{gpu['index']:012x}")
        if gpu["serial"]:
            text = text.replace(gpu["serial"], f"{gpu['index']:013d}")
    text = re.sub(r"(<(pdi|gpu_fabric_guid|chassis_serial_number|clusterUuid)>)(?!N/A)[^<]+", r"\g<1>0", text)
    return re.sub(r"<process_name>[^<]*", "<process_name>/opt/train/bin/python3", text)


def record(look: dict[str, Any], facts: dict[str, Any], out: Path, scenario: str, how: str) -> None:
    """Save a recording. scenario: suffix of the folder name. how: description of the machine's state."""
    loaded = facts["driver"]["loaded"] or "unknown"
    model = re.sub(r"\W+", "-", str(facts["gpus"][0]["name"]).removeprefix("NVIDIA ").lower())
    folder = out / "recorded" / f"{loaded.partition('.')[0]}-{model}-{scenario}"
    codes = {}
    for question, answer in look["smi"].items():
        keep(folder, f"{question}.{'xml' if question == 'query' else 'txt'}", scrubbed(answer["text"], facts))
        if answer["aside"]:
            keep(folder, f"{question}.aside.txt", scrubbed(answer["aside"], facts))
        code = re.search(r"ended with (-?\d+)", answer["why"])
        codes[question] = int(code[1]) if code else 0
    # The full kernel name may identify the machine.
    where = f"Linux {'.'.join(platform.release().split('.')[:2])}"
    if facts["virtual"]:
        where = f"in a virtual machine ({facts['virtual']}), {where}"
    provenance = {
        "printed_by": f"nvidia-smi {loaded}",
        "over": f"{plural(len(facts['gpus']), 'real GPU')}, {where}, {platform.machine()}",
        "scenario": f"{how}; ids, serial numbers and names of processes were replaced",
        "when": f"{datetime.now(timezone.utc):%Y-%m-%d}",
    }
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in provenance.items()), f"exit: {json.dumps(codes)}"]
    keep(folder, "provenance.yml", "\n".join(lines) + "\n")
    say(f"recorded to {folder}")


def look_at_gpus(out: Path) -> tuple[dict[str, Any], bool]:
    """Run parts 1 and 2: record gpu_info, and compare its facts with --query-gpu."""
    look = look_gpu.look()
    facts = gpu_facts(look)
    keep(out, "gpu_info.json", facts)
    say(f"gpu_info: driver {facts['driver']['loaded'] or 'not loaded'}, nvidia-smi {facts['smi']['status']}")
    for gpu in facts["gpus"]:
        say(
            f"  {gpu['index']} {gpu['slot']} {gpu['name']}, {gpu['memory']['total']} MiB, {len(gpu['nvlinks'])} NVLinks"
        )
    if not facts["gpus"]:
        return facts, False
    if any((gpu["uuid"] or "").startswith(STANDIN) for gpu in facts["gpus"]):
        say("These GPUs are simulated by Muster's tests: nothing is recorded, and the results do not describe a GPU.")
    else:
        record(look, facts, out, "real", "as it was found")
    request = {"node": platform.node(), "gpus": len(facts["gpus"]), "nproc": len(facts["gpus"]), "gpu_model": ""}
    judged = collect(gpu_rules.judge({"gpu": facts}, request))
    judged.findings.extend(collect(gpu_rules.conclude(judged, {"gpu": facts}, request)).findings)
    found, skipped = judged
    show(found)
    for skip in skipped:
        say(f"  skipped {skip['id']}: {skip['why']}")
    return facts, own_rules.show(facts, say) & compare_with_query(facts, out)


def show(found: list[Finding]) -> None:
    for one in found:
        say(f"  {one.status} {one.id}: {with_fix(one)}")


def compare_with_query(facts: dict[str, Any], out: Path) -> bool:
    argv = ["nvidia-smi", f"--query-gpu={','.join(SAME)}", "--format=csv,noheader,nounits"]
    asked = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    keep(out, "query_gpu.csv", asked.stdout)
    same = True
    for row, gpu in zip(asked.stdout.splitlines(), facts["gpus"], strict=False):
        for (name, path), said in zip(SAME.items(), row.split(", "), strict=False):
            made: Any = gpu
            for step in path:
                made = made[step] if made is not None else None
            if not equal(said.strip(), made):
                same = False
                say(f"  GPU {gpu['index']}: {name} is {said}, and gpu_info says {made}")
    say(
        f"gpu_info {'says the same as' if same else 'DIFFERS from'} nvidia-smi --query-gpu, in {len(SAME)} values a GPU"
    )
    return same and asked.returncode == 0


def equal(said: str, made: Any) -> bool:
    if said.startswith("[") or said in ("N/A", ""):
        return made in (None, "", False)
    if isinstance(made, bool):
        return WORDS.get(said, said in ("1", "Active")) is made
    if isinstance(made, (int, float)):
        return abs(float(said) - made) < 0.01
    return str(made).lower() == said.lower()


def smoke_under_nccl(facts: dict[str, Any], out: Path) -> bool:
    """Run part 5: the acceptance test under NCCL."""
    count = len(facts["gpus"])
    seen, held = tried(count, out / "full", "full", [])
    measured = judge.measured(seen, [dict(event) for event in seen.events])
    keep(out, "smoke.json", measured)
    return own_device.show(seen, measured, say) and held


def soak_under_nccl(facts: dict[str, Any], out: Path) -> bool:
    """Run part 8: the soak, without level 3 of DCGM, which takes half an hour."""
    count = len(facts["gpus"])
    seen, soaked = tried(count, out / "soak", "soak", ["--stages=world,soak", f"--seconds={SOAK_SECONDS}"])
    measured = judge.measured(seen, [dict(event) for event in seen.events])
    keep(out, "soak.json", measured)
    return own_device.show_soak(measured, say) and soaked


def tried(count: int, out: Path, mode: str, words: list[str]) -> tuple[reports.Reports, bool]:
    """Run the acceptance test. Return the reports of the ranks, and whether the run passed."""
    shutil.rmtree(out, ignore_errors=True)
    # A file per rank, because lines of several ranks on one pipe may be mixed.
    logs = ["--log-dir", str(out / "ranks"), "--redirects", "3"]
    argv = ["-m", "torch.distributed.run", "--standalone", *logs, f"--nproc-per-node={count}", str(PAYLOAD)]
    # NCCL writes nccl-N.txt per rank, which the stage transport reads.
    words = ["--judged", f"--output={out / 'acceptance'}", *words]
    environment = {**os.environ, "MUSTER_BACKEND": "nccl"}
    done = subprocess.run(
        [sys.executable, *argv, f"--mode={mode}", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=FULL_SECONDS,
        env=environment,
    )
    keep(out, "smoke.txt", done.stdout + done.stderr)
    events = [
        {**json.loads(line.partition("@muster ")[2]), "from_node": "here", "from_rank": int(path.parent.name)}
        for path in sorted((out / "ranks").rglob("stdout.log"))
        for line in path.read_text().splitlines()
        if line.startswith("@muster {")
    ]
    entry = PlannedNode("here", 0, list(range(count)), count, "")
    plan = LaunchPlan("", "", "", "nccl", "", 0, count, [entry])
    names = next((word.partition("=")[2] for word in words if word.startswith("--stages=")), "")
    wanted = tuple(stage.name for stage in CHOSEN(mode, names))
    # Needs torch. The parts before only need Python.
    rates = importlib.import_module("yaml").safe_load((PAYLOAD.parent / "gpu_rates.yml").read_text())
    seen = reports.read(plan, events, mode, wanted, reports.Bounds(loss_ratio=LOSS_RATIO, gpu_rates=rates))
    judged = judge.judge(seen)
    say(f"{mode} under NCCL: ended with {done.returncode}")
    show(judged.findings)
    for skip in judged.skipped:
        say(f"  skipped {skip['id']}: {skip['why']}")
    if done.returncode:
        say(done.stderr[-2000:])
    return seen, done.returncode == 0 and not any(one.status == "fail" for one in judged.findings)


def held_by(out: Path) -> bool:
    """Run part 4: reports of a process that holds GPU memory."""
    right, look, facts = own_holder.run(say)
    if not any((gpu["uuid"] or "").startswith(STANDIN) for gpu in facts["gpus"]):
        record(look, facts, out, "held", "a process held 1 GiB of it")
    return right


def main() -> int:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "artifacts/gpu").resolve()
    facts, held = look_at_gpus(out)
    if not facts["gpus"]:
        say(f"The driver lists no GPU ({facts['smi']['why'] or facts['smi']['status']}).")
        say("Nothing was tested or recorded.")
        return NO_GPU
    parts: list[Callable[[], bool]] = [lambda: own_health.run(len(facts["gpus"]), out, say)]
    if importlib.util.find_spec("torch") is None:
        say("the rest: skipped, because this Python has no torch")
    else:
        parts += [
            lambda: held_by(out),
            lambda: smoke_under_nccl(facts, out),
            lambda: own_mishaps.run(out, say),
            lambda: own_examples.run(out, say),
            lambda: soak_under_nccl(facts, out),
        ]
    for part in parts:
        try:
            held = part() and held
        except Exception:  # the other parts still give results, and such machines are rare
            say(traceback.format_exc())
            held = False
    keep(out, "kernel_log.txt", subprocess.run(["dmesg"], check=False, capture_output=True, text=True).stdout)
    say("all parts passed" if held else "some parts FAILED; see above")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
