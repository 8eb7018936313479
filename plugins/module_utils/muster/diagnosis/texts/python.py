"""Messages of Python about missing files, modules and variables, and of torchrun about signals."""

from __future__ import annotations

from ..evidence import Text

RUN = "Python 3.11, run here"

TEXTS = (
    Text(
        "python.file_missing",
        r"(?:FileNotFoundError: (?:\[Errno 2\] [^:']{1,80}(?:: |(?='/))|[^'/]{1,80}(?='?/))"
        r"|Repo id must be in the form .{0,60}: (?='/))'?(?P<path>(?<=')[^']+|/[^\s']+)",
        "a file that the program opens is missing",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.csv'",
        RUN,
    ),
    Text(
        "python.file_corrupt",
        r"PytorchStreamReader failed|BadZipFile: |EOFError: Ran out of input|Error while deserializing header"
        r"|ArrowInvalid: (?:Not an Arrow file|Parquet)|UnpicklingError: (?:pickle data was truncated|invalid load key)",
        "a file is incomplete or corrupt",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "torch, Python, safetensors, pyarrow: their sources, read",
    ),
    Text(
        "python.script_missing",
        r"can't open file '(?P<path>[^']+)': \[Errno 2\]",
        "the script is missing, or its relative path starts at a different folder",
        "/opt/muster/pytorch/current/bin/python: can't open file '/srv/train.py': [Errno 2] No such file or directory",
        RUN,
    ),
    Text(
        "python.permission",
        r"PermissionError: \[Errno 13?\] [^:]+(?:: '(?P<path>[^']+)')?"
        r"|\b(?:ba)?sh: (?:line \d+: )?\S+: Permission denied$",
        "the launch user is not permitted to read or write this file",
        "PermissionError: [Errno 13] Permission denied: '/data/train.csv'",
        RUN,
    ),
    Text(
        "python.variable_missing",
        r"(?:^KeyError: '|environment variable )(?P<name>[A-Z][A-Z0-9_]+)(?:'$| expected, but not set)",
        "a key in capital letters is missing, usually an environment variable",
        "KeyError: 'DATA_ROOT'",
        RUN,
    ),
    Text(
        "python.module_missing",
        r"(?:ModuleNotFoundError|ImportError): No module named '(?P<name>[\w.]+)'",
        "a package is missing from the environment of the ranks",
        "ModuleNotFoundError: No module named 'lightning'",
        RUN,
    ),
    Text(
        "python.package_wanted",
        r"(?:Error|Exception): (?:.{0,80}(?:[Pp]lease|pip) install [`'\"]?(?!(?:the|an?|it|from)\b)"
        r"|(?=[\w.-]+ (?:(?:was |is )?not (?:found|installed)\b|(?:is )?required (?:to|for)\b)))"
        r"(?P<name>[A-Za-z][\w.-]*)",
        "a program asks for a package that is not installed",
        "ImportError: Apex was not found. Please see the README for installation instructions",
        "NVIDIA-NeMo/Speech#8814, NVIDIA/apex#1258",
    ),
    Text(
        "python.library_missing",
        r"(?P<name>(?<![\w.+-])lib(?!nccl-)[\w.+-]{1,99}(?=: cannot open shared object file: No such file or directory)"
        r"|(?<=version `)(?:GLIBC|GLIBCXX|CXXABI)_[\d.]{1,12}(?=' not found))",
        "a library of the system or of another package is missing",
        "OSError: libnccl.so.9: cannot open shared object file: No such file or directory",
        RUN,
    ),
    Text(
        "python.attribute_missing",
        r"AttributeError: module '(?P<name>[\w.]+)' has no attribute|ImportError: cannot import name '\w+' from"
        r"|TypeError: .*got an unexpected keyword argument|undefined symbol: (?!p?nccl)"
        r"|AttributeError: '(?!NoneType)\w+' object has no attribute|VersionConflict|PackageNotFoundError"
        r"|(?:Error|Exception): .*(?:\brequires? .{0,40}[<>=]=|\b(?:version|release)\b.{0,60}"
        r"(?:required|incompatible|too old))",
        "the code does not match the installed version of a package, or of its own modules",
        "AttributeError: module 'torch' has no attribute 'zeroes'",
        "torch 2.13, run here",
    ),
    Text(
        "python.syntax",
        r"^SyntaxError: |unsupported pickle protocol: \d+",
        "this Python version cannot read the file, or the file is truncated",
        "ValueError: unsupported pickle protocol: 5",
        RUN,
    ),
    Text(
        "python.certificate_time",
        r"certificate verify failed: certificate (?:is not yet valid|has expired)|Clock skew detected",
        "the time of a certificate or file does not match the clock of the node",
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not"
        " yet valid (_ssl.c:1006)",
        "Python 3.11's ssl; GNU make's manual",
    ),
    Text(
        "python.launcher_signalled",
        r"SignalException: Process (?P<pid>\d+) got signal: (?P<number>\d+)"
        r"|Received (?:Signals\.)?(?P<name>SIG[A-Z]+|\d+) death signal, shutting down workers",
        "torchrun received a stop signal from another process, or because a login session ended",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 15",
        "torch 2.13, run here",
        victim=True,
    ),
    Text(
        "python.usage",
        r": error: (?:unrecognized arguments|the following arguments|(?:ambiguous|one of the) |argument \S+: )"
        r"|(?:[Uu]nsupported|[Ii]nvalid) \w{0,20}(?:nproc|nnodes|num_(?:processes|machines|nodes|gpus))\w* value"
        r"|No such option: |Missing (?:option|argument) '|Could not override '|is not in struct$|invalid option -- "
        r"|(?:sbatch|salloc|srun): error: (?!.*(?:[Tt]imed out|[Cc]on(?:tact|nect))).*(?:submission failed"
        r"|[Uu]nable to (?:allocate|create step)|[Ii]nvalid)|not used by the HfArgumentParser"
        r"|You set `[\w=-]+` in (?:Lightning|your SLURM bash script)"
        r"|unrecognized option '--|There are not enough slots available|mpirun has detected an attempt to run as root"
        r"|No slot '?\w+'? specified on host|Hostfile (?:is empty|contains a bad)",
        "a program was called with unknown options, or without required options",
        "torchrun: error: unrecognized arguments: --nodes=2",
        "Python 3.11's argparse",
    ),
    Text(
        "python.download",
        r"HTTPS?ConnectionPool\(host='(?P<name>[\w.-]+)'(?!.*ProxyError)|LocalEntryNotFoundError"
        r"|[Cc]ouldn't connect to 'https?://[\w.-]+|GatedRepoError|RepositoryNotFoundError"
        r"|\b4\d\d Client Error|\b5\d\d Server Error|HTTP Error [45]\d\d|not a valid model identifier"
        r"|does not appear to have a file named|cannot find the requested files in the cached path",
        "a file could not be downloaded: the server cannot be reached from this node, or rejects the request",
        "ConnectionError: HTTPSConnectionPool(host='models.example', port=443): Max retries exceeded with url: /a",
        "urllib3, huggingface_hub; read, not run",
    ),
    Text(
        "python.built_without",
        r"(?:Error|Exception): .*(?:built without|not (?:compiled|built) with|(?:doesn't|does not) have) (?!CUDA )"
        r"(?P<name>[A-Za-z][\w-]*) (?:support|built[ -]?in|enabled)",
        "a package was built without a component that the program uses",
        "RuntimeError: use_libuv was requested but PyTorch was built without libuv support",
        "hiyouga/LlamaFactory#7806, open-mmlab/mmdetection#8307",
    ),
)
