"""Fatal messages of native runtimes."""

import pytest

from kb.parsers.logs.error_lines import error_level
from kb.parsers.logs.native_errors import READERS
from tests.support.parsing import one, structures


@pytest.mark.parametrize(
    ("text", "name", "message", "where", "function"),
    [
        (
            "python3: ../src/ring.cc:41: void Ring::push(int): Assertion `head_ < size_' failed.\n",
            "assertion",
            "head_ < size_",
            "../src/ring.cc:41",
            "void Ring::push(int)",
        ),
        (
            "/usr/include/c++/12/bits/stl_deque.h:1486: reference std::deque<int>::front(): Assertion '!this->empty()' failed.\n",
            "assertion",
            "!this->empty()",
            "/usr/include/c++/12/bits/stl_deque.h:1486",
            "reference std::deque<int>::front()",
        ),
        ("Assertion failed: n > 0 (ring.c: pop: 88)\n", "assertion", "n > 0", "ring.c:88", "pop"),
        ("Assertion failed: (n > 0), function pop, file ring.c, line 88.\n", "assertion", "n > 0", "ring.c:88", "pop"),
        (
            "/System/Volumes/kit/Buffers.mm:71: failed assertion `[Pool, grow:] Error: no room'\n",
            "assertion",
            "[Pool, grow:] Error: no room",
            "/System/Volumes/kit/Buffers.mm:71",
            "",
        ),
        (
            "-[_Queue add:to:]:52: failed assertion `the message goes on\n",
            "assertion",
            "the message goes on",
            "-[_Queue add:to:]:52",
            "",
        ),
        (
            "libc++abi: terminating due to uncaught exception of type std::out_of_range: map::at\n",
            "std::out_of_range",
            "map::at",
            "",
            "",
        ),
        ("libc++abi: terminating due to uncaught exception\n", "uncaught exception", "", "", ""),
        ("LLVM ERROR: Cannot select: t3\n", "LLVM error", "Cannot select: t3", "", ""),
        ("UNREACHABLE executed at lib/Lower.cpp:9!\n", "LLVM error", "", "lib/Lower.cpp:9", ""),
    ],
)
def test_message(text: str, name: str, message: str, where: str, function: str) -> None:
    """Each form gives its type, its message, and the place in the source."""
    fields = one(READERS, text).fields
    told = (fields["type"], fields.get("message", ""), fields.get("where", ""), fields.get("frames", ""))
    assert told == (name, message, where, function)
    assert fields["signal"] == "SIGABRT"


@pytest.mark.parametrize(
    ("text", "name", "message", "where"),
    [
        ("[F 2026-04-07 10:16:40.123 agent.cc:44] store closed\n", "fatal", "store closed", "agent.cc:44"),
        (
            "/src/graph.cc:120: CHECK_EQ failed: lhs == rhs (3 vs 4)\n",
            "check",
            "CHECK_EQ failed: lhs == rhs (3 vs 4)",
            "/src/graph.cc:120",
        ),
    ],
)
def test_fatal_lines_of_other_loggers(text: str, name: str, message: str, where: str) -> None:
    """PyTorch's logger pads no month, others give the level alone or no level at all."""
    fields = one(READERS, text).fields
    assert (fields["type"], fields["message"], fields["where"]) == (name, message, where)
    assert error_level(text.rstrip().encode()) == "fatal"


def test_a_failed_check_has_the_functions_of_its_stack() -> None:
    """The frames of glog's logger are left out; the innermost is last; the rank is that of the prefix."""
    text = (
        "[rank2]:F1104 09:12:31.412331 88123 batch.cc:207] Check failed: rows == 4 (3 vs. 4) uneven\n"
        "[rank2]:*** Check failure stack trace: ***\n"
        "[rank0]:step 7\n"
        "[rank2]:    @     0x7f12d2a1  google::LogMessage::Fail()\n"
        "[rank2]:    @     0x7f12d2c1  data::Batch::Check()\n"
        "[rank2]:    @     0x7f12d2d1  main\n"
        "[rank2]:bye\n"
    )
    found = structures(READERS, text, "fatal_check")[0]
    assert (found.fields["type"], found.fields["where"]) == ("check", "batch.cc:207")
    assert found.fields["message"] == "Check failed: rows == 4 (3 vs. 4) uneven"
    assert found.fields["frames"] == "main\ndata::Batch::Check()"
    assert found.resource.rank == 2
    assert text[found.end :] == "[rank2]:bye\n"


