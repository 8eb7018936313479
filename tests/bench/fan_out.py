r"""Measure how many seconds it takes until N nodes have the files of one node over links with a limited rate: for one
copy, for all copies from one node (a star), and along a chain, which is how wheels and projects are distributed.

PYTHONPATH=tests:tests/integration:plugins/module_utils \
  .venv-dev/bin/python tests/bench/fan_out.py [NODES [MB [MBIT [RUNS]]]]

Run as root on a machine with the sandbox's image and network (created by script/demo or script/test). The benchmark
creates its own containers without an init and removes them afterwards. tbf limits each link in both directions; the
time of one copy verifies the limit. The nodes run the real node program, started by podman instead of SSH. For the
star, all nodes have the first node as source.
"""

from __future__ import annotations

import base64
import secrets
import subprocess
import sys
import time
from statistics import median
from typing import Any

from muster.distribution.lines import lines
from muster_node.distribution import manifest
from muster_node.distribution.manifest import ManifestFile
from muster_node.tools.pack import sent
from muster_node.tools.program import BOOTSTRAP, answer_in
from paths import NAME

PROGRAM = "muster_node.programs.distribution"
FOLDER = "/var/tmp/muster-fan-out"
FILES = 3
PORT = 29599


def podman(*argv: str) -> str:
    return subprocess.run(["podman", *argv], check=True, capture_output=True, text=True).stdout.strip()


class Node:
    """A container whose network link is limited in both directions."""

    def __init__(self, number: int, mbit: int) -> None:
        self.name = f"{NAME}-bench{number}"
        image, network = podman(
            *("inspect", "--format", "{{.ImageName}} {{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}"),
            f"{NAME}-node1",
        ).split()
        limits = ("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=10000:10000")
        options = ("--runtime", "runc", "run", "--detach", *limits, "--network", network, "--cap-add", "NET_ADMIN")
        podman(*options, "--name", self.name, "--entrypoint", "/bin/sleep", image, "7200")
        template = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        self.address = podman("inspect", "--format", template, self.name)
        limit = ("root", "tbf", "rate", f"{mbit}mbit", "burst", "128kb", "latency", "100ms")
        self.inside("tc", "qdisc", "add", "dev", "eth0", *limit)
        index = self.inside("cat", "/sys/class/net/eth0/iflink").strip()
        links = subprocess.run(["ip", "-o", "link"], check=True, capture_output=True, text=True).stdout
        other_end = next(line.split()[1] for line in links.splitlines() if line.startswith(f"{index}: "))
        subprocess.run(["tc", "qdisc", "add", "dev", other_end.partition("@")[0], *limit], check=True)

    def inside(self, *command: str) -> str:
        return podman("exec", self.name, *command)

    def begin(self, verb: str, request: dict[str, Any]) -> subprocess.Popen[bytes]:
        argv = ["podman", "exec", "-i", self.name, "python3", "-I", "-S", "-c", BOOTSTRAP, verb]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if process.stdin:
            process.stdin.write(sent(PROGRAM, request))
            process.stdin.close()
        return process


def end(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    said = answer_in(process.stdout.read().decode() if process.stdout else "") or {}
    process.wait()
    if said.get("error", "nothing came") or said.get("missing"):
        raise SystemExit(f"copy failed: {said}")
    return said


def fill(node: Node, size: int) -> tuple[str, list[str]]:
    """Create the files on one node. Return the manifest and the digests of the files."""
    made = f"for each in $(seq {FILES}); do head -c {size} /dev/urandom >$each.whl; done"
    node.inside("sh", "-ec", f"mkdir -p {FOLDER}; cd {FOLDER}; {made}")
    sums = node.inside("sh", "-ec", f"cd {FOLDER} && sha256sum *.whl").split()
    listed = [
        ManifestFile(name, executable=False, size=size, sha256=sha256)
        for sha256, name in zip(sums[::2], sums[1::2], strict=True)
    ]
    return base64.b64encode(manifest.render(listed)).decode(), sorted(sums[::2])


def run(holder: Node, takers: list[Node], place: dict[str, Any], *, star: bool) -> float:
    """Distribute the files. Return the seconds from the announcement until all nodes have all files."""
    for node in takers:
        node.inside("rm", "-rf", FOLDER)
    pieces = end(holder.begin("offer", place))["pieces"]
    nodes = {node.name: node for node in [holder, *takers]}
    asks = lines([holder.name], [node.name for node in takers])
    asks = {name: [holder.name] for name in asks} if star else asks
    common = {"token": secrets.token_hex(32), "seconds": 300, "calls_for": 60.0, "pieces": pieces, "port": PORT}
    common["peers"] = [node.address for node in takers]
    followed = {givers[0] for givers in asks.values()}
    began = time.monotonic()
    begun = [
        node.begin(
            "share",
            {
                **place,
                **common,
                "address": node.address,
                "followed": name in followed,
                "givers": [[nodes[giver].address, PORT] for giver in asks.get(name, ())],
            },
        )
        for name, node in reversed(nodes.items())
    ]
    said = [end(process) for process in begun]
    seconds = time.monotonic() - began
    most = max(sum(node.address in one["came"] for one in said) for node in nodes.values())
    print(f"  {seconds:.1f} s; maximum receivers of one source: {most}", flush=True)
    return seconds


def main(count: int, megabytes: int, mbit: int, runs: int) -> None:
    try:
        holder, *takers = (Node(number, mbit) for number in range(1, count + 1))
        listed, wanted = fill(holder, megabytes * 1_000_000 // FILES)
        place = {"folder": FOLDER, "manifest": listed, "wanted": wanted}
        print(f"{megabytes} MB, {mbit} Mbit/s each way: {megabytes * 8 / mbit:.1f} s at the least", flush=True)
        ways: dict[str, list[float]] = {"one copy": [], "star": [], "line": []}
        for _ in range(runs):
            ways["one copy"].append(run(holder, takers[:1], place, star=False))
            ways["line"].append(run(holder, takers, place, star=False))
            ways["star"].append(run(holder, takers, place, star=True))
            print({way: f"{seconds[-1]:.1f}" for way, seconds in ways.items()}, flush=True)
        one = median(ways["one copy"])
        print("way", "nodes", "seconds (least to most)", "of one copy", sep="\t")
        for way, seconds in ways.items():
            spread = f"{median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})"
            print(way, 2 if way == "one copy" else count, spread, f"{median(seconds) / one:.2f}", sep="\t")
    finally:
        for number in range(1, count + 1):
            argv = ["podman", "rm", "--force", "--time=0", f"{NAME}-bench{number}"]
            subprocess.run(argv, check=False, capture_output=True)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*(given + [8, 60, 80, 3][len(given) :]))
