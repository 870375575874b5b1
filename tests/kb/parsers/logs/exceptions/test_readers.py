"""Python exceptions: tracebacks in every print form, and last lines alone."""

import json

import pytest

from kb.parsers.logs.exceptions.exception_line import MAX_MESSAGE
from kb.parsers.logs.exceptions.frames import MAX_FRAMES
from kb.parsers.logs.exceptions.readers import READERS
from tests.support.parsing import one, structures


def headed(text):
    """Structures that the traceback reader gives."""
    return structures(READERS, text, "traceback")


def alone(text):
    """Structures that the reader of single lines gives."""
    return structures(READERS, text, "exception_line")


def trace(exception, *functions, prefix="", path="/opt/run/fit.py"):
    """A traceback with one frame for each function, outermost first."""
    lines = ["Traceback (most recent call last):"]
    for number, function in enumerate(functions or ("main",), start=11):
        lines += [f'  File "{path}", line {number}, in {function}', f"    {function}(batch)"]
    return "".join(f"{prefix}{line}\n" for line in [*lines, exception])


def test_the_programs_own_lines_are_kept():
    """With or without the header; not those of installed packages, and none where two tracebacks are interleaved."""
    own = '  File "/srv/fit.py", line 3, in load\n    rows = read(path)\n           ^^^^^^^^^^\n'
    site = '  File "/opt/lib/python3.11/site-packages/rows/io.py", line 9, in read\n    return parse(handle)\n'
    header, end = "Traceback (most recent call last):\n", "ValueError: 7 columns\n"
    expected = "/srv/fit.py:3 in load\trows = read(path)"

    assert one(READERS, header + own + site + end, "traceback").fields["sources"] == expected
    assert one(READERS, own + site + end, "exception_line").fields["sources"] == expected
    other = own.replace("line 3", "line 8").replace("read(path)", "draw(path)")
    pairs = zip(own.splitlines(keepends=True), other.splitlines(keepends=True), strict=True)
    mixed = structures(READERS, header + header + "".join(a + b for a, b in pairs) + end + end, "traceback")
    assert ["sources" in found.fields for found in mixed] == [False, False]


def test_plain_traceback():
    """A traceback gives type, module, message, frames outermost first, and the position of its exception line."""
    text = "epoch 3\n" + trace("torch.cuda.OutOfMemoryError: CUDA out of memory.", "<module>", "step", "forward")
    found = one(READERS, text, "traceback")
    assert found.kind == "exception"
    assert found.fields["type"] == "OutOfMemoryError"
    assert found.fields["module"] == "torch.cuda"
    assert found.fields["message"] == "CUDA out of memory."
    assert found.fields["frames"].splitlines() == [
        "/opt/run/fit.py:11 in <module>",
        "/opt/run/fit.py:12 in step",
        "/opt/run/fit.py:13 in forward",
    ]
    assert found.fields["last_frame"] == "/opt/run/fit.py:13 in forward"
    assert found.fields["chain"] == 0
    assert found.fields["chained"] == ""
    assert found.fields["has_traceback"] == "yes"
    assert found.fields["start"] == text.index("Traceback")
    assert found.offset == text.index("torch.cuda")
    assert found.end == len(text)
    assert found.line == "torch.cuda.OutOfMemoryError: CUDA out of memory."


def test_same_offset_as_single_line():
    """The reader of single lines gives the same offset for a traceback's last line, so the two can be made one."""
    text = trace("KeyError: 'labels'")
    assert alone(text)[0].offset == headed(text)[0].offset


def test_markers_and_repeats_are_skipped():
    """Caret markers and `Previous line repeated` belong to the traceback."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/opt/a.py", line 4, in walk\n'
        "    walk(node.left)\n"
        "    ~~~~^^^^^^^^^^^\n"
        "  [Previous line repeated 980 more times]\n"
        "RecursionError: maximum recursion depth exceeded\n"
    )
    assert headed(text)[0].fields["type"] == "RecursionError"


@pytest.mark.parametrize(
    ("prefix", "resource"),
    [
        ("[rank6]: ", {"rank": 6}),
        ("[default3]:", {"local_rank": 3}),
        ("19: ", {"rank": 19}),
        ("(Trainer pid=771, ip=10.2.0.9) ", {"pid": 771, "node": "10.2.0.9"}),
        ("\x1b[36m(Trainer pid=771)\x1b[0m ", {"pid": 771}),
        ("[rank6]:E0911 10:01:02.300000 881 torch/_utils.py:20] ", {"rank": 6}),
    ],
)
def test_prefixed_traceback(prefix, resource):
    """A prefix on each line does not hide the traceback, and identifies the rank."""
    found = one(READERS, trace("ValueError: bad shape", "main", "collate", prefix=prefix), "traceback")
    assert found.fields["type"] == "ValueError"
    assert found.fields["last_frame"].endswith("in collate")
    assert {name: getattr(found.resource, name) for name in resource} == resource


def test_time_comes_from_the_prefix():
    """A time stamp before the exception line is the structure's time."""
    found = one(READERS, trace("ValueError: x", prefix="2026-05-02T03:04:05Z stdout F "), "traceback")
    assert found.time == 1777691045.0


def test_interleaved_with_other_ranks():
    """Lines of other ranks in between are skipped, so each rank keeps its own frames and message."""
    first = trace("KeyError: 'a'", "main", "left", prefix="[rank0]: ").splitlines()
    second = trace("ValueError: b", "main", "right", prefix="[rank1]: ").splitlines()
    text = "\n".join(line for pair in zip(first, second, strict=True) for line in pair) + "\n"
    left, right = headed(text)
    assert (left.resource.rank, left.fields["type"]) == (0, "KeyError")
    assert left.fields["last_frame"].endswith("in left")
    assert (right.resource.rank, right.fields["type"]) == (1, "ValueError")
    assert right.fields["last_frame"].endswith("in right")


