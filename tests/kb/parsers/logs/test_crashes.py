"""Native crashes."""

import pytest

from kb.parsers.logs.crashes import READERS
from tests.support.parsing import one, structures


@pytest.mark.parametrize(
    ("text", "signal", "what"),
    [
        ("Fatal Python error: Segmentation fault\n", "SIGSEGV", "Fatal Python error: Segmentation fault"),
        ("Fatal Python error: Aborted\n", "SIGABRT", "Fatal Python error: Aborted"),
        (
            "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: unknown error\nframe #0\n",
            "SIGABRT",
            "c10::Error: CUDA error: unknown error",
        ),
        ("terminate called without an active exception\n", "SIGABRT", "without an active exception"),
        (
            "*** Error in `python': double free or corruption (out): 0x01 ***\n",
            "SIGABRT",
            "double free or corruption (out): 0x01",
        ),
        ("[default2]:free(): invalid pointer\n", "SIGABRT", "free(): invalid pointer"),
        ("malloc(): unaligned tcache chunk detected\n", "SIGABRT", "malloc(): unaligned tcache chunk detected"),
        ("corrupted size vs. prev_size\n", "SIGABRT", "corrupted size vs. prev_size"),
        ("Aborted (core dumped)\n", "SIGABRT", "Aborted (core dumped)"),
        (
            "[cn-b7:771:2:790] Caught signal 7 (Bus error: nonexistent physical address)\n",
            "SIGBUS",
            "Bus error: nonexistent physical address",
        ),
        (
            "*** SIGSEGV received at time=1777691045 on cpu 3 ***\n",
            "SIGSEGV",
            "*** SIGSEGV received at time=1777691045 on cpu 3 ***",
        ),
        (
            "*** Signal 11 (SIGSEGV) (0x3e8) received by PID 4660 (pthread TID 0x7f01), stack trace: ***\n",
            "SIGSEGV",
            "*** Signal 11 (SIGSEGV) (0x3e8) received by PID 4660 (pthread TID 0x7f01), stack trace: ***",
        ),
        ("[3]:  what():  deque::at\n", "SIGABRT", "deque::at"),
        ("[3]:!!!!!!! Segfault encountered !!!!!!!\n", "SIGSEGV", "!!!!!!! Segfault encountered !!!!!!!"),
        (
            "python3[771]: segfault at 8 ip 00007f11 sp 00007ffc error 4 in libnccl.so.2[7f00+90]\n",
            "SIGSEGV",
            "segfault of python3 in libnccl.so.2",
        ),
    ],
)
def test_crash(text, signal, what):
    """Each form gives the signal and the message."""
    found = one(READERS, text)
    assert (found.kind, found.fields["signal"], found.fields["what"]) == ("native_crash", signal, what)


def test_mpi_block():
    """MPI's block is read by its own process's lines, with node and pid from their brackets."""
    text = (
        "[cn-b7:771] *** Process received signal ***\n"
        "[cn-b8:119] *** Process received signal ***\n"
        "[cn-b8:119] Signal: Aborted (6)\n"
        "[cn-b7:771] Signal: Segmentation fault (11)\n"
        "[cn-b7:771] Signal code: Address not mapped (1)\n"
        "[cn-b7:771] Failing at address: 0x10\n"
        "[cn-b7:771] [ 0] /lib64/libpthread.so.0(+0x12cf0)[0x15]\n"
    )
    first, second = structures(READERS, text)
    assert (first.resource.node, first.resource.pid, first.fields["signal"]) == ("cn-b7", 771, "SIGSEGV")
    assert "Failing at address: 0x10" in first.fields["what"]
    assert (second.resource.node, second.fields["signal"]) == ("cn-b8", "SIGABRT")


def test_what_of_another_rank():
    """The message under a C++ exception must come from the same rank."""
    text = (
        "[default1]:terminate called after throwing an instance of 'std::bad_alloc'\n"
        "[default2]:  what():  not mine\n"
        "[default1]:  what():  std::bad_alloc\n"
    )
    assert one(READERS, text).fields["what"] == "std::bad_alloc: std::bad_alloc"


@pytest.mark.parametrize(
    "line",
    [
        "use free(): it releases memory",
        "caught signal handler installed",
        "(core dumped)",
        "the text of what(): is cut",
        "  what():",
    ],
)
def test_no_crash(line):
    """The same words within other sentences are not a crash."""
    assert structures(READERS, line + "\n") == []


