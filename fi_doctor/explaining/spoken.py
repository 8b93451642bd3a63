"""Words of users, models and documents in a log: they tell nothing of the server, whatever errors they speak of."""

from __future__ import annotations

import re

from fi_doctor.explaining.lines import Level, Line
from fi_doctor.explaining.patterns import search

# What servers say of the texts that they are sent and send. Sources: vllm/entrypoints/logger.py,
# sglang/srt/utils/request_logger.py, uvicorn.
_REQUEST = (
    r"^(?:Received request|Request \S+ details|Generated response|Receive(?:d)? OpenAI|Receive: obj=|Finish: obj=)"
    r"|\b(?:prompt|Prompt|messages|input_text|body)['\"]?[:=]|['\"]role['\"]: ?['\"]"
    r"|\"(?:GET|POST|PUT|DELETE|HEAD|OPTIONS) \S+ HTTP/\d"
)
# Nothing else, whoever logged it: a turn of a chat, the body of a request, records of SGLang, which have no level.
_SENT = (
    r"^(?:(?:Receive|Finish): obj=|Received? OpenAI)|\brequest_body['\"]?[:=]"
    r"|\\?['\"]role\\?['\"]: ?\\?['\"](?:user|assistant|system|tool)\\?['\"], ?\\?['\"]content\\?['\"]: ?"
    r"|\\?['\"]choices\\?['\"]: ?\[ ?\{|\b(?:Request|Completion)Output\("
)
# Of each of both a part: most lines have none, and are not searched.
_SENT_WORDS = (" obj=", "OpenAI", "request_body", "role", "choices", "Output(")
_REQUEST_WORDS = ("Received request", "Request ", "Generated resp", "rompt", "messages", "input_text", "body", "HTTP/")
# A record whose arguments follow the text, quoted, ends in its own line.
_ENDED = r"\bparams: |prompt_token_ids|lora_request|HTTP/\d|[)}\]]\s*$"