def test_interleaved_without_prefixes():
    """Two ranks that write the same traceback at once, line by line, still give type, message and each frame once."""
    lines = trace("RuntimeError: no kernel image", "main", "step").splitlines()
    text = "".join(f"{line}\n{line}\n" for line in lines)
    found = headed(text)[0]
    assert found.fields["type"] == "RuntimeError"
    assert found.fields["message"] == "no kernel image"
    assert found.fields["frames"].count("in step") == 1


def test_doubled_class_name():
    """A class name that two ranks wrote into one line is read once."""
    assert alone("RuntimeErrorRuntimeError: : no kernel image\n")[0].fields["type"] == "RuntimeError"


def test_unrelated_output_in_between():
    """Output of the training loop between the frames does not end the traceback."""
    lines = trace("IndexError: list index out of range").splitlines()
    lines.insert(3, "{'loss': 2.31, 'epoch': 0.4}")
    assert headed("\n".join(lines) + "\n")[0].fields["type"] == "IndexError"


def test_prefix_on_the_header_only():
    """A writer that puts its prefix on the first line of a message only is followed."""
    text = "(raylet) " + trace("ImportError: libfoo.so.3: undefined symbol")
    assert headed(text)[0].fields["type"] == "ImportError"


def test_chain_by_context():
    """Exceptions raised while handling others are counted from the first that was raised."""
    text = (
        trace("KeyError: 'x'")
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + trace("ValueError: y")
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + trace("RuntimeError: z")
    )
    found = [(each.fields["type"], each.fields["chain"], each.fields["chained"]) for each in headed(text)]
    assert found == [("KeyError", 0, ""), ("ValueError", 1, "context"), ("RuntimeError", 2, "cause")]


def test_chain_with_prefix():
    """The words that tie two tracebacks together are found behind a prefix too."""
    between = "[rank2]: \n[rank2]: The above exception was the direct cause of the following exception:\n[rank2]: \n"
    text = trace("KeyError: 'x'", prefix="[rank2]: ") + between + trace("ValueError: y", prefix="[rank2]: ")
    assert [each.fields["chain"] for each in headed(text)] == [0, 1]


def test_worker_reraise():
    """A loader worker's own traceback is chain 0, the one that reports it chain 1 with it as its cause."""
    text = trace("KeyError: Caught KeyError in DataLoader worker process 2.", "main", "reraise") + trace(
        "KeyError: 'pixel_values'", "fetch", "collate"
    ).replace("Traceback", "Original Traceback")
    outer, inner = headed(text)
    assert (outer.fields["chain"], outer.fields["chained"]) == (1, "cause")
    assert (inner.fields["chain"], inner.fields["message"]) == (0, "'pixel_values'")


def test_remote_traceback():
    """A pool worker's quoted traceback is chain 0; the quote's name is no exception."""
    text = (
        'multiprocessing.pool.RemoteTraceback: \n"""\n'
        + trace("OSError: [Errno 28] No space left on device")
        + '"""\n\nThe above exception was the direct cause of the following exception:\n\n'
        + trace("OSError: [Errno 28] No space left on device")
    )
    assert [each.fields["chain"] for each in headed(text)] == [0, 1]
    assert headed(text)[0].fields["message"] == "[Errno 28] No space left on device"


REMOTE = (
    "ray.exceptions.RayTaskError(ValueError): \x1b[36mray::Loop.fit()\x1b[39m (pid=41, ip=10.0.3.3)\n"
    '  File "/opt/loop.py", line 88, in fit\n'
    "    self.group.step()\n"
    "ray.exceptions.RayTaskError(ValueError): ray::Worker.step() (pid=57, ip=10.0.3.4)\n"
    '  File "/opt/worker.py", line 9, in step\n'
    "    raise ValueError('short batch')\n"
    "ValueError: short batch\n"
)


def test_remote_task_errors():
    """A remote task's error gives one structure a level, the innermost as chain 0 with its own frames."""
    found = headed(trace("", "main").rstrip("\n") + "\n" + REMOTE)
    assert [(each.fields["type"], each.fields["chain"]) for each in found] == [
        ("RayTaskError", 2),
        ("RayTaskError", 1),
        ("ValueError", 0),
    ]
    assert found[-1].fields["frames"] == "/opt/worker.py:9 in step"


def test_remote_task_error_without_header():
    """The result is the same where the driver's own traceback is cut off."""
    found = alone(REMOTE)
    assert [each.fields["chain"] for each in found[:3]] == [2, 1, 0]
    assert found[2].fields["has_traceback"] == "yes"


def test_remote_cause_without_header():
    """A remote task's chain has `ray::name()` in place of the header; its links are counted all the same."""
    text = (
        "Unhandled error (suppress with 'X=1'): ray::Loop.fit() (pid=41, ip=10.0.3.3)\n"
        '  File "/opt/loop.py", line 8, in fit\n    d["k"]\nKeyError: \'k\'\n\n'
        "The above exception was the direct cause of the following exception:\n\n"
        "ray::Loop.fit() (pid=41, ip=10.0.3.3)\n"
        '  File "/opt/loop.py", line 9, in fit\n    raise RuntimeError\nRuntimeError: no k\n'
    )
    first, second = alone(text)
    assert (first.fields["type"], first.fields["chain"]) == ("KeyError", 0)
    assert (second.fields["type"], second.fields["chain"], second.fields["chained"]) == ("RuntimeError", 1, "cause")
    assert second.fields["last_frame"] == "/opt/loop.py:9 in fit"


