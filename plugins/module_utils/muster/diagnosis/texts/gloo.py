"""Messages of Gloo, torch's backend for CPUs.

Addresses in brackets are advertised by the other rank through the store. The ports after them are printed with swapped
bytes and are not parsed.
"""

from __future__ import annotations

from ..evidence import Text

BRACKETS = r"\[(?P<address>[0-9a-fA-F.:]+)\]:\d+"
RECORDED = "recorded with torch 2.13 on two network namespaces"
AT = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/"

TEXTS = (
    Text(
        "gloo.connect.refused",
        r"(?:SO_ERROR: Connection refused, remote=\[|\bconnect\(\) to (?=[\d.]+ failed: Connection refused))"
        r"(?P<address>[0-9a-fA-F.:]+)|gloo/transport/tcp/pair\.cc:\d+\] connect .*: Connection refused",
        "the address that another rank advertised responds, but no process listens on the port",
        f"RuntimeError: Gloo connectFullMesh failed with {AT}pair.cc:152] timed out connecting: SO_ERROR: Connection"
        " refused, remote=[127.0.0.1]:8091$0",
        f"{RECORDED}; ray-project/ray#37461, pytorch/pytorch#108732; Open MPI 4: btl_tcp_endpoint.c",
        victim=True,
    ),
    Text(
        "gloo.connect.no_host",
        rf"SO_ERROR: (?:No route to host|Network is unreachable), remote={BRACKETS}|connect.. to \S+ failed: No route",
        "there is no route to the address that another rank advertised, or a firewall rejects the connection",
        f"RuntimeError: Gloo connectFullMesh failed with {AT}pair.cc:152] timed out connecting: SO_ERROR: No route to"
        " host, remote=[10.203.26.11]:3495$1",
        RECORDED,
        victim=True,
    ),
    Text(
        "gloo.connect.timeout",
        rf"Connect timeout (?:{BRACKETS}|\[none\])|SO_ERROR: Connection timed out,"
        rf" remote=\[(?P<called>[0-9a-fA-F.:]+)\]|\bconnect\(\) to \S+ failed: Connection timed out",
        "ranks cannot connect to each other at the advertised addresses and ephemeral ports",
        f"RuntimeError: Gloo connectFullMesh failed with {AT}pair.h:311] Connect timeout [10.203.26.12]:22727",
        RECORDED,
        victim=True,
    ),
    Text(
        "gloo.mesh",
        r"connectFullMesh failed with \S+pair\.cc:\d+\] no error",
        "ranks cannot connect to each other",
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        "torch 2.1 to 2.7; sgl-project/sglang#3226, gpustack/gpustack#2125",
        victim=True,
    ),
    Text(
        "gloo.timeout",
        r"Timed out waiting (?P<milliseconds>\d+)ms for (?P<way>recv|send) operation to complete"
        r"|tensors were submitted to be reduced, gathered or broadcasted by subset of ranks",
        "a peer did not take part in a collective within the timeout of the process group, or of Horovod",
        f"RuntimeError: {AT}unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete",
        RECORDED,
        victim=True,
    ),
    Text(
        "gloo.closed",
        r"gloo/transport/tcp/pair\.cc:\d+\] (?:Connection closed by peer|(?:Read|Write) error"
        r"|.*Connection reset by peer)"
        r"(?: \[(?P<address>[0-9a-fA-F.:]+)\])?",
        "the connection to a peer ended: its rank exited, or the network failed",
        f"RuntimeError: {AT}pair.cc:553] Connection closed by peer [10.203.26.11]:29593. This is typically caused by a"
        " remote worker crashing. Check the logs of the remote worker before reporting an error. GLHF! 🏖️",
        RECORDED,
        victim=True,
    ),
    Text(
        "gloo.closed.timeout",
        r"Application timeout caused pair closure",
        "an earlier collective on this rank timed out",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Application timeout caused pair closure",
        "torch 2.x, gloo/transport/tcp/pair.cc",
        victim=True,
    ),
    Text(
        "gloo.interface",
        r"(?<!rp != nullptr\. )Unable to find (?:interface|address) for: (?P<name>\S+)",
        "the interface in GLOO_SOCKET_IFNAME does not exist on this node, or has no address",
        "RuntimeError: [enforce fail at /__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa !="
        " nullptr. Unable to find address for: eth7",
        f"{RECORDED}; older form: Unable to find interface for",
    ),
    Text(
        "gloo.hostname",
        r"Unable to resolve hostname to a \(local\) address|Using the loopback address as|bind: Cannot assign"
        r"|rp != nullptr\. Unable to find address for",
        "the host name of the node does not resolve to one of its addresses, so Gloo advertises the loopback address",
        "[W ProcessGroupGloo.cpp:751] Warning: Unable to resolve hostname to a (local) address. Using the"
        " loopback address"
        " as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME. (function operator())",
        "torch 2.x, torch/csrc/distributed/c10d/ProcessGroupGloo.cpp",
    ),
    Text(
        "gloo.barrier",
        r"\[Rank 0\]: Ranks? (?P<ranks>[\d, ]+) failed to pass monitoredBarrier in (?P<milliseconds>\d+) ms",
        "the ranks in this line did not reach the barrier in time",
        "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms",
        RECORDED,
        victim=True,
    ),
    Text(
        "gloo.family",
        r"ss1\.ss_family == ss2\.ss_family\. (?P<own>\d+) vs (?P<theirs>\d+)",
        "one rank advertises an IPv4 address and another an IPv6 address (2 is IPv4, 10 is IPv6)",
        "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:276] ss1.ss_family =="
        " ss2.ss_family. 2 vs 10",
        "pytorch/gloo#399",
    ),
)
