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
    unread: dict[str, str] = {}  # what could not be told -> why

    @property
    def origin(self) -> str:
        """What messages call it."""
        return f"{self.file} ({self.part})" if self.part else self.file
