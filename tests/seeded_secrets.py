"""Secrets that are seeded wherever one can stand, for tests that look for them in what is printed."""

from __future__ import annotations

import json

TOKEN = "hf_aB3dE5gH7jK9mN1pQ3sT5vW7"
AWS = "wJ4lrXtn9EMi/K7mD3Ng/bPxR5iCy8XamP2eKe1"
PASSWORD = "correct-horse-battery"
KEY = "sk-proj-Zk3Vb9qLx7Tn2Rw8Yc5H"
SEEDS = (TOKEN, AWS, PASSWORD, KEY)
INDEX = f"https://build:{PASSWORD}@pypi.example/simple"
ENVIRON = {
    "HF_TOKEN": TOKEN,
    "AWS_SECRET_ACCESS_KEY": AWS,
    "PIP_EXTRA_INDEX_URL": INDEX,
    "VLLM_API_KEY": KEY,
    "REGISTRY_PASSWORD": PASSWORD,
    "FLASHINFER_CUBINS_REPOSITORY": INDEX,
}
LOG = (
    f"INFO HF_TOKEN={TOKEN} aws_secret_access_key = {AWS} --api-key {KEY}\n"
    f"Looking in indexes: {INDEX}\n"
    f"RuntimeError: Could not find nvcc and default cuda_home=/x?token={TOKEN}&password={PASSWORD} with {KEY}\n"
    f"ValueError: no FlashInfer for https://build:{PASSWORD}@pypi.example/{TOKEN}?key={KEY}\n"
)
OWN_LOG = f"{LOG}what nothing names is known by the variables: {' '.join(SEEDS)}\n"


def leaked(text):
    return [seed for seed in SEEDS if seed in text or json.dumps(seed)[1:-1] in text]