def test_both_readers_agree():
    """A traceback's structure is the same by its header and by its last line, so it does not matter which is kept."""
    text = trace("KeyError: 'x'") + "\nDuring handling of the above exception, another exception occurred:\n\n"
    text += trace("ValueError: y", "main", "step")
    assert [each.fields for each in headed(text)] == [each.fields for each in alone(text)]


def test_user_code_frames():
    """Frames printed under `from user code:` become the innermost ones."""
    text = (
        trace("torch._dynamo.exc.Unsupported: call_method on list", "compile", path="/opt/torch/exc.py")
        + '\nfrom user code:\n   File "/opt/run/net.py", line 31, in forward\n    y = x.tolist()\n\nSet the variable\n'
    )
    found = headed(text)[0]
    assert found.fields["type"] == "Unsupported"
    assert found.fields["last_frame"] == "/opt/run/net.py:31 in forward"


def test_boxed_traceback():
    """A traceback drawn in a box gives its frames, and the exception under the box."""
    text = (
        "╭─────────────── Traceback (most recent call last) ────────────────╮\n"
        "│ /opt/run/fit.py:412 in main                                      │\n"
        "│                                                                  │\n"
        "│   411 │   for batch in loader:                                   │\n"
        "│ ❱ 412 │   │   step(batch)                                        │\n"
        "│                                                                  │\n"
        "│ /opt/run/fit.py:97 in step                                       │\n"
        "╰──────────────────────────────────────────────────────────────────╯\n"
        "RuntimeError: shapes cannot be multiplied\n"
    )
    found = headed(text)[0]
    assert found.fields["type"] == "RuntimeError"
    assert found.fields["frames"].splitlines() == ["/opt/run/fit.py:412 in main", "/opt/run/fit.py:97 in step"]


def test_exception_group():
    """A group's members are read through its margins and come before the group in the chain."""
    text = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/opt/a.py", line 3, in <module>\n'
        "  |     asyncio.run(main())\n"
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/opt/a.py", line 9, in pull\n'
        "    |     raise TimeoutError('no reply')\n"
        "    | TimeoutError: no reply\n"
        "    +------------------------------------\n"
    )
    group, member = headed(text)
    assert (group.fields["type"], group.fields["chain"]) == ("ExceptionGroup", 1)
    assert (member.fields["type"], member.fields["chain"]) == ("TimeoutError", 0)


def test_indented_traceback():
    """A traceback that is indented inside a report is read by its own indentation."""
    text = "  traceback : " + trace("ValueError: boom").replace("\n", "\n  ") + "\n"
    assert headed(text)[0].fields["message"] == "boom"


def test_indented_traceback_cut_above():
    """A traceback that is indented as a whole and lacks its header is read from its frames to its exception line."""
    text = (
        '    File "/opt/run/fit.py", line 12, in build\n      mesh = dims.mesh("tp")\n'
        '    File "/opt/run/dims.py", line 30, in mesh\n      raise ValueError(\n      ...<2 lines>...\n      )\n'
        "  ValueError: no mesh of that name\n"
    )
    (found,) = alone(text)
    assert (found.fields["type"], found.fields["message"]) == ("ValueError", "no mesh of that name")
    assert found.fields["last_frame"] == "/opt/run/dims.py:30 in mesh"
    assert found.fields["start"] == 0


@pytest.mark.parametrize("above", ["", "  options:\n", '  File "/opt/run/fit.py", line 12, in build\n'])
def test_indented_text_is_no_exception(above):
    """An indented line that looks like an exception is one only where it stands below a frame, two columns to its left."""
    assert alone(f"{above}  ValueError: raised for bad sizes\n") == []


def test_thread_name():
    """The line that names the thread or child process is kept."""
    text = "Exception in thread Thread-7 (_pin_memory_loop):\n" + trace("EOFError")
    assert headed(text)[0].fields["thread"] == "Thread-7 (_pin_memory_loop)"


def test_message_of_several_lines():
    """A message continues over lines that are not log lines, and ends at a blank one."""
    text = trace(
        "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for head.weight\n\nstep 4 done"
    )
    found = headed(text)[0]
    assert found.fields["message"] == "Error(s) in loading state_dict for Net:\n\tsize mismatch for head.weight"
    assert found.end == text.index("\nstep")


@pytest.mark.parametrize(
    "other",
    [
        "2026-05-02 03:04:05,120 INFO step 4",
        "ERROR:torch.distributed.elastic:failed",
        "srun: error: node-b: task 4: Killed",
        "gpu-7:812:901 [1] NCCL INFO comm 0x1 abort",
        "KeyError: 'next'",
        "Traceback (most recent call last):",
        "==========================",
        "[rank3]: RuntimeError: another",
    ],
)
def test_message_ends_at_other_lines(other):
    """Log lines, other exceptions and blocks are not part of a message."""
    text = trace("RuntimeError: first") + other + "\n"
    assert headed(text)[0].fields["message"] == "first"


def test_message_ends_at_the_native_records_of_its_rank():
    """A warning that the same rank prints at its exit is not part of the message, whoever prints one before it."""
    lines = trace("RuntimeError: first").splitlines(keepends=True)
    text = "".join(f"[rank0]: {line}" for line in lines)
    for who in (3, 0):
        text += f"[rank{who}]:[W1209 09:20:54.366258958 ProcessGroupNCCL.cpp:1541] Warning: leaked (function f)\n"
    assert headed(text)[0].fields["message"] == "first"


