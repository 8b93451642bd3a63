"""What a line tells of the machine and the server: each reader has the literals of its lines and a pattern."""

from __future__ import annotations

from typing import NamedTuple

_VERSION = r"v?(?P<value>\d+(?:\.\d+)+[\w.+]*)"
# How the names of variables begin that may matter.
VARIABLES = (
    "VLLM_",
    "FLASHINFER_",
    "CUDA_",
    "TORCH_",
    "NCCL_",
    "SGLANG_",
    "SGL_",
    "NVIDIA_",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "MAX_JOBS",
    "TRTLLM_",
    "TRITON_",
)
# distribution -> how logs, lists of packages and people call it
_PACKAGES = {
    "vllm": r"vllm|vLLM|vLLM [Vv]ersion|vLLM API server version|vllm version",
    "sglang": r"sglang|SGLang|SGLang version",
    "flashinfer-python": r"flashinfer[-_]python|flashinfer|FlashInfer|FlashInfer version|flashinfer version",
    "flashinfer-cubin": r"flashinfer[-_]cubin",
    "flashinfer-jit-cache": r"flashinfer[-_]jit[-_]cache",
    "torch": r"torch|PyTorch|PyTorch version|pytorch",
    "nvidia-cutlass-dsl": r"nvidia[-_]cutlass[-_]dsl|cutlass[-_]dsl",
    "apache-tvm-ffi": r"apache[-_]tvm[-_]ffi|tvm[-_]ffi",
    "tensorrt-llm": r"tensorrt[-_]llm|TensorRT-LLM|TensorRT-LLM version",
    "triton": r"triton",
    "nvidia-nccl-cu12": r"nvidia-nccl-cu12",
    "nvidia-nccl-cu13": r"nvidia-nccl-cu13",
}
_SEPARATORS = ("==", ": ", " version", " Version", "   ", "-0.", "-1.", "-2.", " 0.", " (", "=0.", "=2.")


# Words after which a value is advice or a demand, and none that is: such a group that matches tells nothing.
_TO_SET = (
    r"(?:(?P<advice>(?i:with|set|setting|sets|pass|passing|use|using|try|trying|specify|specifying|add|adding|by|via|or"
    r"|variable|want|need|unless|without|example:?|e\.g\.|increase|increasing|decrease|decreasing|lower|lowering|flag|to"
    r"|option|instead of|rather than|recommend|suggest|is|if|when|only)),?:? [\"'`(]?)?"
)
_WANTED = (
    r"(?:(?P<advice>(?i:requires?|requiring|needs?|expects?|(?:up|down)grade to|please install|least)):? [\"'`]?)?"
)
_DEMANDED = (
    r"(?:(?P<advice>(?i:requires?|require|needs?|needed|requiring|expects?|wants|least|minimum|>=|than|install the"
    r"|upgrade to|downgrade to|update to|from|until|since|before|after|supports?|only|GPUs with|devices with)) )?"
)
_OR_MORE = r"(?P<more>\+|,? (?:or|and) (?:higher|newer|above|later|greater|up|more|lower|older|below|earlier)\b)?"


class Reader(NamedTuple):
    """One way in which lines tell something."""

    name: str  # of the fact
    literals: tuple[str, ...]  # one of them stands in each line that is meant
    # RE2 with a group `value`, and `key` where the fact has one; where `advice` or `more` matches, it tells nothing.
    pattern: str
    key: str = ""
    without: str = ""  # RE2: lines that it matches tell nothing of the kind


