"""Settings that somebody wrote down for a server: a file of variables, or a manifest that starts a container."""

from __future__ import annotations

from fi_doctor.model.base import Data


class Variable(Data, frozen=True, omit_defaults=True):
    """One variable. value: None where it comes from elsewhere (a secret, the host)."""

    value: str | None
    line: int = 0  # of the file, from 1; 0: not known


class Given(Data, frozen=True, omit_defaults=True):
    """What one process of a manifest is given."""

    file: str
    part: str  # "service vllm", "Deployment llm, container server"; "": the file as a whole
    variables: dict[str, Variable] = {}
    server: str = ""  # "vllm" or "sglang", where its command line is told
    words: tuple[str, ...] = ()  # of that command line, behind `vllm serve`
    line: int = 0  # of the command line
    image: str = ""  # that its container starts from, as it is written
    unread: dict[str, str] = {}  # what could not be told -> why

    @property
    def origin(self) -> str:
        """What messages call it."""
        return f"{self.file} ({self.part})" if self.part else self.file


class Stated(Data, frozen=True, omit_defaults=True):
    """One setting, and where somebody wrote it."""

    name: str  # "VLLM_ATTENTION_BACKEND", "--moe-backend"
    kind: str  # "env" or "flag"
    value: str | None  # of a flag the first word behind it, "" where there is none; None: hidden, or from elsewhere
    more: tuple[str, ...] = ()  # further words behind a flag: values of it too where it takes several
    file: str = ""  # "deploy.yaml", "--vllm-args"; "": the environment that is examined
    part: str = ""  # "service vllm"
    line: int = 0
    server: str = ""  # "vllm" or "sglang", where it is told whom it is for
    image: str = ""  # "vllm/vllm-openai:v0.33.0", where it is told what runs it

    @property
    def place(self) -> str:
        """What messages call it: "deploy.yaml:12 (service vllm)"; "" for the environment."""
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where} ({self.part})" if self.part else where

    @property
    def written(self) -> str:
        """As it is written: NAME=value, --name value."""
        if self.value is None:
            return self.name
        if self.kind == "env":
            return f"{self.name}={self.value}"
        return f"{self.name} {self.value}".rstrip()