def test_bounds():
    """Frames, messages and lines are cut to what docs promise."""
    text = trace("RuntimeError: " + "m" * 9000, *[f"f{number}" for number in range(90)])
    found = headed(text)[0]
    assert len(found.fields["frames"].splitlines()) == MAX_FRAMES
    assert found.fields["last_frame"].endswith("in f89")
    assert len(found.fields["message"]) == MAX_MESSAGE
    assert len(found.line) == 512


def test_broken_bytes():
    """Bytes that are not UTF-8 are replaced, not refused."""
    found = alone(b"ValueError: \xff\xfe name\n")[0]
    assert "�" in found.fields["message"]


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n",
        trace("").rstrip("\n"),
        "Traceback (most recent call last):\n" + "step 3 done\n" * 60 + "ValueError: much later\n",
    ],
)
def test_traceback_without_its_end(text):
    """A header without frames or exception line gives nothing."""
    assert headed(text) == []


@pytest.mark.parametrize(
    ("line", "module", "name", "message"),
    [
        (
            "RuntimeError: CUDA error: unspecified launch failure",
            "",
            "RuntimeError",
            "CUDA error: unspecified launch failure",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory", "torch", "OutOfMemoryError", "CUDA out of memory"),
        (
            "torch._dynamo.exc.Unsupported: data-dependent jump",
            "torch._dynamo.exc",
            "Unsupported",
            "data-dependent jump",
        ),
        (
            "json.decoder.JSONDecodeError: Expecting value: line 1",
            "json.decoder",
            "JSONDecodeError",
            "Expecting value: line 1",
        ),
        ("AssertionError", "", "AssertionError", ""),
        ("KeyboardInterrupt", "", "KeyboardInterrupt", ""),
        ("SystemExit: 3", "", "SystemExit", "3"),
        ("Exception: worker gone", "", "Exception", "worker gone"),
        ("E   KeyError: 'mask'", "", "KeyError", "'mask'"),
        (
            "absl.flags._exceptions.UnrecognizedFlagError:Unknown flag",
            "absl.flags._exceptions",
            "UnrecognizedFlagError",
            "Unknown flag",
        ),
        (
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 88 got signal: 15",
            "torch.distributed.elastic.multiprocessing.api",
            "SignalException",
            "Process 88 got signal: 15",
        ),
    ],
)
def test_line_alone(line, module, name, message):
    """A last line alone at the start of a message is an exception without a traceback."""
    found = alone(line + "\n")[0]
    assert (found.fields["module"], found.fields["type"], found.fields["message"]) == (module, name, message)
    assert found.fields["has_traceback"] == "no"


def test_line_alone_with_prefix():
    """These lines may follow prefixes and a host name."""
    assert one(READERS, "[rank3]: ValueError: x\n").resource.rank == 3
    assert one(READERS, "cn0412c3: AssertionError: x\n").resource.node == "cn0412c3"


def test_frames_above_a_line_alone():
    """Where a log starts inside a traceback, the frames that are left are kept."""
    found = one(READERS, '  File "/opt/a.py", line 5, in load\n    open(name)\nPermissionError: [Errno 13] denied\n')
    assert found.fields["last_frame"] == "/opt/a.py:5 in load"


@pytest.mark.parametrize(
    "line",
    [
        "WARNING:pool:ConnectionError: retrying in 4 s",
        "2026-05-02 03:04:05 WARNING pool ConnectionError: retrying",
        "the job failed with RuntimeError: see above",
        '    raise ValueError("x")',
        "except KeyError:",
        "    except KeyError:",
        "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x42",
        "ncclSystemError: System call failed",
        "Error: no such file",
        "UserWarning: deprecated",
        "sklearn.exceptions.ConvergenceWarning: 200 iterations were not enough",
        "requests.exceptions.ReadTimeout: read timed out",
        "app.errors.Total: 12",
        "pool.exceptions.MAX: 4 of 8",
        "        ValueError: in a block of text",
        "Exception raised from query at ../aten/src:95 (most recent call first):",
    ],
)
def test_no_exception(line):
    """Prose, log lines, source lines and native names are not exceptions."""
    assert alone(line + "\n") == []


def test_an_exception_that_python_ignores_needs_no_traceback():
    """Output that nobody reads any more raises at exit; Python prints two lines and continues."""
    text = "Training completed.\nException ignored in: <_io.TextIOWrapper name='<stdout>' mode='w'>\n"
    assert [item.fields.get("lived_with") for item in alone(text + "BrokenPipeError: [Errno 32] Broken pipe\n")] == [
        "yes"
    ]
    assert [item.fields.get("lived_with") for item in alone("BrokenPipeError: [Errno 32] Broken pipe\n")] == [None]


LIVED_WITH = [
    "Exception ignored in: <function Pool.__del__ at 0x7f11>\n",
    "12: Import of fast_norm from lib.kernels failed with: ",
    "WARNING reader: item 412 could not be read, skipping\n",
    "ERROR upload failed for step-300, will try again at the next save\n",
    "ERROR record 153 is broken, set aside (1 so far)\n",
    "--- Logging error ---\n",
]
GOING_ON = "step 11 of 90\nstep 12 of 90\nstep 13 of 90\n"


@pytest.mark.parametrize("said", LIVED_WITH)
def test_what_the_program_lives_with(said):
    """A traceback that the program shows and says to go on from is lived with."""
    prefix = "12: " if said.startswith("12: ") else ""
    text = said + trace("OSError: [Errno 5] bad block", "load", prefix=prefix).removeprefix(prefix) + GOING_ON
    assert {found.fields.get("lived_with") for found in structures(READERS, text)} == {"yes"}


@pytest.mark.parametrize("after", ["", "srun: error: cn3: task 0: Exited with exit code 1\n", "step 11 of 90\n"])
def test_last_traceback_behind_a_skip(after):
    """A skip just above does not count where the run does not continue after the traceback."""
    said = "WARNING reader: item 412 could not be read, skipping\n"
    found = structures(READERS, said + trace("OSError: [Errno 5] bad block", "load") + after)
    assert {value.fields.get("lived_with") for value in found} == {None}


def test_condas_hint_to_the_shell_of_the_job():
    """The script runs on in the environment that it has."""
    hint = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
    assert [item.fields.get("lived_with") for item in alone(hint)] == ["yes"]


def test_a_notice_that_numpy_prints_on_import():
    """NumPy prints it without a traceback and goes on; with one, the import failed."""
    notice = "RuntimeError: module compiled against API version 0xc but this version of numpy is 0xa"
    assert [item.fields.get("lived_with") for item in alone(notice + "\n")] == ["yes"]
    assert [item.fields.get("lived_with") for item in headed(trace(notice, "<module>"))] == [None]


@pytest.mark.parametrize(
    ("after", "lived_with"), [("step 11 of 90\n", "yes"), ("", None), ("srun: error: task 0\n", None)]
)
def test_a_part_that_the_program_disables(after, lived_with):
    """A program that says what it will do without goes on, if anything calm follows."""
    said = "[ERROR] An exception occurred in telemetry logging. Disabling telemetry to prevent further exceptions.\n"
    found = structures(READERS, said + trace("AttributeError: _event", "log") + after)
    assert {value.fields.get("lived_with") for value in found} == {lived_with}


def test_clean_up_at_exit():
    """What multiprocessing meets while it cleans up at exit is lived with."""
    text = trace(
        "FileNotFoundError: [Errno 2] gone", "_run_finalizers", "__call__", path="/lib/multiprocessing/util.py"
    )
    assert {found.fields.get("lived_with") for found in structures(READERS, text)} == {"yes"}


@pytest.mark.parametrize(
    ("file", "lived_with"), [("multiprocessing/resource_sharer.py", "yes"), ("multiprocessing/managers.py", None)]
)
def test_the_sharer_of_tensors_goes_on(file, lived_with):
    """The thread that hands shared tensors to other processes prints that one is gone, and serves the next."""
    text = trace("ConnectionResetError: [Errno 104] Connection reset by peer", "_serve", "accept", path=f"/lib/{file}")
    assert {found.fields.get("lived_with") for found in structures(READERS, text)} == {lived_with}


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([("<string>", 9, "<module>"), ("<string>", 4, "solve")], "yes"),
        ([("<string>", 1, "<module>"), ("<string>", 4, "solve")], None),  # python -c
        ([("/opt/run.py", 9, "<module>"), ("<string>", 4, "solve")], None),
    ],
)
def test_code_from_a_string(frames, expected):
    """If all frames are code from a string, the program that ran it handled and printed the exception itself."""
    lines = "".join(f'  File "{path}", line {line}, in {name}\n' for path, line, name in frames)
    text = (
        f"completion 7 did not pass:\nTraceback (most recent call last):\n{lines}IndexError: list index out of range\n"
    )
    assert {found.fields.get("lived_with") for found in structures(READERS, text)} == {expected}


