"""What torch's store, its rendezvous and torchrun print.

Torch quotes garbage where it could not find out who was called (`[c10d] ... to 82.86.0.0:35628`): only an address in
brackets with a comma, `(host, port)`, is what it was given, and only that is read out of its lines.
"""

from __future__ import annotations

from ..evidence import Text

GIVEN = r"\(?(?P<address>[^\s(),]+)(?:, |:)(?P<port>\d+)\)?"
RECORDED = "recorded with torch 2.13 on two network namespaces"
SOCKET = f"{RECORDED}; torch/csrc/distributed/c10d/socket.cpp"
CALLING = r"The client socket has failed to connect to .*"

TEXTS = (
    Text(
        "store.connect.timeout",
        rf"The client socket has timed out after (?P<seconds>\d+)(?:ms|s) while trying to connect to {GIVEN}",
        "the store of the head node did not answer at this address for as long as the rendezvous waits",
        "torch.distributed.DistNetworkError: The client socket has timed out after 6000ms while trying to connect to"
        " (192.0.2.1, 29500).",
        f"{SOCKET}; pytorch/pytorch#79388, #107021",
        victim=True,
    ),
    Text(
        "store.connect.refused",
        rf"{CALLING}\(errno: 111 - Connection refused\)",
        "the machine at that address answers, and nobody listens on the port there, or a firewall rejects the call",
        "[W1123 19:40:01.000000000 socket.cpp:764] [c10d] The client socket has failed to connect to"
        " [::ffff:192.0.2.1]:29500 (errno: 111 - Connection refused).",
        SOCKET,
        victim=True,
    ),
    Text(
        "store.connect.unanswered",
        rf"{CALLING}\(errno: 110 - Connection timed out\)",
        "calls to that address vanish: a firewall drops them, or the answer finds no way back",
        "[W427 01:04:16.149509694 socket.cpp:752] [c10d] The client socket has failed to connect to"
        " [::ffff:198.18.0.1]:3254 (errno: 110 - Connection timed out).",
        "gensyn-ai/rl-swarm#197; pytorch/pytorch#138003",
        victim=True,
    ),
    Text(
        "store.connect.no_host",
        rf"{CALLING}\(errno: 113 - No route to host\)",
        "no machine has that address, or a firewall forbids the call",
        "[W1123 19:40:01.000000000 socket.cpp:764] [c10d] The client socket has failed to connect to"
        " 145.85.0.0:37816 (errno: 113 - No route to host).",
        SOCKET,
        victim=True,
    ),
    Text(
        "store.connect.no_route",
        rf"{CALLING}\(errno: 101 - Network is unreachable\)",
        "this node has no route to that address",
        "[W1123 19:40:01.000000000 socket.cpp:764] [c10d] The client socket has failed to connect to"
        " 145.85.0.0:37816 (errno: 101 - Network is unreachable).",
        SOCKET,
        victim=True,
    ),
    Text(
        "store.connect.none",
        rf"The client socket has failed to connect to any network address of {GIVEN}",
        "none of the addresses that this name has could be called",
        "[E1123 19:40:01.000000000 socket.cpp:820] [c10d] The client socket has failed to connect to any network"
        " address"
        " of (192.0.2.1, 29500).",
        SOCKET,
        victim=True,
    ),
    Text(
        "store.name",
        rf"network addresses of {GIVEN} cannot be retrieved \(gai error: -(?:2|3|5) - ",
        "the name of the head node is not known on this node",
        "[W1123 19:44:30.271034287 socket.cpp:764] [c10d] The IPv6 network addresses of (headnode.invalid,"
        " 29505) cannot"
        " be retrieved (gai error: -3 - Temporary failure in name resolution).",
        f"{SOCKET}; pytorch/pytorch#131691",
    ),
    Text(
        "store.clients",
        r"Timed out after (?P<seconds>\d+) seconds waiting for clients\. (?P<joined>\d+)/(?P<expected>\d+)"
        r" clients joined",
        "the head node has waited for the other nodes, and not all of them came",
        "torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 1/2 clients joined.",
        "recorded with torch 2.13 (tests/unit/launch, a_node_does_not_join)",
        victim=True,
    ),
    Text(
        "store.key",
        r"wait timeout after (?P<seconds>\d+)ms, keys: (?P<keys>\S+)",
        "a rank has waited for what another one writes into the store; Gloo's keys end with the number of that rank",
        "torch.distributed.DistStoreError: wait timeout after 5000ms, keys: /0//cpu//0/1",
        f"{RECORDED}; torch/csrc/distributed/c10d/TCPStore.cpp",
        victim=True,
    ),
    Text(
        "store.barrier",
        r"(?:Timed out initializing process group|Waiting) in store based barrier (?:to initialize process group"
        r" )?(?:on|for)"
        r" rank: (?P<rank>\d+), (?:for )?key: \S+ \(world_size=(?P<expected>\d+), worker_count=(?P<joined>\d+)",
        "not as many ranks have reached init_process_group as the world has, or more of them",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 2, for key:"
        " store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:30:00)",
        "torch up to 2.2; tczhangzhi/pytorch-distributed#18, deepspeedai/Megatron-DeepSpeed#338",
        victim=True,
    ),
    Text(
        "store.in_use",
        r"EADDRINUSE|\(errno: 98 - Address already in use\)|OSError: \[Errno 98\] Address already in use",
        "another process already listens on the port",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port:"
        " 28123, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "recorded with torch 2.13 (tests/unit/launch, the_port_is_taken_after_the_look); pytorch/pytorch#126510",
    ),
    Text(
        "store.closed",
        r"[Ff]ailed to recv, got 0 bytes|(?:recvValue|sendBytes|recvVector|recvBytes) failed"
        r"|TCPStore.*(?:Broken pipe|Connection reset by peer)|DistNetworkError: (?:Broken pipe"
        r"|Connection reset by peer)",
        "the store on the head node ended, or its connection was cut",
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote"
        " server shutdown or crash?",
        "torch 2.13, torch/csrc/distributed/c10d/Utils.hpp; kubeflow/trainer#2794",
        victim=True,
    ),
    Text(
        "rendezvous.timeout",
        r"(?<!of type )\bRendezvousTimeoutError\b",
        "not as many nodes as --nnodes says came to the rendezvous in time",
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "torch 2.13, torch/distributed/elastic/rendezvous; princeton-nlp/ProLong#9",
        victim=True,
    ),
    Text(
        "rendezvous.closed",
        r"(?<!of type )\bRendezvousClosedError\b",
        "the rendezvous was closed, because another node failed or had ended; look at the others",
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        "torch 2.13, torch/distributed/elastic/rendezvous; pytorch/pytorch#116974",
        victim=True,
    ),
    Text(
        "rendezvous.connection",
        r"(?<!of type )\bRendezvousConnectionError\b|The connection to the C10d store has failed",
        "the store of the rendezvous could not be reached, or was cut off",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store"
        " has failed."
        " See inner exception for details.",
        "torch 2.13, torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py; pytorch/pytorch#69197",
        victim=True,
    ),
    Text(
        "rendezvous.heartbeat",
        r"has failed to send a keep-alive heartbeat to the rendezvous '(?P<id>[^']*)'",
        "this node's heartbeat did not reach the others in time",
        "The node 'node2_4242_0' has failed to send a keep-alive heartbeat to the rendezvous 'job7' due to an error of"
        " type RendezvousConnectionError.",
        "torch 2.13, torch/distributed/elastic/rendezvous/dynamic_rendezvous.py",
        victim=True,
    ),
    Text(
        "torchrun.endpoint",
        r"ValueError: (?:Port is absent in endpoint|endpoint is absent in RendezvousParameters"
        r"|rank is absent in Rendezvous"
        r"Parameters|The rendezvous endpoint must)",
        "the address or the port of the head node, or the node's rank, is not given to torchrun as it should",
        "ValueError: Port is absent in endpoint: node1. Try launching with --master-port",
        "torch 2.13, torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py",
    ),
    Text(
        "interference.proxy_error",
        r"(?:ProxyError|Tunnel connection failed: \d+|407 Proxy Authentication)",
        "a call went to a web proxy instead of to the machine that was meant",
        "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='node1', port=2379): Max retries exceeded"
        " (Caused by"
        " ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 403 Forbidden')))",
        "urllib3; read, not run",
    ),
)
