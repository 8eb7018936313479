"""Messages of NCCL, and of torch about NCCL.

Messages marked "run" were recorded with one GPU (logs: tests/unit/diagnosis/recorded). Messages that need a second GPU,
a network card or a broken link are from documentation.
"""

from __future__ import annotations

from ..evidence import Text

RUN = "observed on an H200: torch 2.11, NCCL 2.28.9, driver 580"
READ = "read, not run: NCCL 2.30's source"
NCCL2 = "read, not run: torch 2.15's backend nccl2 (docs/dev/nccl_backends.md)"

TEXTS = (
    Text(
        "nccl.timeout",
        r"Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(?P<sequence>\d+), )?"
        r"OpType=(?P<operation>\w+)(?:, NumelIn=(?P<size>\d+), NumelOut=\d+)?, Timeout\(ms\)=(?P<limit>\d+)\)"
        r"|\[TC\].* Operation timed out after \d+ ms|due to timeout - (?:timeout watchdog|collective operation)"
        r"|NCCL operation timed out|Work timed out during finalize"
        r"|(?:NCCL \w+ failed|Failed to initialize NCCL communicator) timed out after \d+ ms",
        "a collective did not finish in time; the line does not show which rank this rank waited for (since torch 2.15"
        " `Operation timed out after 600012 ms`)",
        "[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation"
        " timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, Timeout(ms)=600000)"
        " ran for"
        " 600020 milliseconds before timing out.",
        "observed on an H100: torch 2.11, same wording; OFA-Sys/OFA#271 (torch 1), pytorch/pytorch#118369 (2.0);"
        f" other wordings: {NCCL2}",
        victim=True,
    ),
    Text(
        "nccl.work",
        r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), last completed (?:NCCL )?work: (?P<completed>-?\d+)",
        "the progress of this rank: its newest enqueued and its newest completed collective",
        "[PG ID 0 PG GUID 0(default_pg) Rank 1] Exception (either an error or timeout) detected by watchdog at"
        " work: 808,"
        " last enqueued NCCL work: 811, last completed NCCL work: 807.",
        "observed on an H100: torch 2.11, different wording; this example: XPixelGroup/BasicSR#737 (2.6), read",
        victim=True,
    ),
    Text(
        "nccl.heartbeat",
        r"Heartbeat monitor timed out|ProcessGroupNCCL's watchdog got stuck|No available shared memory broadcast block",
        "torch's watchdog, or a worker of vLLM, was blocked for a long time, usually because a CUDA or NCCL call hangs",
        "[PG ID 0 PG GUID 0(default_pg) Rank 3] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making"
        " progress in monitoring enqueued collectives.",
        "read, not run: torch 2.x, ProcessGroupNCCL.cpp",
        victim=True,
    ),
    Text(
        "nccl.failed",
        r"NCCL operation failed|NCCL communicator was aborted after a previous error"
        r"|due to error - timeout watchdog detected operation error",
        "the communicator of this rank had already failed; an earlier line of this rank shows the error",
        "torch.distributed.DistBackendError: NCCL operation failed",
        NCCL2,
    ),
    Text(
        "nccl.init",
        r"Failed to (?:initialize NCCL communicator|get NCCL unique ID): ",
        "NCCL could not create the communicator; its WARN lines name the reason (NCCL_DEBUG=WARN in launch_env)",
        "RuntimeError: Failed to initialize NCCL communicator: invalid usage (run with NCCL_DEBUG=WARN for details)",
        NCCL2,
    ),
    Text(
        "nccl.system_error",
        r"unhandled system error|ncclSystemError|NCCL WARN .{0,40}(?:Error encountered progressing operation=Connect"
        r"|Failed to execute operation Connect)",
        "NCCL's call to the operating system or a network library failed; the NCCL WARN lines above name the call",
        "torch.distributed.DistBackendError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details),"
        " NCCL version 2.25.1",
        "read, not run: pytorch/pytorch#149984, NVIDIA/nccl#834",
    ),
    Text(
        "nccl.cuda_error",
        r"unhandled cuda error|ncclUnhandledCudaError",
        "a CUDA call in NCCL failed; the line `Cuda failure` above names the call",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled cuda error (run with"
        " NCCL_DEBUG=INFO for details), NCCL version 2.19.3",
        READ,
    ),
    Text(
        "nccl.internal_error",
        r"ncclInternalError|internal error - please report this issue to the NCCL developers|not find NET with id"
        r"|graph/(?:xml|topo)\.\w+:\d+ NCCL WARN",
        "NCCL detected an unexpected state: peers with another NCCL version, or a fault of this release",
        "ncclInternalError: Internal check failed.",
        "read, not run: NVIDIA/nccl-tests#166",
    ),
    Text(
        "nccl.remote",
        r"ncclRemoteError|remote process exited or there was a network error",
        "the connection to another rank broke: the rank exited, or the network failed",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        READ,
        victim=True,
    ),
    Text(
        "nccl.unique_id",
        r"retrieving ncclUniqueId from \[(?P<rank>\d+)\] via c10d key-value store"
        r"|keys: /default_pg/0//cuda//[^/]+/nccl_storekey_\d+\b",
        "the rank that creates the NCCL ID did not publish it in time, or the store has ended",
        "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0',"
        " but store->get('0') got error: wait timeout after 10000ms, keys: /default_pg/0//cuda//0",
        f"{RUN}; other errors of the store at its end: torch 2.x, ProcessGroupNCCL.cpp, read; without a rank: {NCCL2}",
        victim=True,
    ),
    Text(
        "nccl.device_type",
        r"No backend type associated with device type (?P<name>\w+)",
        "a collective received a tensor on a device that the backend does not support: NCCL supports only GPU tensors",
        "RuntimeError: No backend type associated with device type cpu",
        "observed on an H100: torch 2.11",
    ),
    Text(
        "nccl.other_device",
        r"ProcessGroupNCCL is bound to device (?P<name>cuda:\d+) but an operation was issued on"
        r"|Expected tensor on cuda:\d+ but found tensor on cuda:\d+",
        "a collective received a tensor on another GPU than the one of the process group (device_id, or LOCAL_RANK)",
        "RuntimeError: ProcessGroupNCCL is bound to device cuda:1 but an operation was issued on cuda:0",
        NCCL2,
    ),
    Text(
        "nccl.duplicate_gpu",
        r"Duplicate GPU detected : rank (?P<rank>\d+) and rank (?P<peer>\d+) both on CUDA device (?P<device>\w+)"
        r"|Multiple Ranks are using the same GPU",
        "two ranks on one node use the same GPU",
        "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60",
        f"{RUN}; since NCCL 2.30 `Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to"
        " enable this configuration.`, without ranks: from its source, not run",
    ),
    Text(
        "nccl.shared_memory",
        r"Error while (?:creating|attaching to) shared memory segment (?P<path>\S+)|failed to extend /dev/shm/nccl"
        r"|Call to posix_fallocate failed",
        "NCCL found no free space in /dev/shm",
        "misc/shmutils.cc:132 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-WU88OE (size 9637888),"
        " error: No space left on device (28)",
        "read, not run: NVIDIA/nccl#525, pytorch/ci-infra#490",
    ),
    Text(
        "nccl.locked_memory",
        r"(?:ibv_reg_mr|ibv_create_qp|ibv_create_cq).*(?:Cannot allocate memory|failed with error 12\b)",
        "the locked memory limit (memlock) is too low for the network card",
        "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
        "read, not run: NCCL's guide, troubleshooting",
    ),
    Text(
        "nccl.gpu_direct",
        r"ibv_reg_dmabuf_mr failed|ibv_reg_mr\w* failed with error (?:Invalid argument|Bad address)",
        "the network card could not register memory of a GPU (GPUDirect RDMA)",
        "misc/ibvwrap.cc:288 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported",
        "NVIDIA/nccl#778, NVIDIA/nccl#1842",
    ),
    Text(
        "nccl.algorithm",
        r"[Nn]o algorithm/protocol available",
        "no algorithm is left for a collective, because NCCL_ALGO or NCCL_PROTO allows only some",
        "enqueue.cc:422 NCCL WARN Error : no algorithm/protocol available",
        "NVIDIA/nccl#653",
    ),
    Text(
        "nccl.bridge",
        r"NCCL INFO NET/Socket ?: Using .*\](?:br-|docker|virbr|cni|flannel)[\w.-]{0,40}:(?P<address>[\d.]+)<",
        "NCCL also uses the bridge of a container network, which other nodes cannot reach",
        "NCCL INFO NET/Socket : Using [0]bond0:192.0.2.1<0> [1]br-3c0d91f6a2b4:172.19.0.1<0>",
        "NVIDIA/nccl#697",
        ordinary=True,
    ),
    Text(
        "nccl.peer_to_peer",
        r"NCCL INFO (?:Ring|Channel) [\d/]+ ?: \d+\[\w+\] -> \d+\[\w+\] via P2P/",
        "NCCL copies directly between the GPUs of a node",
        "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "NVIDIA/nccl#257",
        ordinary=True,
    ),
    Text(
        "nccl.ready",
        r"NCCL INFO (?:Launch mode|Connected all|.{1,200} - Init COMPLETE)|^# +\(B\) +\(elements\)",
        "NCCL is ready for the first collective",
        "NCCL INFO Connected all rings",
        "NVIDIA/nccl#257",
        ordinary=True,
    ),
    Text(
        "nccl.starting",
        r"^NCCL version \d|is using nccl==|CustomAllreduce is disabled"
        r"|NCCL INFO (?:Bootstrap|Using network|.* Init START)",
        "NCCL connects the ranks of a communicator",
        "NCCL version 2.27.3+cuda12.9",
        "torch, vLLM, SGLang: their sources, read",
        ordinary=True,
    ),
    Text(
        "nccl.completion",
        r"NET/IB\w* ?: ?Got completion from peer (?P<address>\S+?)<\d+> with (?:error |status=)(?P<number>\d+)"
        r"|transport retry counter exceeded|IBV_WC_\w+_ERR|(?i:got) completion with error:",
        "an RDMA transfer failed: the port, the network path or the peer is down",
        "NCCL WARN NET/IB : Got completion from peer 10.216.210.236<54862> with status=12 opcode=0 len=0 vendor err 129"
        " (Recv)",
        "read, not run: NVIDIA/nccl#1405, NVIDIA/nccl#928",
    ),
    Text(
        "nccl.queue_pair",
        r"(?:ibv_modify_qp|ibv_open_device|ibv_query_gid|ibv_poll_cq)(?:\(\))? failed|Call to"
        r" (?:ibv_modify_qp|ibv_open_device|ibv_query_gid)|NET/IB : Unable to open device",
        "an RDMA connection could not be established: a GID is missing, the subnets differ, or a port is down",
        "NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
        READ,
    ),
    Text(
        "nccl.connect",
        r"(?:NCCL WARN .*?|socket\w+: )[Cc]onnect(?:ing)? (?:to )?(?P<address>[\da-fA-F.:]+)(?:%\w+)?<(?P<port>\d+)>"
        r" (?:failed|returned) ?:? ?(?P<why>.+)|NCCL WARN Call to connect (?:failed|returned) ?:?",
        "NCCL cannot connect to a port of a peer",
        "NCCL WARN socketStartConnect: Connect to 192.168.1.2<43211> failed : Connection refused",
        READ,
    ),
    Text(
        "nccl.no_interface",
        r"Bootstrap : no socket interface found|no socket interfaces? found|NCCL_SOCKET_IFNAME .*not found",
        "NCCL found no usable interface, for example because NCCL_SOCKET_IFNAME names a missing interface",
        "[2026-11-27 02:37:27] node1:1006:1006 [0] bootstrap.cc:114 NCCL WARN Bootstrap : no socket interface found",
        RUN,
    ),
    Text(
        "nccl.nvls",
        r"nvls\.cc:\d+ NCCL WARN Cuda failure|Failed to bind NVLink SHARP \(NVLS\) Multicast memory",
        "NVLink SHARP could not be set up: the fabric manager or an NVSwitch failed, or a container has no access",
        "transport/nvls.cc:287 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA"
        " error 401 'the operation cannot be performed in the present state'",
        "read, not run: NCCL 2.29's source",
    ),
    Text(
        "nccl.imex",
        r"MNNVL \(cliqueSize \d+\) is available but not working|mnnvl\.cc:\d+ NCCL WARN|nvidia-caps-imex-channels"
        r"|cuMem(?:Import|Export)\w*ShareableHandle",
        "memory could not be shared over multi-node NVLink: the IMEX service or its channel is not usable",
        "mnnvl.cc:67 NCCL WARN MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel"
        " configuration (/dev/nvidia-caps-imex-channels).",
        "NVIDIA/nccl#1925, NVIDIA/nccl#1647",
    ),
    Text(
        "nccl.mnnvl",
        r"NCCL INFO MNNVL (?:busId|\d+ cliqueId)",
        "NCCL uses multi-node NVLink (MNNVL)",
        "NCCL INFO MNNVL 1 cliqueId 7ffe cliqueSize 48 cliqueRank 12",
        "NVIDIA/nccl#2186",
        ordinary=True,
    ),
    Text(
        "nccl.truncated",
        r"[Mm]essage truncated ?: rece(?:ived|iving) \d+ bytes instead of \d+|collective mismatch error, local size",
        "a peer sent a message of another size: its NCCL version, its NCCL settings or its collective differs",
        "NCCL WARN NET/Socket : message truncated : receiving 1048576 bytes instead of 65536",
        "read, not run: NCCL 2.30's source",
    ),
    Text(
        "nccl.plugin",
        r"NCCL WARN NET/OFI ",
        "the network plugin for libfabric (AWS EFA) failed",
        "[7] create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument",
        "aws/aws-ofi-nccl#24",
    ),
    Text(
        "nccl.other_library",
        r"undefined symbol: p?nccl\w+",
        "another NCCL library is loaded instead of the one that torch was built with",
        "ImportError: /opt/env/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister",
        "pytorch/pytorch#119932",
    ),
    Text(
        "nccl.locked_unlimited",
        r"NCCL INFO ulimit -l is unlimited",
        "the limit on locked memory is not the cause of a failed registration",
        "NCCL INFO ulimit -l is unlimited",
        "read, not run: NCCL 2.30's source",
        ordinary=True,
    ),
    Text(
        "nccl.closed",
        r"NCCL WARN .*(?:[Cc]all to (?:recv|send|recvmsg|read|write)\b.* failed|[Cc]onnection closed by (?:remote )?"
        r"peer)|socketProgress\w*: [Cc]onnection closed",
        "the connection to a peer ended: its rank exited, or the network failed",
        "misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer node2<43211>",
        "read, not run: NCCL 2.30's source",
        victim=True,
    ),
    Text(
        "nccl.peer_access",
        r"peer access is not supported between these two devices|peer mapping resources exhausted"
        r"|Could not enable P2P between",
        "a GPU cannot access the memory of another GPU of the node",
        "NCCL WARN Cuda failure 'peer access is not supported between these two devices'",
        "read, not run: CUDA's error descriptions",
    ),
    Text(
        "nccl.invalid_usage",
        r"ncclInvalidUsage|, invalid usage\b",
        "NCCL was called in an invalid way, most often by two ranks with the same GPU",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, invalid usage, NCCL version"
        " 2.18.1",
        "read, not run: torch 2.x",
    ),
)
