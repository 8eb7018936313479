"""Data on GPUs and releases for programs without a YAML parser.

Written by script/known.py from roles/gpu_stack/files/versions.yml, which names the sources.
"""

from __future__ import annotations

# The oldest driver for each major version of CUDA.
CUDA_FLOORS = {
    "11": "450.80.02",
    "12": "525.60.13",
    "13": "580.65.06",
}
# Every release of PyTorch since 1.11.
TORCH_RELEASES = (
    "1.11.0",
    "1.12.0",
    "1.12.1",
    "1.13.0",
    "1.13.1",
    "2.0.0",
    "2.0.1",
    "2.1.0",
    "2.1.1",
    "2.1.2",
    "2.2.0",
    "2.2.1",
    "2.2.2",
    "2.3.0",
    "2.3.1",
    "2.4.0",
    "2.4.1",
    "2.5.0",
    "2.5.1",
    "2.6.0",
    "2.7.0",
    "2.7.1",
    "2.8.0",
    "2.9.0",
    "2.9.1",
    "2.10.0",
    "2.11.0",
    "2.12.0",
    "2.12.1",
    "2.13.0",
    "2.14.0",
    "2.14.1",
    "2.15.0",
)
# Boards of GPUs: names, NVLinks, GB/s of one NVLink, whether a bad page is retired at once.
BOARDS: tuple[tuple[tuple[str, ...], int | None, float, bool], ...] = (
    (("V100-SXM2", "V100-SXM3"), None, 25.781, False),
    (("A100-SXM",), 12, 25.0, True),
    (("A100-PCIE", "A100 80GB PCIe"), None, 25.0, True),
    (("A800-SXM",), 8, 25.0, True),
    (("A800 80GB PCIe",), None, 25.0, True),
    (("H100 80GB HBM3", "H100 64GB HBM2"), 18, 26.562, True),
    (("H100 PCIe", "H100 NVL"), None, 26.562, True),
    (("H200",), 18, 26.562, True),
    (("H200 NVL",), None, 26.562, True),
    (("H800",), 8, 26.562, True),
    (("H800 PCIe",), None, 26.562, True),
    (("H20",), 18, 26.562, True),
    (("B200",), 18, 53.125, True),
    (("B300 SXM",), 18, 53.125, True),
    (("GB200",), 18, 53.125, True),
    (("GB300",), 18, 53.125, True),
)
