"""Secrets in text: told by the names beside them, by how they look, or because a variable of ours holds them."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

HIDDEN = "<hidden>"

_Kept = TypeVar("_Kept", bound=msgspec.Struct)
_SHORTEST = 6  # characters of a value that is looked for wherever it stands: a shorter one is found by chance
# Whole words of a name. TOKENS is missing on purpose: it counts tokens (VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE).
_SECRET_WORDS = frozenset(
    {"APIKEYS", "AUTH", "AUTHORIZATION", "BEARER", "COOKIE", "CREDENTIAL", "CREDENTIALS", "CREDS", "KEY", "KEYS"}
    | {"PASS", "PASSPHRASE", "PASSWORDS", "PWD", "SECRETS"}
)
_SECRET_ENDINGS = ("APIKEY", "ACCESSKEY", "PRIVATEKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD")
_WORD = re.compile(r"[A-Z]+")
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,12})?|true|false", re.IGNORECASE)
_SECRET_VALUES = re.compile(
    r"""
      (?<![a-z0-9])(?:hf|gh[oprsu]|glpat|github_pat|nvapi|npm|pypi|xox[abeprs]|dckr_pat|dop_v1|gsk|r8|wandb_v\d)
      [-_][\w-]{16,}
    | (?<![a-z0-9])sk-[\w-]{16,}                      # OpenAI and those who imitate it
    | (?<![a-z0-9])A(?:KIA|SIA)[0-9A-Z]{16}\b | (?<![a-z0-9])AIza[\w-]{30,}  # AWS, Google
    | (?<![a-z0-9])eyJ[\w-]{8,}\.[\w-]{4,}                        # JSON web token
    | -----BEGIN\s
    | \bbearer\s+\S{8,}
    | (?:://|\bhttps?:/)(?:[^/\s@]*:[^/\s@]+|[^/\s:@]{16,})@  # credentials in a URL, also as a path has it
    | (?:\b|_|-)(?:api[-_]?keys?|access[-_]?keys?|token|secret|password|passwd|passphrase)\b["']?
      (?:\s*[:=]\s*|\s+)["']?[^\s"',}]{4,}           # --api-key X, {"token": "X"}
    | (?:\b|_|-)(?:(?:account|private|signing|encryption|master)[-_]?keys?|pwd|cookie|creds|authorization)\b["']?
      \s*[:=]\s*["']?[^\s"',}/~.][^\s"',}]{3,}
    | (?:[?&](?:sig|signature|key|auth)|\bx-(?:amz|goog)-(?:signature|credential))=[^&\s]{8,}
    """,
    re.IGNORECASE | re.VERBOSE,
)
_PROSE = frozenset(
    ("none", "null", "required", "missing", "invalid", "empty", "unset", "disabled", "enabled", "expired", "failed")
)
_PATH = re.compile(r"(?:~|\.{1,2})?(?:/[\w.@-]{1,200}){1,40}/?")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_RUN = re.compile(r"[A-Za-z0-9_-]{32,}")
_BASE64 = re.compile(r"[A-Za-z0-9+][A-Za-z0-9+/]{38,}={0,2}")
# Without one of these nothing of it can be there: to look for them costs a hundredth of what the patterns do.
_MARKS = (
    *("hf_", "hf-", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat", "glpat", "nvapi", "npm_", "pypi", "xox"),
    *("dckr_", "dop_", "gsk_", "r8_", "wandb", "sk-", "akia", "asia", "aiza", "eyj", ":/", "bearer", "basic", "sig="),
    *("signature", "key", "auth", "token", "secret", "pass", "pwd", "cookie", "cred"),
)
# The same within text that is shown: what stands before the secret stays, and so does what follows.
_LOOKS = (
    r"(?:hf|gh[oprsu]|npm|gsk|r8)_[A-Za-z0-9]{12,}|hf-(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{16,}"
    r"|(?:glpat|github_pat|nvapi|pypi|xox[abeprs]|dckr_pat|dop_v1|wandb_v\d)[-_][\w-]{16,}"
    r"|sk-[\w-]{16,}|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,4000}\.[\w.-]{4,}"
)
# Behind "_" a function's name may begin so: load_hf_somethingelse.
_BEFORE = r"(?:\b|(?<=_)(?=[A-Za-z0-9]{2,6}[-_]?[A-Za-z_-]{0,60}\d))"
_NAMED = (
    r"(?:api|access)[-_]?keys?(?:[-_]id)?|(?:account|private|signing|encryption|master)[-_]?keys?"
    r"|secret(?:[-_]?key)?|passw(?:or)?d|passphrase"
    r"|(?<=[-_])token|token(?=\s*=)|(?<=[-_])(?:pwd|pass|cookie|creds|credentials?)(?==)"
    r"|(?<=[\"'_-])(?:token|auth|pwd|pass|cookie|creds|credentials?)(?=\\?[\"'])"
    r"|(?<![A-Za-z0-9])(?:(?:pwd|cookie|creds|credentials?)(?==)|auth(?==\\?[\"'])|(?P<cookie>cookie)(?=(?:\\?[\"'])?\s*:))"
)
# In prose these words stand, too: what follows must have letters and digits. "Password sha256" is prose.
_WORDED = (
    r"(?<![A-Za-z0-9])(?:token(?:\\?[\"'])?:\s{0,20}|(?:password|passwd|passphrase)[ \t]{1,5}(?!(?:sha|md|utf|v)-?\d))"
    r"(?=(?:\\?[\"'])?(?=[A-Za-z_.~+/!@#$%^*-]{0,100}\d)(?=[\d_.~+/!@#$%^*-]{0,100}[A-Za-z])[^\s\"']{6,})"
)
_SCHEMED = (
    r"authorization(?:\\?[\"'])?\s{0,20}[:=]\s{0,20}(?:\\?[\"'])?(?:(?:basic|bearer|digest|negotiate|token)\s{1,20})?"
)
# VLLM_DB_PWD=X, NCCL_COOKIE: X: the names that `names_secret` means; a path is none.
_LAST = (
    rf"(?:(?:[A-Z0-9_]{{0,80}}[0-9_])?(?:{'|'.join(sorted(_SECRET_WORDS))})"
    rf"|[A-Z0-9_]{{0,80}}(?:{'|'.join(_SECRET_ENDINGS)}))"
)
_VARIABLE = (
    rf"(?<![A-Za-z0-9_])(?-i:{_LAST}(?:[0-9_][A-Z0-9_]{{0,80}})?=|(?=[A-Z0-9]{{1,40}}_){_LAST}:\s)"
    r"(?!\s{0,20}[\"']?[/~.])"
)
_OPTION = (
    r"(?<!-)--[\w-]{0,40}(?:(?:api|access)[-_]keys?|token|secret|password|passphrase"
    r"|(?<=[-_])(?:auth|pwd|pass|cookie|creds|credentials)(?!\s+-))"
)
# - name: HF_TOKEN, and in the next line value: X
_PAIRED = rf"name[\"']?:\s{{0,5}}[\"']?(?-i:{_LAST})[\"']?(?:,\s{{0,5}}|\s{{1,40}})[\"']?value[\"']?:"
# Who logs in where, in a URL; a path that a URL was taken for has one of its two slashes: "redis:/user:password@host".
_PAIR = r"[^/\s@:\"'<]{0,200}:[^/\s@\"'<]{1,500}"
_USER = rf"(?:{_PAIR}|[^/\s:@\"'<]{{16,500}})"
_IN_TEXT = re.compile(
    rf"""
      {_BEFORE}(?P<look>{_LOOKS})
    | (?:(?<=://)|(?<=https:/)|(?<=http:/)){_USER}(?=@) | (?<=[a-z]{{2}}:/){_PAIR}(?=@)
    | (?P<bearer>\bbearer\s+)[\w+/=.~-]{{8,}}
    | (?P<key>-----BEGIN[ A-Z]*PRIVATE\ KEY-----)(?:(?!-----END)[\s\S])*
    | (?P<query>(?:[?&](?:sig|signature|key|auth|token)
        |(?<![A-Za-z0-9])x-(?:amz|goog)-(?:signature|credential|security-token))=)[^&\s"']{{8,}}
    | (?P<name>(?:(?:{_NAMED})(?:\\?["'])?\s{{0,20}}[:=]|{_OPTION}(?:\s|=)|{_VARIABLE}|{_WORDED}|{_SCHEMED}|{_PAIRED})
        \s{{0,20}}(?P<list>\[)?(?:\\?["'])?)
      (?P<value>[^\s"'\\,;}}<&][^\s"'\\,;}}&]{{3,}}|(?(cookie)[^\s"';]{{1,500}}|(?!)))
      (?(list)(?:["'],\s?["'][^\s"']{{1,500}}){{0,50}})(?(cookie)(?:;\s?[\w.-]{{1,100}}=[^\s"';]{{1,500}}){{0,50}})
    """,
    re.IGNORECASE | re.VERBOSE,
)


def held(*environs: Mapping[str, str]) -> frozenset[str]:
    """The values of variables that are secrets: wherever one of them stands it is hidden.

    A path or a number is none, whatever its name says: HF_TOKEN_PATH, VLLM_TOKEN_LIMIT.
    """
    return frozenset(
        value
        for environ in environs
        for name, value in environ.items()
        if len(value) >= _SHORTEST
        and (looks_secret(value) or (names_secret(name, value) and not value.startswith(("/", "~", "."))))
        and not _NUMBER.fullmatch(value)
    )


def hidden(text: str, known: Iterable[str] = ()) -> str:
    """The text with every secret replaced, be it one of those that are known or one that looks so."""
    for value in sorted(known, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    low = text.lower()
    if "token" in low:  # most lines of servers count tokens
        low = low.replace("tokens", "").replace("tokeniz", "")
    return _IN_TEXT.sub(_replaced, text) if any(map(low.__contains__, _MARKS)) else text


def without(record: _Kept, known: frozenset[str] = frozenset()) -> _Kept:
    """The same record with every text in it as `hidden` leaves it; the record itself where none changes."""
    plain = msgspec.to_builtins(record)
    clean = _clean(plain, functools.cache(lambda text: hidden(text, known)))  # a report repeats itself
    return record if clean == plain else msgspec.convert(clean, type(record))


def names_secret(name: str, value: str) -> bool:
    """Whether the name says that the value is a secret.

    TOKEN before other words may count tokens instead (..._TOKEN_THRESHOLD): then a number is innocent.
    """
    words = _WORD.findall(name.upper())
    telling = [word for word in words if word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS)]
    if telling == ["TOKEN"] and words[-1] != "TOKEN":
        return not _NUMBER.fullmatch(value)
    return bool(telling)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable of this name with this value is shown to nobody."""
    return bool(value) and (names_secret(name, value) or looks_secret(value))


def without_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables, of which those that are secrets are hidden."""
    return {name: HIDDEN if is_secret(name, value) else value for name, value in environ.items()}


def looks_secret(value: str) -> bool:
    """Whether the value looks like a token, a password in a URL or a long random string, whatever its name."""
    if _SECRET_VALUES.search(value):
        return True
    rest = _UUID.sub("", value)
    return any(_is_random(run) for run in _RUN.findall(rest)) or bool(_BASE64.fullmatch(rest) and _is_random(rest))


def _is_random(text: str) -> bool:
    """Whether capitals, small letters and digits alternate as by chance.

    In random base64 two of three neighbours are of different kinds; in names of models and folders one of four.
    Digests in hex have one case only and are innocent: commits and checksums are written so.
    """
    kinds = ["A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else "" for c in text]
    if not {"A", "a", "0"} <= set(kinds):
        return False
    pairs = [(one, two) for one, two in itertools.pairwise(kinds) if one and two]
    return sum(one != two for one, two in pairs) >= 0.4 * len(pairs)


def _replaced(found: re.Match[str]) -> str:
    if found["name"] and _is_innocent(found["name"].lower(), found["value"]):
        return found[0]
    before = next((found[group] for group in ("bearer", "key", "query", "name") if found[group]), "")
    return f"{before}{HIDDEN}"


def _is_innocent(name: str, value: str) -> bool:
    """Whether what stands behind a name is a number (max_token: 4096), a word of prose, or where a key is kept."""
    if _NUMBER.fullmatch(value) or value.lower().rstrip(".:)]") in _PROSE:
        return True
    is_key = not any(word in name for word in ("pass", "token", "secret", "authorization"))
    return is_key and _PATH.fullmatch(value) is not None and not looks_secret(value)


def _clean(value: object, clean: Callable[[str], str]) -> object:
    match value:
        case str():
            return clean(value)
        case dict():
            return {_clean(key, clean): _clean(one, clean) for key, one in value.items()}
        case list() | tuple():
            return type(value)(_clean(one, clean) for one in value)
    return value