@pytest.mark.parametrize(
    ("above", "below", "expected"),
    [
        ("step 25 loss 2.2", "", None),  # the last lines of a `python -c` with several lines, or of an `exec`
        ("step 25 loss 2.2", "exit code 1\n", None),
        ("step 25 loss 2.2", "bye\n", None),
        ("step 25 loss 2.2", "step 26 loss 2.1\nstep 27 loss 2.1\nstep 28 loss 2.0\n", "yes"),
        ("[grader] problem 4, candidate 2:", "", "yes"),
    ],
)
@pytest.mark.parametrize("frame", ["<module>", "check"])
def test_code_from_a_string_that_ended_the_program(above, below, expected, frame):
    """Only a test that the line above tells of, or a program that goes on, excuses what code from a string raises."""
    trace = f'Traceback (most recent call last):\n  File "<string>", line 7, in {frame}\nValueError: sizes differ\n'
    found = structures(READERS, f"{above}\n{trace}{below}")
    assert {item.fields.get("lived_with") for item in found} == {expected}
    again = structures(READERS, f"{above}\n{trace}{trace}{below}")
    assert again[0].fields.get("lived_with") == expected


@pytest.mark.parametrize(
    ("level", "below", "expected"),
    [
        ("WARNING", "loading weights\nweights loaded\nready\n", "yes"),
        ("WARNING", "", None),
        ("ERROR", "loading weights\nweights loaded\nready\n", None),
    ],
)
def test_an_exception_logged_as_a_warning(level, below, expected):
    """The program that wrote it below the level of an error went on, if further lines follow."""
    head = f"(Core pid=77) {level} 06-25 16:32:09 [kernels.py:40] "
    lines = [
        "Traceback (most recent call last):",
        '  File "/srv/kernels.py", line 38, in find',
        "    import fast",
        "ImportError: no fast",
    ]
    found = structures(READERS, "".join(f"{head}{line}\n" for line in lines) + below)
    assert {item.fields.get("lived_with") for item in found} == {expected}


def test_an_error_in_a_destructor():
    """The interpreter prints and ignores what a destructor raises, also where another thread's lines split the report."""
    text = trace("AttributeError: 'NoneType' object has no attribute 'flush'", "__del__")
    assert {found.fields.get("lived_with") for found in structures(READERS, text)} == {"yes"}
    other = trace("AttributeError: 'NoneType' object has no attribute 'flush'", "delete")
    assert {found.fields.get("lived_with") for found in structures(READERS, other)} == {None}


