import pytest

from fi_doctor.probing.deciding import LIMIT, deciding_line

SITE = "/home/somebody/projects/serving/.venv/lib/python3.12/site-packages/"
OPS = "/home/somebody/.cache/flashinfer/0.7.2.post1/90a/cached_ops/"


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("", "CUDA error: an illegal memory access was encountered"),
        ("Ninja build failed.\n", "nvcc fatal   : Unsupported gpu architecture 'compute_120a'"),
        ("failed\n", "/usr/bin/ld: cannot find -lcudart"),
        ("failed\n", "a.cu:3:10: fatal error: cublasLt.h: No such file or directory"),
        ("failed\n", "/bin/sh: 1: nvcc: not found"),
        ("", "the first line where none is better"),
        ("sh: 1: cuobjdump: not found\n", 'a.cu(3): error: identifier "x" is undefined'),
        ("", "collect2: error: ld returned 1 exit status"),
        ("Ninja build failed.\n", "/usr/bin/ld: final link failed: No space left on device"),
    ],
    ids=[
        "cuda",
        "nvcc",
        "ld",
        "header",
        "shell",
        "plain",
        "error-rather-than-not-found",
        "nothing-better",
        "full-disk",
    ],
)
def test_it_is_the_one_that_says_what_is_wrong(before, line):
    assert deciding_line(f"{before}  {line}\nmore") == line


def test_the_linkers_own_words_go_before_the_error_that_follows_from_them():
    log = "/usr/bin/ld: cannot find -lcudart\ncollect2: error: ld returned 1 exit status"
    assert deciding_line(log) == "/usr/bin/ld: cannot find -lcudart"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (137, "error: killed by signal 9: norm/norm.cuda.o"),
        (139, "error: killed by signal 11: norm/norm.cuda.o"),
        (128, "error: a command ended without a word, as one that is killed does: norm/norm.cuda.o"),
        (1, "error: a command ended without a word, as one that is killed does: norm/norm.cuda.o"),
    ],
)
def test_of_a_compiler_that_was_killed_it_is_the_signal(code, line):
    log = f"[1/2] nvcc -o norm/norm.cuda.o\nFAILED: [code={code}] norm/norm.cuda.o \nnvcc -o norm/norm.cuda.o"
    assert deciding_line(f"Ninja build failed. Ninja output:\n{log}") == line


def test_of_no_message_it_is_empty():
    assert deciding_line("") == ""


def test_long_folders_go_first():
    line = f"{SITE}flashinfer/data/include/flashinfer/gemm/bmm_fp8.cuh:22:10: fatal error: cublasLt.h: No such file"
    assert deciding_line(f"In file included from {OPS}a.cu:\n{line}, asked for by {OPS}gemm/bmm_fp8.cu") == (
        ".../flashinfer/data/include/flashinfer/gemm/bmm_fp8.cuh:22:10: fatal error: cublasLt.h: No such file, "
        "asked for by .../gemm/bmm_fp8.cu"
    )


def test_a_short_line_keeps_its_folders():
    line = f"{OPS}norm/norm.so: error: Permission denied"
    assert deciding_line(line) == line


@pytest.mark.parametrize("before", [0, 390, 410, 3000, 30000])
def test_what_follows_the_word_error_is_whole(before):
    told = deciding_line("x" * before + " error: cublasLt.h: No such file or directory" + ", because of y" * 5)
    assert told.endswith("error: cublasLt.h: No such file or directory" + ", because of y" * 5)
    assert len(told) <= LIMIT


def test_a_line_that_is_too_long_after_the_error_loses_its_end():
    told = deciding_line("x" * 500 + " error: " + "y" * 5000)
    assert told.startswith("...error: yyy")
    assert told.endswith("y...")
    assert len(told) == LIMIT


def test_a_long_line_without_an_error_loses_its_end():
    assert deciding_line("x" * 5000) == "x" * (LIMIT - 3) + "..."


def test_a_hostile_line_takes_no_time():
    assert len(deciding_line("/a" * 50000 + " error: x")) <= LIMIT


@pytest.mark.parametrize("after", ["ninja: build stopped: subcommand failed.", "[2/3] c++ b.cc", "FAILED: b.o", ""])
def test_of_a_command_that_said_nothing_it_is_that(after):
    said = f"Ninja build failed. Ninja output:\n[1/3] c++ a.cc\nFAILED: a.o \nc++ a.cc\n{after}\n"
    assert deciding_line(said) == "error: a command ended without a word, as one that is killed does: a.o"


def test_of_a_command_that_said_something_it_is_not():
    said = "Ninja build failed. Ninja output:\nFAILED: a.o \nc++ a.cc\nsomething\nninja: build stopped\n"
    assert deciding_line(said) == "Ninja build failed. Ninja output:"


def test_a_full_disk_comes_first_whatever_stands_before_it():
    path = "/tmp/fi-doctor-run-omj590px/ccgDX2PX.s"
    said = f"{path}: Fatal error: can't write 73 bytes to section .nv_fatbin of /cache/a.o: 'No space left on device'"
    assert deciding_line(said).startswith(f"No space left on device: {path}: Fatal error")


@pytest.mark.parametrize(
    "line",
    [
        "/usr/bin/ld: /cache/norm/norm.cuda.o: file not recognized: file format not recognized",
        "/usr/bin/ld: /cache/norm/norm.cuda.o: file truncated",
    ],
)
def test_a_linker_that_cannot_read_an_object_names_it(line):
    assert deciding_line(f"FAILED: norm.so\nc++ norm.cuda.o -o norm.so\n{line}\ncollect2: error: ld returned 1") == line