# After these, a colon or a quotation mark, any program may write what people and models say.
_ASKED = r"prompts?|questions?|query|queries|(?:asked|asks|asking)(?: about)?|utterance|transcript"
_FOUND = (
    r"chunks?|passages?|snippets?|documents?|docs?|messages?|contents?|answer(?:s|ed)?|repl(?:y|ies|ied)|completions?"
    r"|generat(?:ed|ion)|said|says|wrote|typed|tickets?|comments?|summary|title|subject|contexts?|inputs?|text"
)
_QUOTED = r"results?|tokenizing|embedding|args|arguments"  # only in quotation marks
# Of each of them a part: most lines have none, and are not searched.
_WORDS = (
    *("prompt", "question", "quer", "ask", "utter", "transcript", "chunk", "passage", "snippet", "doc", "message"),
    *("content", "answer", "repl", "complet", "generat", "said", "says", "wrote", "typed", "ticket", "comment"),
    *("context", "input", "text", "result", "tokenizing", "embedding", "arg"),
    *("summary", "title", "subject"),
)
_MEANT = r"(?:[ _-](?:text|body|content|message|string|was|is|for|id|no|\w{0,12}\d\w{0,12}|#\d+)|\[\d+\]){0,3}"
_OPENED = r"['\"]? ?(?:[:=]|->|=>){1,2} {0,8}(?:[bruf]?(?P<quote>'''|\"\"\"|\\?['\"`])|[^\s\d])| ?(?P<mark>['\"`])"
# Of bounded length, so in linear time.
_LABEL = re.compile(
    rf"(?<![\w.])(?:\w{{0,20}}_)?(?:{_ASKED}|(?P<weak>{_FOUND})){_MEANT}(?:{_OPENED})"
    rf"|(?<![\w.])(?P<only>{_QUOTED})(?:['\"]?[:=] ?| )\[?(?P<only_mark>['\"`])",
    re.IGNORECASE | re.ASCII,
)
_SPEAKERS = r"user|you|me|human|assistant|customer|chat ?bot|bot|chatgpt|gpt-\d[\w.]{0,6}|claude|gemini|AI|Q|(?-i:A)"
# Where nobody says of what kind the line is, only as its first words.
_BEGINS = re.compile(
    rf"(?P<weak>)\W{{0,6}}(?:(?:the|user|human|client|customer|new|incoming) ){{0,2}}"
    rf"(?:{_ASKED}|{_SPEAKERS}|retrieved (?:chunk|passage|document)s?|generated (?:text|output))"
    rf"{_MEANT}(?:\\*\\*)?(?:> [^\\s\\d]|{_OPENED})",
    re.IGNORECASE | re.ASCII,
)
# What models are trained with: what stands behind the first of these, or before one that ends a turn, is of a chat.
_TURN = r"<think>|<\|im_start\|>|<\|start_header_id\|>|<\|(?:user|assistant|system)\|>|<start_of_turn>|\[INST\]"
_OPENS = re.compile(rf"{_TURN}|[^\s'\"`(\[,=](?:<\|(?:im_end|eot_id|end_of_text|end)\|>|<end_of_turn>|\[/INST\])")
# A line with which somebody begins to speak, in a sentence or in those that follow it.
_BEGINS_TURN = re.compile(
    rf"\s*(?:{_TURN})|[#*\s]{{0,6}}(?:{_SPEAKERS})(?:\*\*)?:(?:\*\*)?\s*\S+ +\S+ +\S"
    rf"|\s*(?:#{{1,4}} |\*\*)(?:{_SPEAKERS}):?(?:\*\*)?:?\s*$|.{{1,80}}\b(?:wrote|writes|asked|asks):\s*$".encode(),
    re.IGNORECASE | re.ASCII,
)
_ANSWERS = re.compile(
    rb"[#*\s]{0,6}(?:assistant|chat ?bot|bot|chatgpt|gpt-\d[\w.]{0,6}|claude|gemini|AI)(?:\*\*)?:", re.IGNORECASE
)
# What people and models say before a message that they speak of. Programs say "you", too, and not that one gets it.
_MET = r"(?:get|got|getting|see|saw|seeing|hit|hitting|face|facing|encounter(?:ed|ing)?|run into|ran into|receive[d]?)"
_PROSE = re.compile(
    rf"\b(?:I|[Ww]e)(?:'m|'ve|'re)?(?: (?:am|are|have|had|just|also|still|keep|always|now|then|only)){{0,2}} {_MET}\b"
    rf"|\b[Yy]ou(?:'re|'ve)?(?: (?:are|might|may|will|can|have|ever|still)){{0,2}} {_MET}\b"
    r"|\b[Ii]t (?:says|said) |\b[Hh]ow (?:to|do|can|should) |\b[Ww]hy (?:do|does|is|am|did) "
    r"|\b[Ww]hat (?:does|is|causes) "
    r"|\b(?:[Tt]he|[Tt]his|[Tt]hat|[Yy]our|[Mm]y) (?:error|message|exception) ['\"`*]*[\w.]*$"
    r"|\b(?:[Ff]or example|[Ee]\.g\.|such as|[Ee]rrors? (?:like|include))[:,]? ['\"`*]*[\w.]*$"
    r"|^\W{0,3}(?:Response|Reply|Completion|Generated|Input|Subject|Title|Message from \S{1,40}): "
    rf"|^\[(?i:{_SPEAKERS})\]"
)
_ASKS = re.compile(rf"\b(?:{_ASKED}|{_FOUND})\W*$", re.IGNORECASE | re.ASCII)
_QUIET = re.compile(
    r"\b(?:INFO|DEBUG|TRACE|NOTICE)\b|\[(?:info|debug)\b|\b(?:level|severity)['\"]?[=:] ?['\"]?(?:info|debug)\b"
    r"|^[ID]\d{4} \d\d:|[ |](?:info|debug) ?[:|]"
)
_ALARMED = re.compile(r"\b(?:ERROR|CRITICAL|FATAL|SEVERE|WARN(?:ING)?)\b")
# A program that speaks of an error of its own, be it in an answer that it got.
_LOUD = re.compile(r"ERROR|CRITICAL|FATAL|[Ee]rror|[Ee]xception|[Ff]ail|Traceback|stderr|[Ff]atal|crash|panic|killed")
# What people and scripts type, comments, titles of changes, tests that passed: they name an error, and tell of none.
_TYPED = re.compile(
    r"\s*(?:# |>>> |\++ (?:echo|printf|grep|egrep|rg|sed|awk|test|\[) |\$ \w)"
    r"|\s*[\w.-]{1,40}@[\w.-]{1,60}:\S{0,200} ?[$#] "
    r"|\s*(?:[*-] |[0-9a-f]{7,40} )?(?:\[[\w /.-]{1,40}\] ?){0,3}"
    r"(?:[Ff]ix(?:e[sd])?|[Bb]ug ?[Ff]ix|[Rr]evert|feat|chore|docs|perf|refactor)(?:\([\w/., -]{1,40}\))?!?:? \S"
    r"|.{0,300} (?:PASSED|XFAIL|SKIPPED)(?: +\[ *\d+%\])?\s*$"
)
# What grep finds in sources: a file with its line, and code.
_SOURCE = re.compile(
    r"\s*(?:[$+] |[\w.@-]{1,80}:\S{0,200} ?[$#] )?(?:(?:git )?[ef]?grep|rg|ag) {1,4}[\"'-]"
    r"|\S{1,300}\.(?:pyx?|cuh?|cc|cpp|hpp|h|inl):(?:\d{1,6}[:-])?\s*"
    r"(?:(?:raise|assert|return|throw|if|elif|else|def|class)\b|(?:print|log|logger|logging|warnings)(?:\.\w+)?\("
    r"|[rbf]?[\"']|#|//|(?:TORCH_CHECK|TVM_FFI|FLASHINFER|TLLM)\w*\()",
    re.ASCII,
)
# A block of YAML whose lines are set in: what people ask and models say. `message: |` is of programs, too.
_BLOCK = re.compile(
    rb"(?:^|[\s:'\"-])(?:\w{0,20}_)?(?:prompts?|questions?|query|content|user|assistant|system|transcript|instructions?)"
    rb"['\"]?: ?[|>][-+]?\d?$",
    re.IGNORECASE,
)
# How lines of data sets and of answers of servers begin.
_RECORDED = re.compile(r'\{ ?"(?:text|prompt|question|answer|completion|content)": ?"')
_HEAD = 100  # characters in which a line says what it is
_MOST = 8  # quotations in a line
_BEFORE_MARK = " ([{=:"
_SURE = ('"', "'''", '"""')  # what opens a quotation for sure: the others are apostrophes, too


