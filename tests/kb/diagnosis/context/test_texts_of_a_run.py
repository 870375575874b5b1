"""Texts of the shipped rules on small logs: what a report says beside the fault holds for that run."""

from __future__ import annotations

import pytest

from bot.authoring import selftest
from bot.rulebase.loader import Knowledge, knowledge
from kb.diagnosis.engine import diagnose
from kb.report import Report
from kb.scanning.matcher import Matcher

SHAPES = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)\n"
RAISED = (
    "Traceback (most recent call last):\n"
    '  File "/srv/fit/train.py", line 90, in main\n    step(batch)\n'
    '  File "/srv/fit/model.py", line 12, in forward\n    return self.out(x)\n'
    '  File "/opt/env/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 125, in forward\n'
    "    return F.linear(input, self.weight, self.bias)\n"
)
FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked} GiB. GPU 0 has a total capacity of 40.00 GiB "
    "of which 2.00 GiB is free. Process 7 has {used} GiB memory in use. Of the allocated memory 20.00 GiB is allocated "
    "by PyTorch, and {unused} GiB is reserved by PyTorch but unallocated.\n"
)


@pytest.fixture(scope="module")
def base() -> tuple[Knowledge, Matcher]:
    """The shipped rules."""
    known = knowledge()
    return known, known.matcher()


def report(base: tuple[Knowledge, Matcher], **logs: str) -> Report:
    """The report on logs, given by the stems of their names."""
    known, matcher = base
    texts = {f"{name.replace('_', '-')}.log": text.encode() for name, text in logs.items()}
    return diagnose(selftest.evidence_of(known, matcher, texts), known.rulebook)


def words(found: Report) -> str:
    """All that the first diagnosis says beside its lines."""
    best = found.diagnoses[0]
    steps = [text for step in best.remediation for text in (step.text, step.command, step.verify) if text]
    return "\n".join([best.summary, best.cause, best.impact, found.decision.why, *steps])


GOES_ON = "".join(f"2026-10-07 08:00:0{step} INFO train: step {step}/500 loss 2.31 lr 1e-4\n" for step in range(1, 6))
HOT = "2026-10-07 08:00:06 HW Thermal Slowdown : Active\n"


def test_peers_are_named_only_where_others_run_and_do_not_fail_alike(base: tuple[Knowledge, Matcher]) -> None:
    """One process, one of two ranks, and all of them."""
    one = words(report(base, train=GOES_ON + HOT))
    first = words(report(base, rank_0=GOES_ON + HOT, rank_1=GOES_ON))

    assert "can slow down, or be lost" in one
    assert "can slow down and hold the others back" in first


def test_a_job_that_has_ended_is_told_no_impact(base: tuple[Knowledge, Matcher]) -> None:
    """What a failure leads to stands in its logs; what a state leads to if nobody acts does not."""
    ended, degraded = report(base, train=GOES_ON + RAISED + SHAPES), report(base, train=GOES_ON + HOT)

    assert (ended.phase, ended.diagnoses[0].impact) == ("failed", "")
    assert degraded.phase == "degraded"
    assert degraded.diagnoses[0].impact


def test_a_cause_is_told_as_far_as_a_line_decides_it(base: tuple[Knowledge, Matcher]) -> None:
    """Not the list of what may have sent a signal; what the message of an allocation shows is no guess."""
    killed = report(base, train="run.sh: line 8: 4711 Killed                  python train.py\n").diagnoses[0]
    broken = FULL.format(asked="7.00", used="37.00", unused="9.00")

    assert (killed.fault, killed.cause) == ("killed", "")
    assert "No single free block" in report(base, train=broken).diagnoses[0].cause


