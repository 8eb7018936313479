"""Messages of the CUDA runtime and torch's allocator.

Some were recorded on a GPU (logs: tests/unit/diagnosis/recorded). The others are from documentation: CUDA's error
descriptions (cudaGetErrorString), which torch prints after "CUDA error: ", and quotes in public issues.
"""

from __future__ import annotations

from ..evidence import Text

RUN = "observed on an H200: torch 2.11, driver 580"
READ = "read, not run: CUDA's error descriptions"


def known_as(number: str, *names: str) -> str:
    """Return a pattern for a CUDA error that a program prints by its number or name instead of its description."""
    return rf"|(?:Cuda failure|CUDA (?:driver )?error:?|cudaError) \(?(?:{number})\b|\b(?:{'|'.join(names)})\b"


TEXTS = (
    Text(
        "cuda.out_of_memory",
        r"(?:CUDA|HIP|XPU) out of memory\b(?:\. Tried to allocate (?P<size>[\d.]+ [KMGT]iB))?"
        r"|RESOURCE_EXHAUSTED: Out of memory"
        r"|No available memory for the cache|larger than the (?:available KV cache|maximum number of tokens)",
        "the GPU memory is full, because of this process or other processes",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 16384.00 GiB. GPU 0 has a total capacity of"
        " 139.80 GiB of which 139.29 GiB is free. Including non-PyTorch memory, this process has 518.00 MiB memory in"
        " use.",
        f"{RUN}; with another process: qingze-bai/VSmTrans#3 (2025); older forms: pytorch/pytorch#16417",
    ),
    Text(
        "cuda.not_enough_memory",
        r"CUDA error: out of memory|CU(?:BLAS|DNN)_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)"
        r"|Cuda failure (?:\d+ )?'?out of memory|Free memory on device .{0,80} is less than desired GPU memory"
        + known_as("2", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"),
        "the GPU memory was full when a library requested memory without torch's allocator",
        "torch.AcceleratorError: CUDA error: out of memory",
        RUN,
    ),
    Text(
        "cuda.invalid_device",
        r"invalid device ordinal|device < num_gpus|[Ii]nvalid device id|device[ _](?:id|index)\b.{0,30} out of range"
        + known_as("101", "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE"),
        "a rank uses a GPU index that does not exist: the node has too many ranks, or GPUs are hidden",
        "torch.AcceleratorError: CUDA error: invalid device ordinal",
        RUN,
    ),
    Text(
        "cuda.no_gpu",
        r"No CUDA GPUs are available|no CUDA-capable device is detected|Found no NVIDIA driver on your system"
        r"|no GPUs found!|CUDA driver initialization failed|CUDA unknown error - this may be"
        r"|couldn't communicate with the NVIDIA driver|Failed to initialize NVML: (?!Driver/library)"
        r"|Failed to infer device type|Error: .{0,80}CUDA is not available"
        + known_as("100", "cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE"),
        "the process sees no GPU: no GPU is present, the driver is not loaded, or the GPUs are hidden",
        "RuntimeError: No CUDA GPUs are available",
        f"{RUN}; other forms from torch/cuda/__init__.py and c10/cuda, read",
    ),
    Text(
        "cuda.no_code",
        r"no kernel image is available for execution on the device|is not compatible with the current PyTorch install"
        r"|device kernel image is invalid|ptxas fatal\s*: Value 'sm_\w+' is not defined|_STATUS_ARCH_MISMATCH"
        + known_as("209", "cudaErrorNoKernelImageForDevice", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
        "torch, or an extension, was not built for this GPU model",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "observed on an H100: torch 2.11, driver 580, code for sm_75; other form: torch 2.13, torch/cuda/__init__.py",
    ),
    Text(
        "cuda.driver_old",
        r"CUDA driver version is insufficient for CUDA runtime version|NVIDIA driver on your system is too old"
        r"|PTX was compiled with an unsupported toolchain"
        + known_as("35|222", "cudaErrorInsufficientDriver", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
        "the driver is too old for this torch build",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU"
        " driver",
        "read, not run: torch 2.13, torch/cuda/__init__.py",
    ),
    Text(
        "cuda.not_ready",
        r"system not yet initialized" + known_as("802", "cudaErrorSystemNotReady", "CUDA_ERROR_SYSTEM_NOT_READY"),
        "the fabric manager on a machine with NVSwitches is not running or does not match the driver version",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        "read, not run: pytorch/pytorch#35710, microsoft/lisa#2823",
    ),
    Text(
        "cuda.busy",
        r"all CUDA-capable devices are busy or unavailable|CUDA-capable device\(s\) is/are busy or unavailable"
        + known_as("46", "cudaErrorDevicesUnavailable"),
        "another process uses the GPU exclusively (compute mode), or the GPU does not respond",
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        READ,
    ),
    Text(
        "cuda.ecc",
        r"uncorrectable ECC error encountered"
        + known_as("214", "cudaErrorECCUncorrectable", "CUDA_ERROR_ECC_UNCORRECTABLE"),
        "the GPU memory has an uncorrectable error",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        READ,
    ),
    Text(
        "cuda.nvlink",
        r"uncorrectable NVLink error detected",
        "an NVLink between GPUs has an uncorrectable error",
        "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        READ,
    ),
    Text(
        "cuda.failed",
        r"CUDA error: (?:unspecified launch failure|unknown error|an illegal instruction was encountered|the launch"
        r" timed out|hardware stack error)|CU(?:DNN|BLAS|SPARSE|SOLVER)_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)"
        + known_as("702|719|999", "cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED", "cudaErrorUnknown"),
        "a CUDA kernel failed for an unknown reason: the GPU, the program or the driver is faulty",
        "RuntimeError: CUDA error: unspecified launch failure",
        READ,
    ),
    Text(
        "cuda.illegal_access",
        r"an illegal memory access was encountered|misaligned address"
        + known_as("700|716", "cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        "a CUDA kernel accessed invalid memory, usually because of a bug in the program or an extension",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        RUN,
    ),
    Text(
        "cuda.assert",
        r"device-side assert triggered" + known_as("710", "cudaErrorAssert", "CUDA_ERROR_ASSERT"),
        "an index is out of range in a CUDA kernel, such as a label beyond the number of classes",
        "torch.AcceleratorError: CUDA error: device-side assert triggered",
        RUN,
    ),
    Text(
        "cuda.forked",
        r"Cannot re-initialize CUDA in forked subprocess",
        "a forked process, usually a data loader worker, used CUDA after its parent had initialized CUDA",
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use"
        " the 'spawn' start method",
        "observed on an H100: torch 2.11",
    ),
    Text(
        "cuda.devices_mixed",
        r"\b(?:be|is|are) on the same device\b",
        "an operation received tensors on different devices, such as the GPU and the CPU",
        "RuntimeError: Expected all tensors to be on the same device, but got mat2 is on cpu, different from other"
        " tensors on cuda:0 (when checking argument in method wrapper_CUDA_mm)",
        "observed on an H100: torch 2.11",
    ),
    Text(
        "cuda.lost",
        r"Unable to determine the device handle for GPU|GPU is lost|GPU has fallen off the bus",
        "the driver can no longer access the GPU",
        "Unable to determine the device handle for GPU 0000:17:00.0: GPU is lost.  Reboot the system to recover"
        " this GPU",
        "read, not run: nvidia-smi's manual",
    ),
    Text(
        "cuda.not_built",
        r"Torch not compiled with CUDA enabled|module 'torch\._C' has no attribute '_cuda_\w+'",
        "the torch of this environment is a CPU build",
        "AssertionError: Torch not compiled with CUDA enabled",
        "torch 2.13, run here",
    ),
    Text(
        "cuda.profiling",
        r"ERR_NVGPUCTRPERM|CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        "the user may not read the performance counters of the GPU, which a profiler needs",
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
        "HazyResearch/ThunderKittens#73, geoffxy/habitat#5",
    ),
    Text(
        "cuda.driver_mismatch",
        r"[Dd]river/library version mismatch|forward compatibility was attempted on non supported HW"
        r"|API mismatch: the client has the version|unsupported display driver / cuda driver combination"
        + known_as("803|804", "cudaErrorSystemDriverMismatch", "cudaErrorCompatNotSupportedOnDevice"),
        "the libraries of the driver and its kernel module have different versions",
        "Failed to initialize NVML: Driver/library version mismatch",
        "nvidia-smi; cudaErrorCompatNotSupportedOnDevice in CUDA's documentation",
    ),
    Text(
        "cuda.too_few",
        r"[Bb]ut your machine only has"
        r"|(?:larger|greater|less than or equal)\b.{0,30} number of (?:available|visible) (?:CUDA )?(?:GPUs|devices)",
        "the launch asks for more GPUs than are visible",
        "MisconfigurationException: You requested gpu: [0, 1] But your machine only has: [0]",
        "Lightning; vLLM",
    ),
)