READERS: tuple[Reader, ...] = (
    *(
        Reader(
            "package",
            tuple(f"{word}{end}" for word in _words for end in _SEPARATORS),
            rf"(?:^|[\s\[('\"/,|]){_WANTED}(?:{_pattern})(?:==|=| *: *| +v?|-| \(|: nvcc ){_VERSION}{_OR_MORE}",
            _name,
        )
        for _name, _pattern in _PACKAGES.items()
        for _words in [tuple(dict.fromkeys(w for w in _pattern.replace("[-_]", "-").replace("[Vv]", "V").split("|")))]
    ),
    Reader("package", ("LLM engine (v",), rf"LLM engine \({_VERSION}\)", "vllm"),
    Reader(
        "package", ("flashinfer version (",), rf"does not match flashinfer version \({_VERSION}\)", "flashinfer-python"
    ),
    Reader("package", ("flashinfer-cubin version (",), rf"flashinfer-cubin version \({_VERSION}\)", "flashinfer-cubin"),
    Reader("package", ("(cubin ",), rf"\(cubin {_VERSION}\)", "flashinfer-cubin"),
    Reader("package", (".cache/flashinfer/",), rf"\.cache/flashinfer/{_VERSION}/", "flashinfer-python"),
    Reader(
        "architectures",
        ("/cached_ops/", "/generated/"),
        r"\.cache/flashinfer/[\d.]+\w*/(?P<value>\d{2,3}[af]?)(?:_\w+)?/(?:cached_ops|generated)/",
    ),
    Reader("architectures", ("compute_",), r"arch=compute_(?P<value>\d{2,3}[af]?)\b"),
    Reader("installed", (": not installed", "Not installed"), r"^ *\S+ *: *(?P<value>[Nn]ot installed)"),
    Reader("torch_cuda", ("torch",), r"torch(?:==|: |-| +)\d[\d.]*\w*\+cu(?P<value>\d{3})\b"),
    Reader("torch_cuda", ("PyTorch version",), r"PyTorch version *: *\S+\+cu(?P<value>\d{3})\b"),
    Reader("torch_cuda", ("CUDA used to build PyTorch",), r"CUDA used to build PyTorch *: *(?P<value>\d+\.\d+)"),
    Reader("torch_cuda", ("torch.version.cuda",), r"torch\.version\.cuda *[:=]? *(?P<value>\d+\.\d+)"),
    Reader("nvcc", ("CUDA toolkit",), r"CUDA toolkit *: *(?:nvcc )?(?P<value>\d+\.\d+[\d.]*)"),
    Reader("nvcc", ("CUDA runtime version",), r"CUDA runtime version *: *(?P<value>\d+\.\d+[\d.]*)"),
    Reader("nvcc", ("Cuda compilation tools",), r"release \d+\.\d+, V(?P<value>\d+\.\d+\.\d+)"),
    Reader("nvcc", ("NVCC: ", "nvcc: ", "nvcc "), r"^ *(?:NVCC|nvcc)(?: version)?:? +V?(?P<value>\d+\.\d+[\d.]*)"),
    Reader("nvcc", ("cuda_1",), r"\bcuda_(?P<value>\d+\.\d+)\.r\d"),
    Reader("nvcc", ("/cuda-1",), r"/cuda-(?P<value>\d+\.\d+)/bin/nvcc\b"),
    Reader("nvcc", ("Current CUDA version: ",), r"Current CUDA version: (?P<value>\d+\.\d+[\d.]*)"),
    Reader("cuda_home", ("CUDA_HOME",), r"\bCUDA_HOME *[:=] *'?\"?(?P<value>[^\s'\",]+)"),
    Reader(
        "driver",
        ("NVIDIA driver", "Nvidia driver version", "Driver Version", "Driver version", "Driver:"),
        r"(?i)\bdriver(?: version)? *: *(?P<value>\d{3}\.[\d.]+\d)",
    ),
    Reader("driver", ("driver ",), r"\bdriver (?P<value>\d{3}\.\d{2,3}(?:\.\d\d)?)\b"),
    Reader("driver_cuda", ("CUDA Version: ",), r"Driver Version: *[\d.]+ +CUDA Version: *(?P<value>\d+\.\d+)"),
    Reader("python", ("Python version: ", "Python: "), r"Python(?: version)?: *(?P<value>\d\.\d+(?:\.\d+)?)"),
    Reader("python", ("/python3.",), r"/python(?P<value>3\.\d+)/"),
    Reader(
        "sm",
        ("compute capability", "Compute capability", "Compute Capability"),
        rf"(?i){_DEMANDED}compute capability *[:=]? *\(?(?P<value>\d{{1,2}}\.\d|\d{{2,3}})[af]?\b\)?{_OR_MORE}",
    ),
    Reader("sm", ("capability",), r"(?i)capability(?:\(\w*\))?[^\d(]{0,20}\((?P<value>\d{1,2}, ?\d)\)"),
    Reader("sm", ("with capability ", "device capability"), r"(?:with|device) capability:? (?P<value>\d{2,3})\b"),
    Reader("sm", ("with CUDA capability sm_",), r"with CUDA capability sm_(?P<value>\d{2,3}) is not compatible"),
    Reader("sm", ("current device sm_", "arch=sm"), r"(?:current device sm_|\barch=sm_?)(?P<value>\d{2,3})"),
    Reader("sm", ("| SM1", "| SM9", "| SM8", "| SM7"), r"\| SM(?P<value>\d{2,3})\b"),
    Reader(
        "gpu",  # of one GPU collect_env says all in a line: "GPU models and configuration : GPU 0: NVIDIA GB10"
        ("GPU: ", "GPU 0", "GPU 1"),
        r"^(?:GPU models and configuration *: *)?(?:GPU|GPU \d+(?: \([^)]*\))?) *: *(?P<value>[^|(\n]{2,80})",
    ),
    Reader("gpu", ("NVIDIA ", "Tesla "), r"^\| +\d+ +(?P<value>(?:NVIDIA|Tesla|Quadro) .{2,40}?) +(?:On|Off|\.\.\.)"),
    Reader("gpu", ("device_name=",), r"device_name=(?P<value>[\w-]{3,60})"),
    Reader("engine", ("/vllm/", "vLLM", "vllm serve"), r"(?:-packages/|^)(?P<value>vllm)(?:/| serve)"),
    Reader("engine", ("/sglang/", "sglang.launch_server"), r"(?P<value>sglang)(?:/srt|\.launch_server)"),
    Reader("engine", ("server_args=", "ServerArgs("), r"(?P<value>server_args=|ServerArgs\()"),
    Reader("engine", ("tensorrt_llm", "TRT-LLM"), r"(?P<value>tensorrt_llm/|TRT-LLM)"),
    *(
        Reader("engine", literals, rf"(?P<value>{pattern})", engine)
        for engine, literals, pattern in (
            (
                "llama.cpp",
                ("llama_model_load", "llama_context", "ggml_cuda", "ggml-cuda", "llama-server", "/llama.cpp/"),
                r"\bllama_(?:model_load|context)|ggml[_-]cuda|\bllama-server\b|/llama\.cpp/",
            ),
            (
                "ollama",
                ("ollama", "OLLAMA_", "source=server.go", "source=runner.go", "source=sched.go", "source=ggml.go"),
                r"\bollama(?: serve|[ _-]runner)|/(?:bin|lib|\.)/?ollama\b|\bOLLAMA_[A-Z]|source=\w+\.go:\d+ msg=",
            ),
            (
                "text-generation-inference",
                ("text_generation_", "text-generation-"),
                r"\btext[_-]generation[_-](?:launcher|server|router)",
            ),
            ("lmdeploy", ("lmdeploy", "[TM]["), r"\blmdeploy(?:/| serve | - )|^\[TM\]\["),
            ("xinference", ("xinference",), r"\bxinference(?:[/.]|-local|-worker|-supervisor)"),
            (
                "tritonserver",
                ("tritonserver", "triton_python_backend", "model_lifecycle.cc", "model_repository_manager.cc"),
                r"\btritonserver\b|\btriton_python_backend|\bmodel_(?:lifecycle|repository_manager)\.cc:\d",
            ),
        )
    ),
    Reader(
        "model", ("with config: model=", "server_args=", "ServerArgs("), r"model(?:_path)?='(?P<value>[^']{1,200})'"
    ),
    Reader(
        "env",
        VARIABLES,
        rf"(?:^|[\s;\"'`(]){_TO_SET}(?P<key>(?:{'|'.join(VARIABLES)})[A-Z0-9_]{{0,80}})"
        r"(?:=|: )[\"']?(?P<value>[^\s\"';,]{1,300})",
    ),
    Reader(
        "argument",
        ("--",),
        rf"(?:^|[\s`('\"]){_TO_SET}--(?P<key>[a-z][a-z0-9-]{{2,60}})[= ]\"?(?P<value>[\w./:+][\w./:+-]{{0,120}})",
        without=r"nvcc|--build-arg|\bninja\b|^\s*(?:File|raise) ",
    ),
    Reader(
        "argument",
        ("non-default args: ", "ServerArgs("),
        # What is followed by a parenthesis is the name of a type: server_args=ServerArgs(...).
        r"'?\b(?P<key>[a-z][a-z0-9_]{2,60})(?:': |=)'?(?P<value>[\w./:+-]{1,120})(?P<more>\()?",
    ),
)