def test_what_is_raised_while_an_exception_is_handled_is_its_consequence(base: tuple[Knowledge, Matcher]) -> None:
    """The writer closes a file that memory ran out for; on its own, the same error is one of the file system."""
    frames = 'Traceback (most recent call last):\n  File "/srv/fit/train.py", line {}, in write\n    put(x)\n'
    short = "RuntimeError: [enforce fail at inline_container.cc:300] . unexpected pos 7040 vs 6936\n"
    handled = "\nDuring handling of the above exception, another exception occurred:\n\n"
    chained = report(base, train=frames.format(8) + "MemoryError\n" + handled + frames.format(9) + short)
    alone = report(base, train=frames.format(9) + short)

    assert [item.fault for item in chained.diagnoses] == ["host_oom"]
    assert "disk_full" in {item.fault for item in chained.diagnoses[0].explains}
    assert alone.diagnoses[0].fault == "disk_full"


def test_the_innermost_own_frame_is_named(base: tuple[Knowledge, Matcher]) -> None:
    """Not a frame of a library."""
    assert "srv/fit/model.py:12 in forward" in words(report(base, train=RAISED + SHAPES))


def test_an_exception_of_a_worker_is_placed_in_the_workers_own_frames(base: tuple[Knowledge, Matcher]) -> None:
    """The loader raises it again, with the traceback of the worker in its message."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/srv/fit/train.py", line 90, in main\n    for batch in loader:\n'
        '  File "/opt/env/lib/python3.11/site-packages/torch/_utils.py", line 700, in reraise\n    raise exception\n'
        "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        '  File "/srv/fit/samples.py", line 31, in pick\n    return table[name]\n'
        "KeyError: 'label'\n"
    )
    assert "srv/fit/samples.py:31 in pick" in words(report(base, train=text))


@pytest.mark.parametrize(
    ("sizes", "said", "not_said"),
    [
        (("7.00", "37.00", "9.00"), "together larger than the request", "find the other process"),
        (("9.00", "30.00", "1.00"), "8.00 GiB is not held by this process", "expandable_segments"),
        (("9.00", "37.50", "1.00"), "Make the step smaller", "other process"),
    ],
)
def test_the_numbers_of_a_failed_allocation_choose_the_step(
    base: tuple[Knowledge, Matcher], sizes: tuple[str, str, str], said: str, not_said: str
) -> None:
    """Free and unused blocks that suffice together, memory that others hold, and a device that this process fills."""
    asked, used, unused = sizes
    text = words(report(base, train=FULL.format(asked=asked, used=used, unused=unused)))

    assert said in text
    assert not_said not in text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("[Errno 101] Network is unreachable", "no route"),
        ("[Errno 111] Connection refused", "nothing accepts connections"),
        ("[Errno 110] Connection timed out", "Nothing answered in time"),
    ],
)
def test_how_a_connection_failed_chooses_its_cause(base: tuple[Knowledge, Matcher], error: str, said: str) -> None:
    """The message states it; a name that was resolved is no trouble of DNS."""
    text = words(report(base, train=f"urllib.error.URLError: <urlopen error {error}>\n"))

    assert said in text
    assert "Name resolution" not in text


def test_a_loss_that_never_was_finite_is_no_divergence(base: tuple[Knowledge, Matcher]) -> None:
    """Nor does its learning rate or an earlier checkpoint help."""
    text = words(report(base, train="".join(f"iteration {step}/ 50 | loss: nan\n" for step in range(1, 9))))

    assert "NaN or infinite at every step that logs it" in text
    assert "learning rate" not in text
    assert "checkpoint" not in text


def test_a_run_that_states_nan_without_a_finite_value_is_not_told_to_go_back(base: tuple[Knowledge, Matcher]) -> None:
    """Whether finite values came before is not known; there may be no checkpoint from before."""
    text = words(report(base, train="{'train_runtime': 4.1, 'train_loss': nan}\n  eval_loss  =  nan\n"))

    assert "If finite ones came before it" in text
    assert "checkpoint" not in text


def test_a_program_on_a_drive_with_a_letter_gets_no_commands_of_linux(base: tuple[Knowledge, Matcher]) -> None:
    """Windows has neither `free` nor `df`."""
    raised = 'Traceback (most recent call last):\n  File "{}", line 9, in go\n    x = load()\nMemoryError\n'
    linux = words(report(base, train=raised.format("/srv/fit/train.py")))
    windows = words(report(base, train=raised.format("D:\\fit\\train.py")))

    assert "free -g" in linux
    assert "free -g" not in windows
    assert "which processes use it" in windows


def test_a_loss_breaks_between_two_logged_steps(base: tuple[Knowledge, Matcher]) -> None:
    """After the last one that was sound, also where it was printed as a finite number for a while."""
    losses = ["2.4", "2.3", "2.2", "nan", "nan", "nan", "nan"]
    text = words(
        report(base, train="".join(f"iteration {10 * at}/ 500 | loss: {x}\n" for at, x in enumerate(losses, 1)))
    )
    assert "after step 30" in text

    losses = ["2.4", "2.3", "2.2e9", "2.2e19", "inf", "nan", "nan"]
    text = words(
        report(base, train="".join(f"iteration {10 * at}/ 500 | loss: {x}\n" for at, x in enumerate(losses, 1)))
    )
    assert "exploded after step 20" in text
    assert "after step 20 (2.3 at step 20, 2.2e+19 at step 40, inf at step 50)" in text


def test_a_crash_of_another_language_gets_no_steps_for_python(base: tuple[Knowledge, Matcher]) -> None:
    """A benchmark in C, and the same crash under Python."""
    crash = (
        "[cn-1:31] *** Process received signal ***\n[cn-1:31] Signal: Segmentation fault (11)\n"
        "[cn-1:31] Failing at address: 0x40\n[cn-1:31] [ 0] /lib64/libc.so.6(+0x42)[0x40]\n"
    )
    native = words(report(base, slurm=crash + "srun: error: cn-1: task 0: Segmentation fault (core dumped)\n"))
    python = words(report(base, slurm="python train.py\n" + crash))

    assert "torch" not in native
    assert "PYTHONFAULTHANDLER" not in native
    assert "PYTHONFAULTHANDLER" in python


def test_a_switch_that_is_on_is_not_asked_for(base: tuple[Knowledge, Matcher]) -> None:
    """The ranks print that they dump what the flight recorder holds."""
    line = (
        "[rank{0}]:[E810 03:04:11.56 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) Rank {0}] {2}"
        "Last enqueued NCCL work: {1}, last completed NCCL work: {1}.\n"
    )
    lines = [line.format(0, 77, "Received a dump signal due to a collective timeout from rank 1. ")]
    lines += [
        f"[rank{n}]:[E810 03:04:10.85 ProcessGroupNCCL.cpp:629] [Rank {n}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=78, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=60000) ran for 60010 milliseconds before "
        f"timing out.\n[rank{n}]:[E810 03:04:10.86 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank {n}]  "
        "failure detected by watchdog at work sequence id: 78 PG status: last enqueued work: 78, last completed work: 77\n"
        for n in (1, 2, 3)
    ]
    text = words(report(base, rank_0=lines[0], rank_1=lines[1], rank_2=lines[2], rank_3=lines[3]))

    assert "TORCH_NCCL_DUMP_ON_TIMEOUT=1" not in text


# What is missing


def asked_of_kernel(found: Report) -> str:
    """What the report says that only a kernel log could tell; empty if it asks for none."""
    return next((gap.rules_out for gap in found.gaps if gap.code == "no_kernel_log"), "")


def test_a_kernel_log_is_asked_for_only_where_it_could_change_the_answer(base: tuple[Knowledge, Matcher]) -> None:
    """Not for wrong shapes, nor for a kill whose reason Slurm gives; for one without a reason it is."""
    killed = "srun: error: cn-1: task 0: Killed\n"
    by_memory = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM Killed.\n"
    )

    assert asked_of_kernel(report(base, train=RAISED + SHAPES)) == ""
    assert asked_of_kernel(report(base, slurm=by_memory + killed)) == ""
    assert "out-of-memory kills" in asked_of_kernel(report(base, slurm=killed))


def test_no_log_of_a_device_that_the_run_does_not_use_is_missing(base: tuple[Knowledge, Matcher]) -> None:
    """Xid errors are those of one vendor."""
    killed = "srun: error: cn-1: task 0: Killed\n"

    assert "Xid" not in asked_of_kernel(report(base, slurm=killed))
    assert "Xid" in asked_of_kernel(report(base, slurm="cn-1:31:31 [0] NCCL INFO Bootstrap : Using eth0\n" + killed))


# Whom a launcher names


def block(rank: int, when: str, code: int = 1, host: str = "cn-1", others: str = "<NO_OTHER_FAILURES>") -> str:
    """A failure block of torchrun."""
    signal = (
        f"Signal 9 (SIGKILL) received by PID 4{rank}" if code == -9 else "To enable traceback see: https://pytorch.org"
    )
    rule = "=" * 60
    return (
        f"{rule}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n  {others}\n{'-' * 60}\nRoot Cause (first observed failure):\n"
        f"[0]:\n  time      : {when}\n  host      : {host}\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: 4{rank})\n  error_file: <N/A>\n  traceback : {signal}\n{rule}\n"
    )


def test_attempts_are_not_merged(base: tuple[Knowledge, Matcher]) -> None:
    """Another rank was killed in each of two attempts: the report is on the last one, and says so."""
    best = report(
        base, attempt_1=block(4, "2027-02-01_01:06:47", -9), attempt_2=block(3, "2027-02-01_01:11:46", -9)
    ).diagnoses[0]

    assert [item.rank for item in best.suspects] == [3]
    assert "rank 3" in best.summary
    assert any("last of 2 runs" in reason for reason in best.reasons)


def test_the_first_of_many_that_raise_the_same_is_no_suspect(base: tuple[Knowledge, Matcher]) -> None:
    """The launcher lists one process, and its log has the same traceback many times."""
    best = report(base, train=(RAISED + SHAPES) * 8 + block(0, "2027-02-01_01:06:47")).diagnoses[0]

    assert [item.kind for item in best.suspects] == ["job"]


EVALUATES = "2026-10-07 08:00:00 INFO eval: evaluating 5000 prompts\nProcessed prompts:  12%|#2  | 601/5000 [00:31<03:51, 19.0it/s]\n"
TRAINS = "2026-10-07 08:00:00 INFO train: step 10/500 loss 2.31 lr 1e-4\n"


def test_an_evaluation_is_told_nothing_of_a_training(base: tuple[Knowledge, Matcher]) -> None:
    """It has no optimizer, no activations to compute again and no checkpoint; where a training shows, the texts name them."""
    full = FULL.format(asked="9.00", used="37.50", unused="1.00")

    assert "optimizer" in words(report(base, train=TRAINS + full))
    assert "optimizer" not in words(report(base, run=EVALUATES + full))
    assert "optimizer" in words(report(base, run=EVALUATES + TRAINS + full))


def test_a_check_that_fails_is_not_the_place_to_fix(base: tuple[Knowledge, Matcher]) -> None:
    """What passes the value is, which the callers show."""
    asserted = words(
        report(base, train=RAISED.split('  File "/opt', maxsplit=1)[0] + "AssertionError: 2851 is longer than 2560\n")
    )
    raised = words(report(base, train=RAISED.split('  File "/opt', maxsplit=1)[0] + "KeyError: 'mask'\n"))

    assert "not the check" in asserted
    assert "not the check" not in raised


def test_a_machine_of_a_cloud_has_no_controller_to_ask(base: tuple[Knowledge, Matcher]) -> None:
    """Its name shows that it was started on demand."""
    lost = "srun: error: Node failure on {}\n"

    assert "management controller" in words(report(base, train=lost.format("node-12")))
    assert "management controller" not in words(report(base, train=lost.format("ip-10-2-0-17")))


def test_a_tools_report_of_a_lost_gpu_is_not_the_kernels(base: tuple[Knowledge, Matcher]) -> None:
    """The colon after the address belongs to the sentence."""
    line = "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system\n"
    (suspect,) = report(base, nvidia_smi=line).diagnoses[0].suspects

    assert suspect.gpu is not None
    assert suspect.gpu.pci == "0000:3b:00"  # as the driver writes it
    assert suspect.why == "reported by a check on its node"


READER = (
    "Traceback (most recent call last):\n"
    '  File "/srv/fit/readers/pairs.py", line 48, in pad\n    labels = np.array(labels).astype("int64")\n'
    "TypeError: int() argument must be a string, not 'NoneType'\n\n"
)
KILLED_QUEUE = (
    "Traceback (most recent call last):\n"
    '  File "/srv/fit/train.py", line 98, in train\n    for data in loader():\n'
    "SystemError: (Fatal) Blocking queue is killed because the data reader raises an exception.\n"
)


def test_the_readers_own_exception_leads_over_the_end_of_its_queue(base: tuple[Knowledge, Matcher]) -> None:
    """It is quoted first, and the first step names its frame; without one, the reader is sent to look for it."""
    found = report(base, train=READER + KILLED_QUEUE).diagnoses[0]
    alone = report(base, train=KILLED_QUEUE).diagnoses[0]

    assert found.summary.startswith("The thread that reads the data raised an exception: TypeError: int() argument")
    assert [item.text.split(":")[0] for item in found.evidence] == ["TypeError", "SystemError"]
    assert "readers/pairs.py:48 in pad" in found.remediation[0].text
    assert "exception;" in alone.summary
    assert "own exception" in alone.remediation[0].text


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("probe: trainer process holds {} MiB resident after step {}", "Host memory grows"),
        ("probe: memory of the process is {} MiB in use after step {}", "Memory usage grows"),
    ],
)
def test_memory_that_grows_is_called_by_whose_it_is(base: tuple[Knowledge, Matcher], line: str, told: str) -> None:
    """Where the lines say so: the advice for host memory is another than that for a GPU's."""
    lines = [
        f"2026-03-02 11:00:{n:02d} INFO loop: update {100 * n} ce 4.1\n2026-03-02 11:00:{n:02d} INFO {line.format(2000 + 150 * n, 100 * n)}\n"
        for n in range(1, 14)
    ]
    assert report(base, train="".join(lines)).diagnoses[0].summary.startswith(told)


