"""GPUs are known by the names that nvidia-smi prints, and by those that people write."""

from __future__ import annotations

import pytest

from fi_doctor.explaining.gpus import sm_of

NAMES = {
    121: ("NVIDIA GB10", "DGX Spark"),
    120: (
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "NVIDIA RTX PRO 4000 Blackwell SFF Edition",
        "NVIDIA RTX 6000 Pro Blackwell",
        "NVIDIA GeForce RTX 5090",
        "NVIDIA GeForce RTX 5090 D",
        "RTX 5090D",
        "NVIDIA GeForce RTX 5070 Ti Laptop GPU",
        "5060 Ti",
    ),
    110: ("NVIDIA Thor", "Jetson AGX Thor", "Jetson T5000"),
    103: ("NVIDIA B300 SXM6 AC", "NVIDIA GB300"),
    100: ("NVIDIA B200", "NVIDIA GB200", "HGX_B200"),
    90: (
        "NVIDIA H100 80GB HBM3",
        "NVIDIA GH200 480GB",
        "NVIDIA H200 NVL",
        "NVIDIA H20",
        "NVIDIA H20-3e",
        "NVIDIA H800",
    ),
    89: (
        "NVIDIA L4",
        "NVIDIA L40S",
        "NVIDIA L20",
        "NVIDIA RTX 6000 Ada Generation",
        "NVIDIA RTX 5000 Ada Generation",
        "NVIDIA RTX 4000 SFF Ada Generation",
        "NVIDIA GeForce RTX 4090",
        "RTX4090",
    ),
    87: ("Orin (nvgpu)", "NVIDIA JETSON AGX ORIN"),
    86: ("NVIDIA A10", "NVIDIA A10G", "NVIDIA A40", "NVIDIA RTX A6000", "NVIDIA GeForce RTX 3090", "NVIDIA RTX A1000"),
    80: ("NVIDIA A100-SXM4-80GB", "NVIDIA A800-SXM4-80GB", "NVIDIA A30"),
    75: ("Tesla T4", "Quadro RTX 5000", "Quadro RTX 4000", "NVIDIA GeForce RTX 2080 Ti", "2080ti", "NVIDIA T1000 8GB"),
    70: ("Tesla V100-SXM2-32GB", "NVIDIA TITAN V", "Quadro GV100"),
    61: ("Tesla P40", "NVIDIA GeForce GTX 1080 Ti"),
    60: ("Tesla P100-PCIE-16GB",),
    None: ("AMD Instinct MI300X", "NVIDIA L20Y", "NVIDIA Rubin", "NVIDIA Graphics Device"),
}


@pytest.mark.parametrize(("sm", "name"), [(sm, name) for sm, names in NAMES.items() for name in names])
def test_a_gpu_is_known_by_its_name(sm, name):
    assert sm_of(name) == sm
