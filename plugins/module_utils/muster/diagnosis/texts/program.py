"""Messages of torch and Gloo about ranks that do not match each other, and about checkpoints that do not match the
model."""

from __future__ import annotations

from ..evidence import Text

RUN = "torch 2.13 with Gloo, run here"
MISMATCH = (
    r"Detected mismatch between collectives on ranks\. Rank (?P<rank>\d+) .*but Rank (?P<peer>\d+) .*"
    r"Collectives differ in the following aspects:"
)

TEXTS = (
    Text(
        "program.unused_parameters",
        r"Expected to have finished reduction in the prior iteration before starting a new one",
        "DDP waits for the gradient of a parameter that this step did not use",
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error"
        " indicates that your module has parameters that were not used in producing loss.",
        RUN,
    ),
    Text(
        "program.ready_twice",
        r"Expected to mark a variable ready only once",
        "a parameter received its gradient twice in one step: it is shared, or checkpointed and used twice",
        "RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following"
        " reasons: 1) Use of a module parameter outside the `forward` function.",
        "torch 2.13, reducer.cpp",
    ),
    Text(
        "program.parameter_differs",
        r"\[(?P<rank>\d+)\]: params\[(?P<index>\d+)\] in this process with (?:sizes|strides) (?P<sizes>\[[\d, ]*\])"
        r" appears not to match",
        "DDP found that the models of the ranks have parameters of different shapes",
        "RuntimeError: [1]: params[0] in this process with sizes [4, 10] appears not to match sizes of the same"
        " param in"
        " process 0.",
        RUN,
    ),
    Text(
        "program.parameter_count",
        r"DDP expects same model across all ranks, but Rank (?P<rank>\d+) has (?P<count>\d+) params, while rank"
        r" (?P<peer>\d+) has inconsistent (?P<other>\d+) params",
        "DDP found that the models of the ranks have different numbers of parameters",
        "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 2 params, while rank 1 has"
        " inconsistent 4"
        " params.",
        RUN,
    ),
    Text(
        "program.operation_differs",
        rf"{MISMATCH}.*Op type: (?P<what>.{{1,200}})|OpType=(?P<own>\w+),.*but Rank \d+ is running collective:"
        r" CollectiveFingerPrint\((?:SequenceNumber=\d+, ?)?OpType=(?!(?P=own)\b)",
        "torch found that the ranks run different collectives (TORCH_DISTRIBUTED_DEBUG=DETAIL)",
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective:"
        " CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[10]), but Rank 1 is running"
        " collective: CollectiveFingerPrint(SequenceNumber=0, OpType=BROADCAST, TensorShape=[10]).Collectives differ"
        " in the following aspects:   Op type: ALLREDUCEvs BROADCAST",
        RUN,
    ),
    Text(
        "program.shapes_differ",
        rf"{MISMATCH}.*Tensor shapes: (?P<what>.{{1,200}})",
        "torch found that the ranks run a collective with different sizes (TORCH_DISTRIBUTED_DEBUG=DETAIL)",
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective:"
        " CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[10]), but Rank 1 is running"
        " collective: CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[12]).Collectives differ"
        " in the following aspects:   Tensor shapes: 10vs 12",
        "torch 2.13, torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp",
    ),
    Text(
        "program.types_differ",
        rf"{MISMATCH}.*dtypes: (?P<what>.{{1,200}})",
        "torch found that the ranks run a collective with different dtypes (TORCH_DISTRIBUTED_DEBUG=DETAIL)",
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective:"
        " CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorDtypes=Float), but Rank 1 is running"
        " collective: CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorDtypes=Half).Collectives differ"
        " in the following aspects:   Tensor dtypes: Floatvs Half",
        "torch 2.13, torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp",
    ),
    Text(
        "program.inconsistent",
        r"Rank (?P<rank>\d+) is running inconsistent collective: CollectiveFingerPrint\((?:SequenceNumber=\d+, )?"
        r"OpType=(?P<operation>\w+)(?:, TensorShape=(?P<sizes>\[[\d, ]*\]))?(?:, TensorDtypes=(?P<types>\w+))?",
        "torch found that this rank runs another collective than the other ranks; compare the lines of two ranks",
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running inconsistent collective:"
        " CollectiveFingerPrint(OpType=ALLGATHER, TensorShape=[23, 256], TensorDtypes=Float,",
        "torch 1.9 to 1.12; xljh0520/JOTR#4",
    ),
    Text(
        "program.sizes_differ",
        r"op\.preamble\.length <= op\.nbytes\. (?P<received>\d+) vs (?P<expected>\d+)",
        "Gloo received more data than this rank expected: the ranks run different collectives or sizes",
        "  what():  [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 2000 vs"
        " 12. Received"
        " data size doesn't match expected size. Is there a distributed collective mismatch in your code?",
        RUN,
    ),
    Text(
        "program.checkpoint_prefix",
        r"(?:Missing|Unexpected) key\(s\) in state_dict: \"module\.",
        "only the names in the checkpoint have the prefix `module.`, or only those in the model",
        '	Unexpected key(s) in state_dict: "module.weight", "module.bias". ',
        RUN,
    ),
    Text(
        "program.checkpoint_keys",
        r"(?:Missing|Unexpected) key\(s\) in state_dict: \"(?!module\.)(?P<name>[^\"]+)\""
        r"|Missing key in checkpoint state_dict: (?!\S{0,200}rank|\{)",
        "the checkpoint belongs to another model or model version",
        '	Missing key(s) in state_dict: "weight", "bias". ',
        RUN,
    ),
    Text(
        "program.checkpoint_ranks",
        r"Missing key in checkpoint state_dict: \S{0,200}rank|checkpoint being loaded used a DP world size of",
        "the checkpoint was saved with another number of ranks",
        "RuntimeError: Missing key in checkpoint state_dict: dataloader.dp_rank_2.",
        "pytorch/torchtitan#816; DeepSpeed: runtime/zero, read",
    ),
    Text(
        "program.layout",
        r"computed world size|Invalid parallel dims|train_batch_size is not equal to micro_batch_per_gpu"
        r"|Mesh should not be bigger than"
        r"|(?:world.?size|batch.?size|parallel.{0,8}size|heads|layers|n_gpus|dimension)\b.{0,80}"
        r" (?:is not|must be|should be) (?:evenly )?(?:divisible|a multiple|equal) (?:by|of|to)",
        "the batch sizes or the sizes of the parallel groups do not fit each other or the number of ranks",
        "RuntimeError: world_size (1) is not divisible by 2",
        "Megatron-LM, DeepSpeed, torchtitan, vLLM, verl: their sources, read",
    ),
    Text(
        "program.same_path",
        r"FileExistsError: \[Errno 17\] [^:]+: '(?P<name>[^']+)'",
        "a path that the program creates exists, usually because several ranks create it at the same time",
        "FileExistsError: [Errno 17] File exists: '/tmp/torch_extensions/torch_ext'",
        "pytorch/pytorch#46334",
    ),
    Text(
        "program.checkpoint_sizes",
        r"size mismatch for (?P<name>[\w.]+): copying a param with shape (?P<saved>.+?) from checkpoint",
        "the checkpoint belongs to a model with different sizes",
        "size mismatch for weight: copying a param with shape torch.Size([2, 3]) from checkpoint, the shape in current"
        " model is torch.Size([2, 2]).",
        RUN,
    ),
    Text(
        "program.no_group",
        r"Default process group has not been initialized",
        "a collective was called before init_process_group or after destroy_process_group",
        "ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
        "torch 2.13, torch/distributed/distributed_c10d.py",
    ),
    Text(
        "program.thread_left",
        r"^terminate called without an active exception",
        "a native thread was still running when its owner was destroyed, and the C++ runtime aborted the process",
        "terminate called without an active exception",
        "torch 2.13 with Gloo, run here: 5 of 34 short scripts whose DDP model still existed when Python exited",
    ),
)