def test_no_step_asks_for_a_smaller_batch_than_one(base: tuple[Knowledge, Matcher]) -> None:
    """Nor for activations to be recomputed where they are."""
    full = FULL.format(asked=12, used=38, unused=0.1)
    one = report(base, train=f"  micro_batch_size ........ 1\n{full}").diagnoses[0].remediation[0].text
    both = (
        report(base, train=f"activation_checkpointing: true\nmicro_batch_size: 1\n{full}")
        .diagnoses[0]
        .remediation[0]
        .text
    )
    more = report(base, train=f"  micro_batch_size ........ 4\n{full}").diagnoses[0].remediation[0].text

    assert "one sample already" in one
    assert "Recompute activations" in one
    assert "recomputed already" in both
    assert "Make the step smaller" in more


def test_a_library_of_windows_is_no_code_of_the_run(base: tuple[Knowledge, Matcher]) -> None:
    """Its paths have backslashes."""
    library = RAISED.replace(
        "/opt/env/lib/python3.11/site-packages/torch/nn/modules/",
        "D:\\\\ui\\\\venv\\\\lib\\\\site-packages\\\\torch\\\\",
    )
    own = RAISED.replace("/srv/fit/model.py", "D:\\\\ui\\\\jobs\\\\fit\\\\model.py").replace("/opt/env", "D:\\\\env")

    assert "linear.py" not in words(report(base, train=library + SHAPES))
    assert "model.py:12 in forward" in words(
        report(base, train=own.replace("/lib/python3.11/site-packages/", "\\\\site-packages\\\\") + SHAPES)
    )


