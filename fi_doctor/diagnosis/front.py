"""Options on the command line of `vllm serve` that it does not have or take, as far as is known. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from fi_doctor.diagnosis import given
from fi_doctor.model import Deployment, Finding, Missing, Severity, Vllm

# What its HTTP server takes beside the engine (entrypoints/: the classes FrontendArgs, and what `serve` and the servers
# add; read in 0.14.1, 0.17.1, 0.20.2, 0.22.1, 0.25.1, 0.28.0, 0.30.0 and 0.33.0). None of it changes a kernel.
_OF_THE_SERVER = """
--allow-credentials --allowed-headers --allowed-methods --allowed-origins --anthropic-disabled-thinking-effort
--api-key --api-server-count --chat-template --chat-template-content-format --cohere-format
--cohere-is-reasoning-model --config --data-parallel-supervisor-port --default-chat-template-kwargs
--disable-access-log-for-endpoints --disable-fastapi-docs --disable-frontend-multiprocessing
--disable-uvicorn-access-log --dp-supervisor-probe-failure-threshold --dp-supervisor-probe-interval-s
--dp-supervisor-probe-timeout-s --enable-auto-tool-choice --enable-flash-late-interaction --enable-force-include-usage
--enable-log-deltas --enable-log-outputs --enable-metrics --enable-offline-docs --enable-per-request-metrics
--enable-prompt-tokens-details --enable-request-id-headers --enable-scale-out --enable-server-load-tracking
--enable-ssl-refresh --enable-tokenizer-info-endpoint --exclude-tools-when-tool-choice-none --fingerprint-mode
--fingerprint-value --grpc --grpc-port --h11-max-header-count --h11-max-incomplete-event-size --headless --help --host
--log-config-file --log-error-stack --lora-modules --max-log-len --middleware --port --reasoning-effort-map
--response-role --return-tokens-as-token-ids --root-path --snapshot-dir --sse-keep-alive-interval --ssl-ca-certs
--ssl-cert-reqs --ssl-certfile --ssl-ciphers --ssl-keyfile --tokens-only --tool-call-parser --tool-parser-plugin
--tool-server --tool-strict-level --trust-request-chat-template --trust-request-mm-kwargs --uds
--use-gpu-for-pooling-score --uvicorn-log-level -asc -h
"""


def unknown(names: Iterable[str], vllm: Vllm | Missing) -> tuple[str, ...]:
    """Those of the options that neither the installed engine has nor the HTTP server of a release that was read.

    vLLM does not start with what it does not know, but takes a beginning that fits one option alone. Nothing is said
    where the engine's options are not known.
    """
    if isinstance(vllm, Missing) or not vllm.flags:
        return ()
    known = {*_OF_THE_SERVER.split(), *vllm.flags}
    return tuple(name for name in names if name and not known & _spellings(name.partition(".")[0]))


def refused(deployment: Deployment, findings: Iterable[Finding]) -> list[str]:
    """The options that the installed release does not have, or whose values it does not take: it does not start."""
    told = (one for one in findings if one.id in (given.REFUSED, given.UNKNOWN) and one.severity is Severity.ERROR)
    titles = [f"{one.title} " for one in told]
    found = []
    for name, value in {**deployment.flags, "--kv-cache-dtype": deployment.kv_cache_dtype}.items():
        if any(f" has no {name} " in title for title in titles):
            found.append(name)
        elif any(f" cannot read {name} {value} " in title for title in titles):
            found.append(f"{name} {value}")
    return found


def _spellings(name: str) -> set[str]:
    """An option as it is, and what it switches off."""
    return {name, name.replace("--no-", "--", 1), name.replace("--disable-", "--enable-", 1)}