def test_a_fatal_line_before_the_logger_starts() -> None:
    """Abseil writes the time since the epoch until its logger is set up; TensorFlow writes the level behind the time."""
    early = "F0000 00:00:1762247551.5   811 client.h:77] another task died\n"
    found = one(READERS, early)
    assert (found.fields["type"], found.fields["where"], found.time) == ("fatal", "client.h:77", 1762247551.5)
    late = b"2026-11-04 09:12:31.412: F external/xla/service.cc:9] Check failed: ok"
    assert one(READERS, late + b"\n").fields["where"] == "external/xla/service.cc:9"
    assert error_level(late) == error_level(early.encode()) == "fatal"
    assert error_level(b"E0000 00:00:1762247551.5   811 agent.cc:7] lost") == "error"
    assert error_level(b"I0000 00:00:1762247551.5   811 agent.cc:7] ready") is None


@pytest.mark.parametrize(
    "text",
    [
        "[rank1]: thread 'main' panicked at src/lib.rs:8:4:\n[rank0]: step 3\n[rank1]: index out of bounds\n",
        "[rank1]: thread 'main' (771) panicked at src/lib.rs:8:4:\n[rank1]: index out of bounds\n",
        "[rank1]: thread 'main' panicked at 'index out of bounds', src/lib.rs:8:4\n",
    ],
)
def test_a_panic_of_rust(text: str) -> None:
    """The message is in the same line, or in the next one of the same process. It is no crash: Python can catch it."""
    found = one(READERS, text, "rust_panic")
    assert found.kind == "error_line"
    assert found.fields == {
        "level": "fatal",
        "type": "panic",
        "message": "index out of bounds",
        "where": "src/lib.rs:8:4",
        "thread": "main",
    }
    assert found.resource.rank == 1


def test_a_panic_of_go() -> None:
    """The first goroutine gives the frames, innermost last."""
    text = (
        "panic: runtime error: invalid memory address\n[signal SIGSEGV: segmentation violation code=0x1]\n\n"
        "goroutine 7 [running]:\nmain.(*Feed).next(0xc000, 0x3)\n\t/src/feed.go:58 +0x1d4\n"
        "main.main()\n\t/src/main.go:31 +0x9c\n\ngoroutine 9 [select]:\nmain.idle()\n\t/src/idle.go:2 +0x1\n"
    )
    fields = one(READERS, text).fields
    assert (fields["type"], fields["message"]) == ("panic", "runtime error: invalid memory address")
    assert fields["where"] == "/src/feed.go:58"
    assert fields["frames"] == "/src/main.go:31 in main.main\n/src/feed.go:58 in main.(*Feed).next"


@pytest.mark.parametrize(
    "text",
    [
        "Indexing.cu:1290: indexSelect: block: [0,0,0], thread: [64,0,0] Assertion `i < n` failed.\n",
        "Kernel panic: not syncing\n",
        "panic: the operator said so\nstep 3\n",
        "fatal error: cuda.h: No such file or directory\n",
        "W1104 09:12:31.412331 88123 batch.cc:207] Check failed: ok, ignored\n",
        "RuntimeError: Check failed: x\n",
    ],
)
def test_no_native_error(text: str) -> None:
    """Device-side assertions, compilers, warnings and Python's own exceptions have other readers."""
    assert structures(READERS, text) == []


def test_cut_messages() -> None:
    """A message at the end of a window, or without its stack, is read as far as it goes."""
    assert one(READERS, "thread 'a' panicked at src/lib.rs:8:4:").fields.get("message") is None
    assert structures(READERS, "panic: boom\n\ngoroutine 1 [running]:")[0].fields["message"] == "boom"
