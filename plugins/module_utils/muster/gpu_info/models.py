"""What a healthy GPU of each model has, as data.

A model that is not here is judged by what it says of itself and by its neighbours; nothing is expected of it.
Names are those that nvidia-smi prints, without "NVIDIA " and "Tesla ".
"""

from __future__ import annotations

from dataclasses import dataclass

# What `nvidia-smi nvlink -s` prints for a link: the raw rate of one direction, of which 94 % carry data. Rates and
# counts: NVIDIA's data sheets (50, 50 and 100 GB/s in both directions, times the links, is the rate that they name),
# and what others check for: leptonai/gpud, Azure/azurehpc-health-checks, imbue-ai/cluster-health.
NVLINK2, NVLINK3, NVLINK4, NVLINK5 = 25.781, 25.0, 26.562, 53.125


@dataclass(frozen=True)
class Model:
    """names: what its name may begin with. links: active NVLinks; None where the board decides. rate: of one, in GB/s.

    pcie: generation of its link. ecc: whether it leaves the factory with ECC on. offlines: whether the driver takes a
    page with an uncorrectable error out of use at once, and not only after a reset (NVIDIA GPU Memory Error
    Management, "Supported GPUs": GA100 and GH100, and GB10x as far as listed).
    """

    names: tuple[str, ...]
    links: int | None
    rate: float
    pcie: int
    ecc: bool = True
    offlines: bool = True


MODELS = (
    # Volta: Tesla V100 data sheet, 300 GB/s. Its links go straight to other GPUs, which a cloud need not have lent.
    Model(("V100-SXM2", "V100-SXM3"), None, NVLINK2, 3, offlines=False),
    # Ampere: A100 data sheet, 600 GB/s; the A800 has 400 GB/s.
    Model(("A100-SXM",), 12, NVLINK3, 4),
    Model(("A800-SXM",), 8, NVLINK3, 4),
    Model(("A100-PCIE", "A100 80GB PCIe", "A800 80GB PCIe"), None, NVLINK3, 4),
    # Hopper: H100, H200 and H20 data sheets, 900 GB/s; the H800 has 400 GB/s.
    Model(("H100 80GB HBM3", "H100 64GB HBM2", "H200", "H20"), 18, NVLINK4, 5),
    Model(("H800",), 8, NVLINK4, 5),
    Model(("H100 PCIe", "H100 NVL", "H800 PCIe", "H200 NVL"), None, NVLINK4, 5),
    # Blackwell: HGX B200 and B300 data sheets, 1.8 TB/s.
    Model(("B200", "B300 SXM", "GB200", "GB300"), 18, NVLINK5, 5),
)


def model_of(name: str | None) -> Model | None:
    """Return the model with the longest name that this one begins with: H200 NVL is no H200."""
    plain = (name or "").removeprefix("NVIDIA ").removeprefix("Tesla ")
    fits = [(len(begin), model) for model in MODELS for begin in model.names if _begins(plain, begin)]
    return max(fits, key=lambda fit: fit[0])[1] if fits else None


def _begins(name: str, begin: str) -> bool:
    """Whether the name begins so, at a whole word: H20 is no H200, and B300 SXM is one with B300 SXM6 AC."""
    rest = name[len(begin) :]
    return name.startswith(begin) and not (begin[-1].isdigit() and rest[:1].isdigit())
