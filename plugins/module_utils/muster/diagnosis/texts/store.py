"""Messages of torch's store, the rendezvous and torchrun.

Torch prints a wrong address if it could not determine the peer (`[c10d] ... to 82.86.0.0:35628`). An address in the
form `(host, port)` is always the configured one, so only this form is parsed.
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
        "the store of the head node did not respond at this address within the rendezvous timeout",
        "torch.distributed.DistNetworkError: The client socket has timed out after 6000ms while trying to connect to"
        " (192.0.2.1, 29500).",
        f"{SOCKET}; pytorch/pytorch#79388, #107021",
        victim=True,
    ),
    Text(
        "store.connect.refused",
        rf"{CALLING}\(errno: 111 |RuntimeError: Connection refused$|ConnectionRefusedError: \[Errno 111\]",
        "the machine at that address responds, but no process listens on the port, or a firewall rejects connections",
        "[W1123 19:40:01.000000000 socket.cpp:764] [c10d] The client socket has failed to connect to"
        " [::ffff:192.0.2.1]:29500 (errno: 111 - Connection refused).",
        SOCKET,
        victim=True,
    ),
    Text(
        "store.connect.unanswered",
        rf"{CALLING}\(errno: 110 |(?:RuntimeError|what\(\)): +connect\(\) timed out|TimeoutError: \[Errno 110\]",
        "packets to that address get no reply: a firewall drops them, or the replies are lost",
        "[W427 01:04:16.149509694 socket.cpp:752] [c10d] The client socket has failed to connect to"
        " [::ffff:198.18.0.1]:3254 (errno: 110 - Connection timed out).",
        "gensyn-ai/rl-swarm#197; pytorch/pytorch#138003",
        victim=True,
    ),
    Text(
        "store.connect.no_host",
        rf"{CALLING}\(errno: 113 |RuntimeError: No route to host$|OSError: \[Errno 113\]",
        "no machine has that address, or a firewall rejects the connection",
        "[W1123 19:40:01.000000000 socket.cpp:764] [c10d] The client socket has failed to connect to"
        " 145.85.0.0:37816 (errno: 113 - No route to host).",
        SOCKET,
        victim=True,
    ),
    Text(
        "store.connect.no_route",
        rf"{CALLING}\(errno: 101 |OSError: \[Errno 101\]",
        "this node has no route to that address",
        "[W1123 19:40:01.000000000 socket.cpp:764] [c10d] The client socket has failed to connect to"
        " 145.85.0.0:37816 (errno: 101 - Network is unreachable).",
        SOCKET,
        victim=True,
    ),
    Text(
        "store.connect.none",
        rf"The client socket has failed to connect to any network address of {GIVEN}",
        "connections to all addresses of this name failed",
        "[E1123 19:40:01.000000000 socket.cpp:820] [c10d] The client socket has failed to connect to any network"
        " address"
        " of (192.0.2.1, 29500).",
        SOCKET,
        victim=True,
    ),
    Text(
        "store.name",
        rf"network addresses of {GIVEN} cannot be retrieved \(gai error: -(?:2|3|5) - |: host not found: "
        r"|socket\.gaierror: \[Errno -[235]\]",
        "this node cannot resolve the name of the head node",
        "[W1123 19:44:30.271034287 socket.cpp:764] [c10d] The IPv6 network addresses of (headnode.invalid,"
        " 29505) cannot"
        " be retrieved (gai error: -3 - Temporary failure in name resolution).",
        f"{SOCKET}; pytorch/pytorch#131691; torch 1.10: pytorch/pytorch#73682",
    ),
    Text(
        "store.clients",
        r"Timed out after (?P<seconds>\d+) seconds waiting for clients\. (?P<joined>\d+)/(?P<expected>\d+)"
        r" clients joined",
        "the head node waited for the other nodes, but not all of them joined",
        "torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 1/2 clients joined.",
        "recorded with torch 2.13 (tests/unit/launch, a_node_does_not_join)",
        victim=True,
    ),
    Text(
        "store.key",
        r"wait timeout after (?P<seconds>\d+)ms, keys: (?P<keys>\S+)",
        "a rank waited for a store entry of another rank; a Gloo key ends with the number of that rank",
        "torch.distributed.DistStoreError: wait timeout after 5000ms, keys: /0//cpu//0/1",
        f"{RECORDED}; torch/csrc/distributed/c10d/TCPStore.cpp",
        victim=True,
    ),
    Text(
        "store.timeout",
        r"(?:Error: |what\(\): +)Socket Timeout|waitForInput: .*(?:timed out|a timeout)",
        "the store did not answer in time: the node or rank that should have written the entry did not join",
        "torch.distributed.DistStoreError: Socket Timeout",
        "torch 1.9 to 2.6; huggingface/accelerate#1645",
        victim=True,
    ),
    Text(
        "store.members",
        r"GLOBAL_RANK: (?P<rank>\d+), MEMBER: (?P<joined>\d+)/(?P<expected>\d+)|Multi-node training enabled: num nodes"
        r"|Init (?:nccl|torch distributed) begin|[Ii]nitializing (?:torch distributed|TorchBackend)"
        r"|distributed init \(rank \d+\)|Rendezvous'ing worker group|Starting elastic_operator with launch configs",
        "the rank waits for the other members of the process group",
        "initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4",
        "Lightning, LlamaFactory, SGLang; Lightning-AI/pytorch-lightning#10098",
        ordinary=True,
    ),
    Text(
        "store.barrier",
        r"(?:Timed out initializing process group|Waiting) in store based barrier (?:to initialize process group"
        r" )?(?:on|for)"
        r" rank: (?P<rank>\d+), (?:for )?key: \S+ \(world_size=(?P<expected>\d+), worker_count=(?P<joined>\d+)",
        "fewer or more ranks than the world size reached init_process_group",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 2, for key:"
        " store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:30:00)",
        "torch up to 2.2; tczhangzhi/pytorch-distributed#18, deepspeedai/Megatron-DeepSpeed#338",
        victim=True,
    ),
    Text(
        "store.in_use",
        r"listen on any local network address\. port: (?P<port>\d{1,5}).*EADDRINUSE|EADDRINUSE"
        r"|\(errno: 98 |OSError: \[Errno 98\]|(?:RuntimeError|ZMQError): Address already in use",
        "another process already listens on the port",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port:"
        " 28123, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "recorded with torch 2.13 (tests/unit/launch, the_port_is_taken_after_the_look); pytorch/pytorch#126510",
    ),
    Text(
        "store.closed",
        r"[Ff]ailed to recv, got 0 bytes|(?:recvValue|sendBytes|recvVector|recvBytes) failed"
        r"|TCPStore.*(?:Broken pipe|Connection reset by peer)"
        r"|(?:DistNetwork|Runtime|ConnectionReset)Error: (?:\[Errno 104\] )?(?:Broken pipe|Connection reset by peer)",
        "the store on the head node ended, or the connection to it was lost",
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote"
        " server shutdown or crash?",
        "torch 2.13, torch/csrc/distributed/c10d/Utils.hpp; kubeflow/trainer#2794",
        victim=True,
    ),
    Text(
        "rendezvous.timeout",
        r"(?<!of type )\bRendezvousTimeoutError\b",
        "fewer nodes than --nnodes joined the rendezvous in time",
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "torch 2.13, torch/distributed/elastic/rendezvous; princeton-nlp/ProLong#9",
        victim=True,
    ),
    Text(
        "rendezvous.closed",
        r"(?<!of type )\bRendezvousClosedError\b",
        "the rendezvous was closed because another node failed or exited; check the other nodes",
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        "torch 2.13, torch/distributed/elastic/rendezvous; pytorch/pytorch#116974",
        victim=True,
    ),
    Text(
        "rendezvous.connection",
        r"(?<!of type )\bRendezvousConnectionError\b|The connection to the C10d store has failed",
        "the rendezvous store could not be reached, or the connection was lost",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store"
        " has failed."
        " See inner exception for details.",
        "torch 2.13, torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py; pytorch/pytorch#69197",
        victim=True,
    ),
    Text(
        "rendezvous.heartbeat",
        r"has failed to send a keep-alive heartbeat to the rendezvous '(?P<id>[^']*)'",
        "the heartbeat of this node did not reach the rendezvous in time",
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
        "the head node address or port, or the node rank, is missing or invalid in the torchrun arguments",
        "ValueError: Port is absent in endpoint: node1. Try launching with --master-port",
        "torch 2.13, torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py",
    ),
    Text(
        "interference.sidecar",
        r"\b(?:istio|linkerd2?)-proxy\b|Envoy proxy is ",
        "the pod has a proxy of a service mesh",
        "istio-proxy: Envoy proxy is ready",
        "kubeflow/website#2011",
        ordinary=True,
    ),
    Text(
        "interference.proxy_error",
        r"(?:ProxyError|Tunnel connection failed: \d+|407 Proxy Authentication)",
        "a connection went to a web proxy instead of the intended machine",
        "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='node1', port=2379): Max retries exceeded"
        " (Caused by"
        " ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 403 Forbidden')))",
        "urllib3; read, not run",
    ),
)