def test_a_syntax_error_is_where_the_source_is_and_not_where_it_was_imported(base: tuple[Knowledge, Matcher]) -> None:
    """Its last frame has no function; no value can be looked up in a file that cannot be parsed."""
    text = words(
        report(
            base,
            train=(
                "Traceback (most recent call last):\n"
                '  File "/srv/fit/train.py", line 3, in <module>\n    from heads import Head\n'
                '  File "/srv/fit/heads.py", line 211\n    scale = (mean / count * 0.5\n            ^\n'
                "SyntaxError: '(' was never closed\n"
            ),
        )
    )

    assert "heads.py:211" in text
    assert "train.py:3" not in text
    assert "which values" not in text


def test_gpus_of_one_node_that_fail_together_are_not_told_as_one(base: tuple[Knowledge, Matcher]) -> None:
    """From four on, the node is named; of two, both."""

    def lost(count: int) -> Report:
        line = (
            "Oct  7 08:00:0{at} node-3 kernel: NVRM: Xid (PCI:0000:{at}c:00): 79, pid=47, GPU has fallen off the bus.\n"
        )
        return report(base, kernel="".join(line.format(at=at) for at in range(1, count + 1)))

    many, two = lost(8).diagnoses[0], lost(2).diagnoses[0]

    assert "GPU 0000:1c:00 and 7 more of node-3" in many.summary
    assert [(item.kind, item.node) for item in many.suspects] == [("node", "node-3")]
    assert [item.gpu.pci for item in two.suspects if item.gpu] == ["0000:1c:00", "0000:2c:00"]


