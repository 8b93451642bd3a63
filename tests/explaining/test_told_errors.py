"""An error that nobody knows is told all the same, whatever stands before it; what is called less than one is none."""

import json

import pytest
from fault_cases import diagnosed

from fi_doctor.explaining import events, lines

NEW = "ValueError: frobnicate of the quux is not supported"
BEFORE = {
    "a pod and its container": "vllm-0 vllm ",
    "both in brackets": "[vllm-0 vllm] ",
    "journald with a zone": "2026-11-20T10:00:00+0100 gpu01 vllm[1234]: ",
    "srun": "12: ",
    "pdsh": "gpu01: ",
    "torchrun": "[default0]:",
    "prterun": "[prterun-x@1,0]<stderr>: ",
    "a group of exceptions": "    | ",
    "a runner of workflows": "##[error]",
    "logfmt": "level=error msg=",
    "a list": "- ",
    "code": "`",
    "raylet": "(raylet) ",
    "a time": "[10:00:00] ",
    "a time without brackets": "10:00:00.123 ",
    "a server of inference": "E1120 10:00:00.123456 1 model.cc:1] ",
    "tracing of Rust": "2026-11-20T10:00:00.123456Z ERROR dynamo.vllm.main: ",
    "uvicorn": "ERROR:    ",
    "loguru": "2026-11-20 10:00:00.123 | ERROR    | a:b:1 - ",
    "structlog": "2026-11-20T10:00:00Z [error    ] ",
    "pm2": "0|vllm  | ",
    "a file and its line": "/v/x.py:12: ",
    "words that say so": "Runner failed with exception: ",
}


@pytest.mark.parametrize("name", BEFORE)
def test_an_error_that_is_not_known_is_told(name):
    found = diagnosed(BEFORE[name] + NEW)
    assert found.diagnoses == ()
    assert found.answer.startswith("I do not know")
    assert len(found.errors) == 1


OTHERS = {
    "another language": "panic: runtime error: index out of range",
    "a third one": "thread 'main' panicked at src/main.rs:1:1:",
    "a data base": 'ERROR:  relation "x" does not exist',
    "a compiler in German": "x.cu:1:10: schwerwiegender Fehler: cuda_runtime.h: Datei nicht gefunden",
    "a compiler in Chinese": "x.cu:1:10: \u81f4\u547d\u9519\u8bef\uff1acuda_runtime.h",
    "a linker in French": "collect2: erreur: ld a retourn\u00e9 1",
    "JSON without a message": '{"ts": 1, "level": "error", "text": "quux is gone"}',
    "a container": "db-1  | FATAL:  password authentication failed",
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_error_of_another_program_is_one(name):
    assert len(diagnosed(OTHERS[name]).errors) == 1


NONE = {
    "information of loguru": f"2026-11-20 10:00:00.123 | INFO    | a:b:1 - got {NEW}",
    "a warning of loguru": f"2026-11-20 10:00:00.123 | WARNING | a:b:1 - {NEW}",
    "a warning of Rust": f"2026-11-20T10:00:00.123456Z  WARN router: {NEW}",
    "a loader that goes on": "ERROR: ld.so: object 'libx.so' from LD_PRELOAD cannot be preloaded: ignored.",
    "JSON that names an error": '{"level": "info", "text": "handler of \\"error\\"", "kind": "error"}',
    "German words": "INFO ok\nheute ohne Fehler: alles gut",
    "a source line": "    except ValueError: pass",
    "a sentence": "this release no longer hides ValueError: see the notes",
    "a level that is set": "export VLLM_LOGGING_LEVEL=ERROR",
    "metrics": "# HELP errors_total CUDA error count, ValueError: too",
    "a script": f"+ echo {NEW}",
    "zero of them": "INFO 11-20 10:00:00 [x.py:1] ERROR: 0 FATAL: 0",
}


@pytest.mark.parametrize("name", NONE)
def test_what_is_called_less_is_none(name):
    assert events.read(lines.read("log", 1, NONE[name].encode())) is None


RECORDS = {
    "a record within": {"level": "error", "message": "x", "error": {"type": "ValueError", "message": "no quux"}},
    "a list": {"level": "error", "message": "x", "exception": [{"exc_type": "ValueError", "exc_value": "no quux"}]},
    "dots": {"log.level": "error", "message": "x", "error.message": "ValueError: no quux"},
    "its trace": {
        "time": "x",
        "log": {"level": "error"},
        "message": "x",
        "error": {"stack_trace": "Traceback\nValueError: no quux"},
    },
}


@pytest.mark.parametrize("name", RECORDS)
def test_what_a_record_holds_of_an_error_is_told(name):
    assert "ValueError: no quux" in [error.text for error in diagnosed(json.dumps(RECORDS[name])).errors]


def test_a_record_without_an_error_tells_none():
    assert diagnosed(json.dumps({"level": "info", "message": "x", "error": {"count": 0}, "exception": []})).errors == ()


FRAME = '  File "/v/quux/core.py", line 3, in build'
CUT = {
    "by its end": f"Traceback (most recent call last):\n{FRAME}\n    raise ValueError(",
    "line by line": f"ERROR 11-20 10:00:00 [core.py:8] {FRAME}\nERROR 11-20 10:00:00 [core.py:8]     raise ValueError(",
}


@pytest.mark.parametrize("name", CUT)
def test_a_traceback_without_its_end_is_an_error(name):
    found = diagnosed(CUT[name])
    assert found.answer.startswith("I do not know")
    assert [error.text for error in found.errors] == [FRAME.strip()]


@pytest.mark.parametrize("level", ["INFO", "WARNING"])
def test_frames_that_a_logger_calls_less_are_none(level):
    assert diagnosed(f"{level} 11-20 10:00:00 [core.py:8] {FRAME}").errors == ()


def test_a_traceback_with_its_end_is_told_by_that():
    assert [error.text for error in diagnosed(f"{FRAME}\n{NEW}").errors] == [NEW]