def test_a_daemon_that_crashes():
    """A node's own services crash independently of the job; their segfaults are not a crash of it."""
    line = "{}[771]: segfault at 8 ip 00007f11 sp 00007ffc error 4 in libc.so.6[7f00+90]\n"
    assert structures(READERS, line.format("sshd")) == []
    assert structures(READERS, line.format("train_gpt"))


def test_the_innermost_frame_that_mpi_prints_names_a_library():
    """Not the C library, which only carries the signal; nor that of another process in between."""
    block = (
        "[cn-a9:41] *** Process received signal ***\n[cn-a9:41] Signal: Segmentation fault (11)\n"
        "[cn-a9:41] Failing at address: 0x18\n[cn-a9:41] [ 0] /usr/lib64/libpthread.so.0(+0xf370)[0x2acd15aad370]\n"
        "[cn-a9:77] [ 1] /usr/lib64/libother.so.1(+0x1018df)[0x2acd9da198df]\n"
        "[cn-a9:41] [ 1] /usr/lib64/libnccl.so.2(ncclInit+0x18df)[0x2acd9da198df]\n"
        "[cn-a9:41] [ 2] /usr/lib64/libcuda.so.1(+0x25bc44)[0x2acd9db73c44]\n[cn-a9:41] *** End of error message ***\n"
    )
    assert one(READERS, block).fields["library"] == "libnccl.so"


def test_a_library_that_handles_signals_counts_below_the_c_library():
    """Above it, it prints the stack; below, it is what crashed."""
    head = (
        "[cn-a9:41] *** Process received signal ***\n[cn-a9:41] Signal: Segmentation fault (11)\n"
        "[cn-a9:41] Failing at address: 0x18\n"
    )
    handler = "[cn-a9:41] [ 0] /usr/lib64/libopen-pal.so.40(+0x1018df)[0x2acd9da198df]\n"
    carrier = "[cn-a9:41] [ 1] /usr/lib64/libpthread.so.0(+0xf370)[0x2acd15aad370]\n"
    caller = "[cn-a9:41] [ 3] /usr/lib64/libmpi.so.40(MPI_Bcast+0x18df)[0x2acd9da198df]\n"
    assert one(READERS, head + handler + carrier + caller).fields["library"] == "libmpi.so"
    inside = handler.replace("[ 0]", "[ 2]")
    assert one(READERS, head + carrier + inside + caller).fields["library"] == "libopen-pal.so"


UCX = "[cn-a9:41:0:77] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x18)\n"


@pytest.mark.parametrize(
    ("stack", "named"),
    [
        (" 0 0x0000000000042520 __sigaction()  ???:0\n 1 0x00000000000736aa flushShards()  ???:0\n", ("", "flushShards")),
        (" 0  /usr/lib64/libucs.so.0(ucs_handle_error+0x2e4) [0x7f1]\n 1  /opt/lib/libshards.so.2(+0x2e4) [0x7f2]\n", ("libshards.so", "")),
        (" 0 0x0000000000042520 __sigaction()  ???:0\nstep 4\n 1 0x00000000000736aa flushShards()  ???:0\n", ("", "")),
    ],
)  # fmt: skip
def test_the_stack_that_ucx_prints_of_the_same_thread_names_the_place(stack: str, named: tuple[str, str]) -> None:
    """That of another thread, or frames behind another line, do not."""
    header = "==== backtrace (tid:     {}) ====\n"

    found = one(READERS, UCX + header.format(77) + stack).fields
    other = one(READERS, UCX + header.format(78) + stack).fields

    assert (found.get("library", ""), found.get("function", "")) == named
    assert not {"library", "function"} & set(other)


def test_a_stack_of_ucx_without_a_thread_counts_where_it_follows_directly() -> None:
    """As releases before 1.7 print it; behind another line it can be that of another process."""
    stack = (
        "==== backtrace ====\n 0  /usr/lib64/libucs.so.0(+0x22) [0x7f1]\n 1  /opt/lib/libshards.so.2(+0x2e4) [0x7f2]\n"
    )

    assert one(READERS, UCX + stack).fields["library"] == "libshards.so"
    assert "library" not in one(READERS, UCX + "step 5\n" + stack).fields


def test_a_crash_without_frames_names_no_library():
    """A later line of the process is no frame."""
    block = (
        "[cn-a9:41] *** Process received signal ***\n[cn-a9:41] Signal: Segmentation fault (11)\n"
        "[cn-a9:41] Failing at address: 0x18\n[cn-a9:41] *** End of error message ***\n"
        "[cn-a9:41] [ 1] /usr/lib64/libcuda.so.1(+0x25bc44)[0x2acd9db73c44]\n"
    )
    assert "library" not in one(READERS, block).fields
