"""Names that the registry of a release does not hold: whose they may be, and which one may be meant."""

from __future__ import annotations

from fi_doctor.model import Missing
from fi_doctor.model.nearness import CLOSE, nearest
from fi_doctor.model.registry import Registry

_CLOSE_VARIABLE = 0.92
# In some releases they are arguments of the engine, in others of the HTTP server, which the registry does not hold.
_OF_THE_FRONT = {"--log-config-file", "--log-level", "--logits-processor-pattern", "--task"}
_SHORTENED = {"--optimization-level"}  # written -O, which is an older release's --compilation-config
_OF_EVERY_COMMAND = {"--config", "--help", "--version"}
# Of vLLM's HTTP server: all that vllm/entrypoints/*/cli_args.py of 0.10.2, 0.14.1, 0.17.1, 0.20.2, 0.22.1, 0.25.1,
# 0.28.0, 0.30.0 and 0.33.0 adds beside the engine's. Only names: which release has which was not looked up.
_NAMES = (
    "allow-credentials allowed-headers allowed-methods allowed-origins anthropic-disabled-thinking-effort "
    "api-key api-server-count chat-template chat-template-content-format cohere-format "
    "cohere-is-reasoning-model data-parallel-supervisor-port default-chat-template-kwargs "
    "disable-access-log-for-endpoints disable-fastapi-docs disable-frontend-multiprocessing "
    "disable-uvicorn-access-log dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s "
    "dp-supervisor-probe-timeout-s enable-auto-tool-choice enable-flash-late-interaction "
    "enable-force-include-usage enable-log-deltas enable-log-outputs enable-offline-docs "
    "enable-per-request-metrics enable-prompt-tokens-details enable-request-id-headers enable-scale-out "
    "enable-server-load-tracking enable-ssl-refresh enable-tokenizer-info-endpoint "
    "exclude-tools-when-tool-choice-none fingerprint-mode fingerprint-value grpc grpc-port "
    "h11-max-header-count h11-max-incomplete-event-size headless host log-error-stack lora-modules max-log-len "
    "middleware port reasoning-effort-map response-role return-tokens-as-token-ids root-path "
    "sse-keep-alive-interval ssl-ca-certs ssl-cert-reqs ssl-certfile ssl-ciphers ssl-keyfile tokens-only "
    "tool-call-parser tool-parser-plugin tool-server tool-strict-level trust-request-chat-template "
    "trust-request-mm-kwargs uds use-gpu-for-pooling-score uvicorn-log-level"
)
HTTP_SERVER = frozenset(f"--{name}" for name in _NAMES.split())


def is_passed_over(name: str, registry: Registry) -> bool:
    """Whether it may be a flag that the registry does not hold, or argparse takes it for the beginning of another."""
    flags = (one for one in registry.settings.values() if one.kind == "flag")
    known = (*HTTP_SERVER, *(word for one in flags for word in (one.name, *one.negations)))
    is_other = name in _OF_THE_FRONT | _SHORTENED | _OF_EVERY_COMMAND
    return is_other or any(word.startswith((name, name.replace("--no-", "--", 1))) for word in known)


def asked(name: str, registry: Registry | Missing) -> tuple[str, ...]:
    """A line that asks for the setting that differs from it by a letter or two; none where none does."""
    if isinstance(registry, Missing):
        return ()
    kind, closeness = ("flag", CLOSE) if name.startswith("-") else ("env", _CLOSE_VARIABLE)
    known = [word for one in registry.settings.values() if one.kind == kind for word in (one.name, *one.negations)]
    word = nearest(name, known, closeness)
    return (f"Is {word} meant?",) if word else ()