def test_line_alone_that_tells_a_way_out():
    """An exception in a line that goes on to name an alternative is survived."""
    excused = "ModuleNotFoundError: No module named 'fast_norm' -- falling back to plain layers\n"
    assert [found.fields.get("lived_with") for found in alone(excused)] == ["yes"]
    bare = "ModuleNotFoundError: No module named 'fast_norm'\n"
    assert [found.fields.get("lived_with") for found in alone(bare)] == [None]


def test_a_warning_below_that_the_program_does_without():
    """A program that warns right below the traceback that it falls back, and then works on, has survived it."""
    raised = trace("ValueError: no column mask", "prepare")
    warned = "2026-06-22 13:23:07 WARNING data.py: preprocessing in a child failed, falling back to this process\n"
    steps = "".join(f"step {number} loss 2.{number}\n" for number in range(1, 9))
    assert {found.fields.get("lived_with") for found in structures(READERS, raised + warned + steps)} == {"yes"}
    for after in (warned, warned + "srun: error: task 0 exited\n" + steps, steps):
        assert {found.fields.get("lived_with") for found in structures(READERS, raised + after)} == {None}


_LEVELS = ["ERROR 09-30 11:02:03 [engine.py:77] ", "ERROR    | worker:run:31 - ", "pool.worker - ERROR - "]


@pytest.mark.parametrize("level", ["ERROR:    ", "ERROR ", "[ERROR] ", "CRITICAL: ", "FATAL - ", *_LEVELS])
def test_line_alone_behind_a_level(level):
    """A logger's level before the last line alone is not part of the class name."""
    found = one(READERS, f"{level}PermissionError: [Errno 13] Permission denied: '/srv/cache'\n", "exception_line")
    assert found.fields["type"] == "PermissionError"
    assert found.fields["message"] == "[Errno 13] Permission denied: '/srv/cache'"


@pytest.mark.parametrize("level", ["INFO: ", "WARNING: ", "DEBUG "])
def test_no_line_alone_behind_a_lower_level(level):
    """What a logger only notes or warns of has not ended anything."""
    assert alone(f"{level}PermissionError: [Errno 13] Permission denied: '/srv/cache'\n") == []


def test_message_that_begins_indented_on_the_next_line():
    """A message whose text starts below the class name is read, though it is indented like a source line."""
    text = (
        trace("RuntimeError: ", "save")
        + "            Some tensors share memory: [{'a', 'b'}].\n            Use another call.\n"
    )
    message = str(one(READERS, text, "traceback").fields["message"])
    assert " ".join(message.split()) == "Some tensors share memory: [{'a', 'b'}]. Use another call."


def test_interrupt_met_in_a_finalizer():
    """An interrupt that a finaliser prints is how the run ended, not something that the program lives with."""
    text = "Exception ignored in: <function Loader.__del__ at 0x7f>\n" + trace("KeyboardInterrupt", "__del__", "put")
    (found,) = headed(text)
    assert (found.fields["type"], found.fields.get("lived_with")) == ("KeyboardInterrupt", None)


def test_exception_shown_by_hydra():
    """Without a traceback Hydra shows what its target raised on the line below, as Python would write the value."""
    text = "Error in call to target 'pkg.models.make':\nTypeError(\"make() got an unexpected keyword argument 'w'\")\nfull_key: m\n"
    found = one(READERS, text, "hydra_target")
    assert (found.fields["type"], found.fields["message"]) == (
        "TypeError",
        "make() got an unexpected keyword argument 'w'",
    )
    assert found.line.startswith("TypeError(")


@pytest.mark.parametrize(
    "text",
    [
        "Error in call to target 'pkg.make':\nfull_key: model\n",
        "InstantiationException: Error in call to target 'pkg.make':\nTypeError('no')\n",
        "Error in call to target 'pkg.make': TypeError('no')\n",
        "Error in call to target 'pkg.make':",
    ],
)
def test_nothing_shown_by_hydra(text):
    """Other lines, and those that are the message of a raised exception, are left to the other readers."""
    assert structures(READERS, text, "hydra_target") == []


JAVA = (
    "{0}org.apache.spark.SparkException: Job aborted: task 3 failed\n"
    "{0}\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2785)\n"
    "{0}\tat Main.main(Main.java:9)\n"
    "{0}Caused by: java.io.IOException: Input/output error\n"
    "{0}\tat java.base/java.io.FileInputStream.readBytes(Native Method)\n"
    "{0}\t... 12 more\n"
    "{0}step 3\n"
)


@pytest.mark.parametrize("prefix", ["", "[rank3]: "])
def test_exceptions_of_java(prefix):
    """`Caused by` is the inner link of a chain; frames are in Python's order, and no part of the message."""
    outer, inner = (item for item in alone(JAVA.format(prefix)) if item.fields["start"] == 0)
    assert (outer.fields["type"], outer.fields["message"]) == ("SparkException", "Job aborted: task 3 failed")
    assert (outer.fields["chain"], outer.fields["chained"], inner.fields["chain"]) == (1, "cause", 0)
    assert outer.fields["frames"].splitlines() == [
        "Main.java:9 in Main.main",
        "DAGScheduler.scala:2785 in org.apache.spark.scheduler.DAGScheduler.abortStage",
    ]
    assert (inner.fields["module"], inner.fields["type"]) == ("java.io", "IOException")
    assert inner.fields["last_frame"] == "Native Method in java.base/java.io.FileInputStream.readBytes"
    assert inner.resource.rank == (3 if prefix else None)