def test_no_node_is_spoken_of_that_no_line_names(base: tuple[Knowledge, Matcher]) -> None:
    """Nor a rank, where a process need not be one."""
    killed = report(base, train="run.sh: line 8: 4711 Killed                  python train.py\n").diagnoses[0]

    assert killed.summary.startswith("A process was killed with SIGKILL")


def test_what_another_line_of_the_same_event_names_is_used(base: tuple[Knowledge, Matcher]) -> None:
    """The first line says that a container did not start, a later one what its hook lacks."""
    first = "slurmstepd: error: pyxis: container start failed with error code: 1\n"
    later = "slurmstepd: error: pyxis:     [ERROR] Command not found: fabric-cli, see https://fabric.example.org\n"

    assert "fabric-cli" in words(report(base, train=first + later))
    assert "Start the image by itself" in words(report(base, train=first))


def test_the_architecture_that_a_line_names_is_not_asked_for(base: tuple[Knowledge, Matcher]) -> None:
    """PyTorch prints it before the call that fails."""
    warned = "GPU X9 with CUDA capability sm_99 is not compatible with the current PyTorch installation.\n"
    failed = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    named, bare = (words(report(base, train=text)) for text in (warned + failed, failed))

    assert "PyTorch build for sm_99" in named
    assert "Find the device's architecture" not in named
    assert "Find the device's architecture" in bare


@pytest.mark.parametrize(
    ("losses", "at_times"),
    [
        ("2.4 2.3 nan nan 2.2 2.1 nan", True),
        ("2.4 2.3 nan 2.2 nan nan nan nan", False),  # they came to stay
        ("2.4 2.3 nan 2.2e5 nan", False),  # finite values exploded, too
    ],
)
def test_a_loss_that_is_nan_at_times_neither_broke_nor_exploded(
    base: tuple[Knowledge, Matcher], losses: str, at_times: bool
) -> None:
    """Its finite values show that the weights are sound, so the batches of the bad steps are looked at."""
    lines = (f"iteration {10 * at}/ 500 | loss: {x}\n" for at, x in enumerate(losses.split(), 1))
    text = words(report(base, train="".join(lines)))
    assert ("(2.3 at step 20, nan at step 30, 2.2 at step" in text) == at_times
    assert ("learning rate" not in text) == at_times
