"""A small vLLM beside a small FlashInfer, and readers that tell when they have to read."""

from fi_doctor.facts import calls, vllm

CALLER = "from flashinfer.norm import rmsnorm\nrmsnorm(1, 2)\n"
CALLEE = "def rmsnorm(input, weight): ...\n"
FILES = {
    "vllm/__init__.py": "",
    "vllm/envs.py": 'environment_variables = {"VLLM_A": lambda: 1}\n',
    "vllm/engine/arg_utils.py": 'parser.add_argument("--moe-backend")\n',
    "vllm/config/kernel.py": "class KernelConfig:\n    moe_backend: str = ''\n",
    "vllm/layer.py": CALLER,
    "flashinfer/__init__.py": "",
    "flashinfer/norm.py": CALLEE,
}


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def watch(monkeypatch):
    """The names of the readers that had to read, as they do."""
    done = []
    for module, name in ((calls, "read_calls"), (vllm, "read_vllm")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda survey, real=real, name=name: done.append(name) or real(survey))
    return done