def test_traceback_in_a_json_line():
    """Each traceback in a string of a JSON line is read, with the line's rank and time."""
    chain = trace("KeyError: 'a'", "load") + "\nDuring handling of the above exception, another exception occurred:\n\n"
    record = {"ts": "2026-11-04T09:00:00Z", "level": "ERROR", "rank": 3, "exc_info": chain + trace("ValueError: no a")}
    text = json.dumps({"level": "INFO", "message": "step"}) + "\n" + json.dumps(record) + "\n"
    inner, outer = headed(text)
    assert [(item.fields["type"], item.fields["chain"]) for item in (inner, outer)] == [
        ("KeyError", 0),
        ("ValueError", 1),
    ]
    assert inner.fields["frames"] == "/opt/run/fit.py:11 in load"
    assert (inner.resource.rank, inner.time) == (3, 1793782800.0)
    assert text.index("\n") < inner.offset < outer.offset < outer.end == len(text)


@pytest.mark.parametrize("cut", [90, 130, 200])
def test_cut_traceback_in_a_json_line(cut):
    """A line that a shipper cut gives what it still has, or nothing."""
    text = json.dumps({"level": "ERROR", "exc_info": trace("ValueError: no a")})[:cut] + "\n"
    assert [item.fields["type"] for item in headed(text)] in ([], ["ValueError"])


def test_json_line_within_a_json_line():
    """A container's log driver wraps the program's own JSON once more."""
    text = json.dumps({"log": json.dumps({"rank": 3, "exc_info": trace("KeyError: 'a'")}) + "\n", "stream": "stderr"})
    (found,) = headed(text + "\n")
    assert (found.fields["type"], found.fields["message"]) == ("KeyError", "'a'")


def test_exception_in_a_json_message():
    """Without a traceback, the message of a JSON line counts at error level only."""
    record = {"level": "error", "rank": 3, "msg": "ValueError: no a"}
    (found,) = alone(json.dumps(record) + "\n")
    assert (found.fields["type"], found.fields["message"], found.resource.rank) == ("ValueError", "no a", 3)
    assert alone(json.dumps({**record, "level": "warning"}) + "\n") == []


@pytest.mark.parametrize(
    "record",
    [
        lambda line: {"log": f"{line}\n", "stream": "stderr", "time": "2025-04-02T11:20:00.1Z"},
        lambda line: {"ts": 1743592800.1, "level": "error", "message": line},
        lambda line: {"_HOSTNAME": "node-a", "PRIORITY": "3", "MESSAGE": line},
        lambda line: {"PRIORITY": "6", "_TRANSPORT": "stdout", "MESSAGE": line},
    ],
)
def test_each_line_of_a_traceback_in_a_record_of_its_own(record):
    """The frames are in the records above."""
    lines = trace('ValueError: no "a"', "main", "step").splitlines()
    text = "".join(f"{json.dumps(record(line))}\n" for line in ["step 7", *lines])
    (found,) = alone(text)
    assert found.fields["type"] == "ValueError"
    assert found.fields["frames"].splitlines() == ["/opt/run/fit.py:11 in main", "/opt/run/fit.py:12 in step"]
    assert found.fields["start"] == text.index("\n") + 1
    assert alone(text.replace("Error: no", "Warning: no")) == []


def test_process_of_spawn():
    """`torch.multiprocessing.spawn` names the process above its traceback."""
    (found,) = headed("-- Process 2 terminated with the following error:\n" + trace("KeyError: 'a'"))
    assert found.resource.local_rank == 2
    (line,) = alone("-- Process 2 terminated with the following error:\n" + trace("KeyError: 'a'"))
    assert line.resource.local_rank == 2


@pytest.mark.parametrize(("told", "rank"), [("3", 3), ("-1", None)])
def test_rank_that_torch_npu_adds_below_an_exception(told, rank):
    """The line below names process, device and rank; -1 is an unknown rank."""
    (found,) = headed(
        trace("RuntimeError: not contiguous")
        + f"[ERROR] 2027-02-09-17:40:02 (PID:71, Device:0, RankID:{told}) ERR02002 DIST invalid type\n"
    )
    assert found.resource.rank == rank


def test_process_of_a_remote_task():
    """The exception within a remote task's error belongs to the task's process, not to the driver that prints it."""
    found = headed(trace("", "main").rstrip("\n") + "\n" + REMOTE)
    assert [(item.resource.node, item.resource.pid) for item in (found[0], found[-1])] == [
        (None, None),
        ("10.0.3.4", 57),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-04 09:00:00][rank 3] {}",
        "Epoch 1:  30%|###  | 3/10 [00:01<00:02, 1.20it/s][rank3]: {}",
        "2026-11-04 09:00:00,120 - ERROR - rank3 - {}",
        "2026-11-04 09:00:00,120 [ERROR] [fit.py:12] [Rank 3] {}",
    ],
)
def test_rank_beside_an_exception(line):
    """A rank is read from brackets and columns before an exception, and behind a progress bar."""
    (found,) = alone(line.format("ValueError: no a") + "\n")
    assert (found.fields["type"], found.resource.rank) == ("ValueError", 3)


def object_lines(opener, *members):
    """A JSON object printed over several lines, as a logger prints it after its prefix."""
    return "\n".join([opener, *(f"    {member}," for member in members), "  }", "}", ""])


def test_an_error_in_a_member_of_an_object_that_an_error_line_opens():
    """The failure that a worker of torchrun prints as an indented object is an exception, from the line that opens it."""
    text = "step 4\n" + object_lines(
        'ERROR:lab.agent.failures:{\n  "message": {', '"message": "StoreGoneError: key lost"'
    )
    found = alone(text)[0]
    assert (found.fields["type"], found.fields["message"]) == ("StoreGoneError", "key lost")
    assert found.fields["start"] == text.index("ERROR:lab")
    told = r'"py_callstack": "Traceback (most recent call last):\n  File \"/opt/a.py\", line 4, in go\n    go()\nKeyError: 1\n"'
    assert headed(object_lines("ERROR:lab.agent.failures:{", told))[0].fields["last_frame"] == "/opt/a.py:4 in go"