def is_request(line: Line) -> bool:
    """Whether a line tells what a client sent or was sent, and nothing else."""
    if line.level not in (Level.INFO, Level.NONE):
        return False
    if any(map(line.text.__contains__, _SENT_WORDS)):
        return (_is_logged(line) and search(_REQUEST, line.text) is not None) or search(_SENT, line.text) is not None
    is_worded = _is_logged(line) and any(map(line.text.__contains__, _REQUEST_WORDS))
    return is_worded and search(_REQUEST, line.text) is not None


def is_open(line: Line) -> bool:
    """Whether the lines after it, up to the next one of a logger, are of the same request."""
    return is_request(line) and line.level is Level.INFO and search(_ENDED, line.text) is None


def is_quoting(line: Line) -> bool:
    """Whether the lines after it, up to one that ends in a quotation mark, are words of the same speaker."""
    return _cut(line)[1]


def is_in_block(above: bytes, raw: bytes) -> bool:
    """Whether a line that is set in stands in a block of YAML that holds what somebody said, by the lines before it."""
    if b"|" not in above and b">" not in above:
        return False
    deep = _depth(raw)
    for line in reversed(above.splitlines()):
        if not line.strip() or _depth(line) >= deep:
            continue
        if _BLOCK.search(line.rstrip()[-_HEAD:]) is not None:
            return True
        deep = _depth(line)
        if not deep:
            break
    return False


def is_typed(text: str) -> bool:
    """Whether a line is a command, a comment or a test that passed."""
    return _TYPED.match(text) is not None


def is_source(text: str) -> bool:
    """Whether a line is of a search of sources: it tells what a program may say, and not that it did."""
    return _SOURCE.match(text) is not None


