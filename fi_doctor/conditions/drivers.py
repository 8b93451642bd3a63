"""The newest CUDA that a driver runs.

Source: table 3 of the release notes of the toolkits,
https://docs.nvidia.com/cuda/archive/13.3.0/cuda-toolkit-release-notes/index.html ("CUDA 13.2 GA | >=595.45.04").
565 and 615 are not in that table: of them nvidia-smi says 12.7 and 13.4, as it does of branches that are not here.
"""

from __future__ import annotations

# Branch of the driver on Linux -> the newest CUDA.
BRANCHES = {
    "450": "11.0",
    "455": "11.1",
    "460": "11.2",
    "465": "11.3",
    "470": "11.4",
    "495": "11.5",
    "510": "11.6",
    "515": "11.7",
    "520": "11.8",
    "525": "12.0",
    "530": "12.1",
    "535": "12.2",
    "545": "12.3",
    "550": "12.4",
    "555": "12.5",
    "560": "12.6",
    "565": "12.7",
    "570": "12.8",
    "575": "12.9",
    "580": "13.0",
    "590": "13.1",
    "595": "13.2",
    "610": "13.3",
    "615": "13.4",
}