@pytest.mark.parametrize("opener", ["INFO:lab.config:{", "ERROR:lab.agent: see below", "{"])
def test_a_member_of_another_object_is_no_exception(opener):
    """What an object names that no error line opens is data, such as a saved state or a table of known errors."""
    assert not alone(object_lines(opener, '"message": "StoreGoneError: key lost"'))


@pytest.mark.parametrize(
    ("again", "rank"),
    [
        (trace("KeyError: 'width'", prefix="[rank3]: "), 3),
        (trace("KeyError: 'width'", prefix="[rank3]: ").partition("KeyError")[0], 3),
        (trace("KeyError: 'depth'", path="/opt/run/other.py", prefix="[rank3]: "), None),
        ("[rank3]: step 4\n", None),
        ("", None),
    ],
    ids=["again", "again_cut", "another", "a_line", "nothing"],
)
def test_a_bare_traceback_is_of_the_rank_that_prints_it_again(again, rank):
    """PyTorch's hook repeats with the rank what another hook has printed without it."""
    text = trace("KeyError: 'width'") + again
    assert headed(text)[0].resource.rank == rank


def test_a_traceback_that_another_rank_relays_belongs_to_the_rank_that_raised_it():
    """The coordinator of a distributed checkpoint prints what the other ranks raised, each under its rank."""
    text = (
        "[rank0]: Traceback (most recent call last): (RANK 5)\n"
        '[rank0]:   File "/opt/e/torch/distributed/checkpoint/filesystem.py", line 680, in write_data\n'
        "[rank0]:     os.fsync(stream.fileno())\n"
        "[rank0]: OSError: [Errno 28] No space left on device\n"
    )
    ranks = {item.resource.rank for item in structures(READERS, text) if item.fields["frames"] and item.offset}

    assert 5 in ranks
    assert structures(READERS, text)[0].resource.rank == 5


def test_an_exception_of_any_name_is_read_below_the_line_that_raises_it():
    """Where the header is cut off, with the frames that are left; not of another class, and not of a traceback that is whole."""
    own = '    raise gates.GateStuck(f"gate {gate} did not open")\n'
    frames = '  File "/srv/fit.py", line 3, in fit\n    turn(gate)\n  File "/srv/gates.py", line 9, in turn\n' + own
    end = "gates.GateStuck: gate 4 did not open\n"

    found = one(READERS, "step 3\n" + frames + end + "2026-03-01 10:00:00 step 4\n", "cut_traceback")
    assert found.fields | {"module": "", "sources": ""} == {
        "type": "GateStuck",
        "module": "",
        "message": "gate 4 did not open",
        "frames": "/srv/fit.py:3 in fit\n/srv/gates.py:9 in turn",
        "last_frame": "/srv/gates.py:9 in turn",
        "chain": 0,
        "chained": "",
        "has_traceback": "yes",
        "thread": "",
        "start": 7,
        "sources": "",
    }
    assert (found.offset, found.line) == (7 + len(frames), end.strip())
    bare = one(READERS, own + "           ^^^^^^\n" + end, "cut_traceback")
    assert (bare.fields["type"], bare.fields["has_traceback"], bare.fields["start"]) == ("GateStuck", "no", 0)
    ranked = one(READERS, "".join(f"[rank3]: {line}\n" for line in (own + end).splitlines()), "cut_traceback")
    assert ranked.resource.rank == 3
    for text in (
        own + "gates.GateBent: gate 4\n",
        own + "step 4\n",
        own,
        "Traceback (most recent call last):\n" + frames + end,
        "    raise ValueError(gate)\nValueError: 4\n",  # which has a reader of its own
        "advice: never raise GateStuck(\n" + end,
    ):
        assert structures(READERS, text, "cut_traceback") == [], text


def test_a_dead_actor_of_ray_is_the_process_of_the_exception_about_it():
    """The driver that raises it only reports; of other classes, such lines are words of a message."""
    told = "The actor died unexpectedly before finishing this task.\n\tclass_name: Sampler\n\tactor_id: 6f0a\n\tpid: 77\n\tnamespace: main\n\tip: 10.3.0.7\nThe actor is dead because its worker process has died."
    found = one(READERS, trace(f"ray.exceptions.ActorDiedError: {told}"), "traceback")
    assert (found.resource.node, found.resource.pid) == ("10.3.0.7", 77)
    other = one(READERS, trace(f"gates.GateError: {told}"), "traceback")
    assert (other.resource.node, other.resource.pid) == (None, None)


@pytest.mark.parametrize(("width", "whole"), [(80, True), (132, True), (77, False)])
def test_a_message_that_a_terminal_wrapped_behind_a_rank(width: int, *, whole: bool) -> None:
    """The pieces below have no prefix; a line of another length was not wrapped, and what begins another record is none of it."""
    said = "[rank3]: ValueError: the hangar of depot " + "north/" * 30 + "gate has no room"
    pieces = [said[at : at + width] for at in range(0, len(said), width)]
    text = trace("", "park", prefix="[rank3]: ").rsplit("\n", 2)[0] + "\n" + "\n".join(pieces)
    for below in ("\n", "\nW1209 09:20:54.300000 41 launch.cc:9] leaving\n", "\nTraceback (most recent call last):\n"):
        found = headed(text + below)[0]
        assert (found.fields["message"] == said.partition("ValueError: ")[2]) is whole
        assert found.resource.rank == 3