def is_quiet(text: str) -> bool:
    """Whether a line whose level was not told calls itself information, in whatever form."""
    if is_typed(text):
        return True
    return _QUIET.search(text[:_HEAD]) is not None and _ALARMED.search(text[:_HEAD]) is None


def is_asked(head: Line) -> bool:
    """Whether a record ends where words of others begin: what follows may be theirs."""
    return head.text.rstrip().endswith((":", "=", ": |")) and _ASKS.search(head.text) is not None


def begins_answer(raw: bytes) -> bool:
    """Whether it is a model that begins to speak: what it shows in a fence is no log of anybody."""
    return _ANSWERS.match(raw) is not None


def begins_turn(raw: bytes) -> bool:
    """Whether somebody begins to speak in a line of a chat: those after it may be of the same speaker."""
    return _BEGINS_TURN.match(raw) is not None


def is_prose(before: str) -> bool:
    """Whether what stands before a message in its line is of somebody who speaks of it."""
    return _PROSE.search(before) is not None


def unspoken(line: Line) -> Line:
    """The line without the words of others: what stands in quotation marks, or all that follows."""
    text, _ = _cut(line)
    return line if text == line.text else line._replace(text=text)


def _depth(raw: bytes) -> int:
    return len(raw) - len(raw.lstrip(b" \t"))


def _is_logged(line: Line) -> bool:
    return line.level is Level.INFO or line.text.startswith(("Received request", "Generated response"))


def _cut(line: Line) -> tuple[str, bool]:
    """What is left of a line, and whether its last quotation goes on in the next one."""
    text = line.text
    if line.level in (Level.ERROR, Level.WARNING):
        return text, False
    if ("|>" in text or "INST]" in text or "_of_turn>" in text or "<think>" in text) and (
        opens := _OPENS.search(text)
    ) is not None:
        return text[: opens.start() if search(f"^(?:{_TURN})", opens[0]) is not None else 0], False
    if (recorded := _RECORDED.match(text)) is not None:
        end = _end(text, recorded.end(), '"')
        return recorded[0] + (text[end:] if end >= 0 else ""), False
    low = text.lower()
    is_worded = any(map(low.__contains__, _WORDS))
    if not is_worded and _BEGINS.match(text) is None:
        return text, False
    is_said = is_worded and (line.is_quiet or line.level is Level.INFO or is_quiet(text))
    kept, at = "", 0
    for _ in range(_MOST):
        found = _LABEL.search(text, at) if is_said else _BEGINS.match(text)
        if found is None or _is_own(text, found):
            break
        quote = _mark(found)
        if quote is None:
            return kept + text[at : found.end() - 1], False
        end = _end(text, found.end(), quote)
        kept += text[at : found.end()]
        if end < 0:
            return kept, quote in _SURE
        at, is_said = end, True
    return kept + text[at:], False


def _mark(found: re.Match[str]) -> str | None:
    """The quotation mark that opens what is said, if any does."""
    groups = found.groupdict()
    return groups["quote"] or groups["mark"] or groups.get("only_mark")


def _is_own(text: str, found: re.Match[str]) -> bool:
    """Whether the program speaks of an error of its own: said before, or after a word that errors are told with too."""
    if _LOUD.search(text, 0, found.start()) is not None:
        return True
    if not found["weak"] or _mark(found):
        return False
    has_number = any(char.isdigit() for char in found[0])
    return has_number or _LOUD.search(text, found.start(), found.end() + len("{error")) is not None


def _end(text: str, start: int, quote: str) -> int:
    """Where a quotation ends: with those within it, where they are whole, else at the first mark that closes one."""
    first, deep, at = -1, 1, start
    while (at := text.find(quote, at)) >= 0:
        after = text[at + len(quote) : at + len(quote) + 1]
        is_word = after.isalnum() or after == "_"  # what is within a word is an apostrophe
        if text[at - 1] != "\\" and not is_word:
            first = at if first < 0 else first
        if text[at - 1] in _BEFORE_MARK and after.strip() and at > start:
            deep += 1
        elif text[at - 1] != "\\" and not is_word:
            deep -= 1
        if not deep:
            return at
        at += len(quote)
    return first
