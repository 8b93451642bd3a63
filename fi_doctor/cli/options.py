"""The options that commands share, and those of `check`."""

from __future__ import annotations

from typing import Annotated

import typer

from fi_doctor.model.numbers import whole

_LARGEST_PID = 1 << 22  # PID_MAX_LIMIT


def _number(text: str | int) -> int:
    # It is given the default too. A ValueError would be told without its words.
    from fi_doctor.cli import parse

    try:
        return parse.whole(str(text))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}.") from error


def _pid(text: str | int) -> int:
    number = whole(str(text))
    if number is None or not 0 < number <= _LARGEST_PID:
        raise typer.BadParameter(f"{str(text)!r} is no number of a process.")
    return number


Python = Annotated[
    str | None,
    typer.Option("--python", metavar="PATH", help="Examine this interpreter; fi-doctor need not be installed in it."),
]
AsUser = Annotated[
    str | None,
    typer.Option(
        "--as-user",
        metavar="NAME|UID[:GROUP]",
        help="Who will serve: whether that user can write what FlashInfer writes, in the home of that user.",
    ),
]
Pid = Annotated[
    int | None,
    typer.Option(
        "--pid",
        parser=_pid,
        metavar="N",
        help="A process that serves: its interpreter, variables, user, limits and loaded libraries instead of ours.",
    ),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="FILE", help="Judge a report that was written elsewhere ('-' reads stdin)."),
]
Example = Annotated[
    str | None,
    typer.Option("--example", metavar="NAME", help="Replay a recorded real machine that ships with fi-doctor."),
]
AsRecorded = Annotated[
    bool, typer.Option("--as-recorded", help="With --from or --example: the verdicts as they were, not today's.")
]
DepthOption = Annotated[
    str | None,
    typer.Option(
        "--depth",
        metavar="static|build|run",
        help="Read only; compile too; run too. Default: as deep as possible here.",
    ),
]
ReportDepth = Annotated[
    str, typer.Option("--depth", metavar="static|build|run", help="Read only; compile too; run too.")
]
Budget = Annotated[
    str, typer.Option("--budget", metavar="TIME", help="Bound on building and running; what does not fit is unknown.")
]
FeatureOption = Annotated[
    list[str] | None, typer.Option("--feature", metavar="NAME", help="Only these rows; a glob, may be repeated.")
]
Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="NAME[=WORD]",
        help="These rows must work, or give what WORD says: works, ran, verified, built or unsupported; a glob, may be "
        "repeated.",
    ),
]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="WORD",
        help="Verdicts of rows, or severities of findings, that fail; of a fleet also drift: that nodes differ. May be "
        "repeated. [default: broken, wrong-result]",
    ),
]
Rows = Annotated[
    str | None,
    typer.Option(
        "--rows",
        metavar="all|called",
        help="Which rows --fail-on looks at: all that are selected, or those that vLLM can call. "
        "[default: called; all with --feature]",
    ),
]
Jobs = Annotated[
    int, typer.Option("--jobs", parser=_number, metavar="N", help="Compile jobs at once; 0 takes the usable CPUs.")
]
Memory = Annotated[
    str,
    typer.Option(
        "--memory", metavar="SIZE", help="What all compilers may take, as 16g or 8192m. Default: what is free."
    ),
]
Gentle = Annotated[
    bool,
    typer.Option(
        "--gentle",
        help="Beside a live server: lowest priority, a quarter of the CPUs, half of what memory and GPUs have free.",
    ),
]
FreshCache = Annotated[
    bool, typer.Option("--fresh-cache", help="Build in scratch folders; the JIT caches are neither read nor written.")
]
Binary = Annotated[
    list[str] | None,
    typer.Option(
        "--binary", metavar="PATH", help="Read the GPU code of this shared object, or folder, too; may be repeated."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="What will be served: a folder, a config.json, a repository in Hugging Face's cache, or a known name.",
    ),
]
Tp = Annotated[int | None, typer.Option("--tp", metavar="N", min=1, max=4096, help="With --model: tensor parallel.")]
Pp = Annotated[int | None, typer.Option("--pp", metavar="N", min=1, max=4096, help="With --model: pipeline parallel.")]
Dp = Annotated[int | None, typer.Option("--dp", metavar="N", min=1, max=4096, help="With --model: data parallel.")]
Ep = Annotated[bool, typer.Option("--ep", help="With --model: experts are spread over the GPUs.")]
KvCacheDtype = Annotated[
    str | None, typer.Option("--kv-cache-dtype", metavar="DTYPE", help="With --model: as vllm serve takes it.")
]
EnvFile = Annotated[
    list[str] | None,
    typer.Option("--env-file", metavar="FILE", help="Also judge what this file of NAME=value sets; may be repeated."),
]
Manifest = Annotated[
    list[str] | None,
    typer.Option(
        "--manifest",
        metavar="FILE",
        help="Also judge the settings in this Dockerfile, compose file or Kubernetes manifest; may be repeated.",
    ),
]
VllmArgs = Annotated[
    str | None,
    typer.Option("--vllm-args", metavar="WORDS", help="The command line of vllm serve, quoted as one word."),
]
Prove = Annotated[
    bool,
    typer.Option(
        "--prove",
        help="Try each recommended variable on the probes that failed; what does not help is not recommended.",
    ),
]
ProveVllm = Annotated[
    bool,
    typer.Option(
        "--prove-vllm",
        help="With --model: start vLLM on tiny models with dummy weights and see what it takes; needs a GPU, and some "
        "minutes beside the budget.",
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="GPU|KEY=VALUE,...",
        help="Judge for a machine that is not here: h200, or sm=90,gpus=2,driver=580,cuda=12.8,flashinfer=0.6.7.post3,"
        "vllm=0.17.1; what is not named is as it is here.",
    ),
]
WarmList = Annotated[
    str | None,
    typer.Option(
        "--warm-list",
        metavar="FILE",
        help="With --target: write the rows here whose modules are not in the image, for fi-doctor warm --list.",
    ),
]
Knowledge = Annotated[
    str | None,
    typer.Option(
        "--knowledge",
        metavar="DIR|FILE",
        help="Judge by the knowledge in this folder or bundle, not by that which ships.",
    ),
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the report here, not to stdout.")
]
ForIssue = Annotated[
    str | None,
    typer.Option(
        metavar="PROJECT", help="Write a bug report in the form of flashinfer or vllm, without names and addresses."
    ),
]
Redact = Annotated[
    bool,
    typer.Option("--redact", help="Without names of users and hosts, addresses and serial numbers, for strangers."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Watch = Annotated[
    bool, typer.Option("--watch", help="Show every probe and how far it came, as a table on the terminal.")
]
BudgetOrNot = Annotated[
    str | None,
    typer.Option("--budget", metavar="TIME", help="Bound on building and running; else unknown. [default: 10m]"),
]
JobsOrNot = Annotated[
    int | None,
    typer.Option("--jobs", parser=_number, metavar="N", help="Compile jobs at once; 0 takes the usable CPUs."),
]
MemoryOrNot = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", help="What all compilers may take, as 16g. Default: what is free."),
]
Format = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT[:PATH]",
        help="console, json, yaml, markdown, junit, github, sarif, html, prometheus, nfd or termination-log; may be "
        "repeated, one of them without a path. "
        "Default: by the ending of --output, else console.",
    ),
]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="The policy. Default: the nearest, from this folder upwards."),
]
NoConfig = Annotated[bool, typer.Option("--no-config", help="Without a policy.")]
ExplainGate = Annotated[
    bool, typer.Option("--explain-gate", help="Say on stderr what was asked for, what holds and what decided.")
]
LockFile = Annotated[str | None, typer.Argument(metavar="[LOCK]", help="With --locked: the lock, fi-doctor.lock.")]
Locked = Annotated[
    bool, typer.Option("--locked", help="Take what a lock proves where nothing that matters has changed.")
]
Frozen = Annotated[bool, typer.Option("--frozen", help="With --locked: measure nothing; what changed is unknown.")]
Thorough = Annotated[
    bool, typer.Option("--thorough", help="With --locked: read every file, whatever its size and times say.")
]
