"""Sentences with alternatives: what the logs state chooses one of them, and what they exclude is not named."""

from __future__ import annotations

import pytest

from bot.rulebase.loader import Knowledge, knowledge
from kb.scanning.matcher import Matcher
from tests.kb.diagnosis.context.test_texts_of_a_run import report, words


@pytest.fixture(scope="module")
def base() -> tuple[Knowledge, Matcher]:
    """The shipped rules."""
    known = knowledge()
    return known, known.matcher()


def traceback(*frames: tuple[str, int, str], error: str) -> str:
    """A traceback with these frames, outermost first."""
    shown = "".join(f'  File "{file}", line {line}, in {name}\n    pass\n' for file, line, name in frames)
    return f"Traceback (most recent call last):\n{shown}{error}\n"


SITE = "/opt/env/lib/python3.11/site-packages"
MAIN = ("/srv/fit/train.py", 40, "<module>")
TRAINER = (f"{SITE}/transformers/trainer.py", 2100, "train")
STEPS = "".join(f"step {step}/500 loss 2.31 lr 1e-4\n" for step in range(1, 6))


@pytest.mark.parametrize(
    ("line", "node"),
    [
        ("gpu-17: Reason=Node unexpectedly rebooted [slurm@2026-03-01T10:00:00]\n", "gpu-17"),
        ("Node unexpectedly rebooted slurm 2026-03-01T10:00:00 gpu-18\n", "gpu-18"),
    ],
)
def test_a_node_that_a_rule_reads_in_its_line_is_excluded(
    base: tuple[Knowledge, Matcher], line: str, node: str
) -> None:
    """Of a line without one, the node is not known."""
    found = report(base, scontrol=line)
    bare = report(base, scontrol="Reason=Node unexpectedly rebooted [slurm@2026-03-01T10:00:00]\n")

    assert [item.node for item in found.decision.exclude] == [node]
    assert "not known" not in found.decision.why
    assert "the node is not known" in bare.decision.why


@pytest.mark.parametrize(
    ("line", "said", "excluded"),
    [
        ("W1 api.py:753] Received Signals.SIGINT death signal, shutting down workers\n", "SIGINT", "SIGHUP"),
        ("W1 api.py:753] Received Signals.SIGHUP death signal, shutting down workers\n", "SIGHUP", "Ctrl-C"),
    ],
)
def test_an_interrupt_is_named_by_its_signal(
    base: tuple[Knowledge, Matcher], line: str, said: str, excluded: str
) -> None:
    """No closed terminal where the launcher names SIGINT, and no key where it names SIGHUP."""
    found = report(base, train=STEPS + line)

    assert found.diagnoses[0].fault == "cancelled"
    assert said in words(found)
    assert excluded not in words(found)


def test_an_error_in_a_library_is_not_called_the_runs_own(base: tuple[Knowledge, Matcher]) -> None:
    """Where the run's line only starts the loop of a library, whose line failed; its package is named."""
    error = "AttributeError: 'Wrapper' object has no attribute 'policy'"
    inner = (f"{SITE}/alib/experimental/ppo/ppo_trainer.py", 400, "null_ref_context")
    library = report(base, train=traceback(MAIN, TRAINER, inner, error=error)).diagnoses[0]
    own = report(base, train=traceback(MAIN, ("/srv/fit/model.py", 9, "forward"), error=error)).diagnoses[0]

    assert (library.fault, own.fault) == ("code_bug", "code_bug")
    assert "raised in a library" in library.title
    assert "alib/experimental/ppo/ppo_trainer.py:400" in library.summary
    assert "run's own" in own.title


def test_a_message_that_states_the_sizes_is_not_asked_for_them(base: tuple[Knowledge, Matcher]) -> None:
    """Printing the shapes tells nothing new then."""
    stated = "RuntimeError: The size of tensor a (8) must match the size of tensor b (16) at non-singleton dimension 1"
    other = "RuntimeError: number of dims don't match in permute"

    assert "Print the shapes" not in words(report(base, train=traceback(MAIN, error=stated)))
    assert "Print the shapes" in words(report(base, train=traceback(MAIN, error=other)))


@pytest.mark.parametrize(
    ("frames", "asked"),
    [
        ((MAIN, (f"{SITE}/torch/utils/data/_utils/fetch.py", 54, "fetch")), False),
        ((MAIN, ("/srv/fit/data.py", 12, "collate")), True),
    ],
)
def test_workers_are_not_switched_off_where_the_loader_has_none(
    base: tuple[Knowledge, Matcher], frames: tuple[tuple[str, int, str], ...], *, asked: bool
) -> None:
    """A fetch in the main process shows that num_workers is 0."""
    found = report(
        base, train=traceback(*frames, error="RuntimeError: each element in list of batch should be of equal size")
    )

    assert found.diagnoses[0].rule == "collate-failed"
    assert ("num_workers=0" in words(found)) == asked


def test_one_sample_per_step_is_not_made_smaller(base: tuple[Knowledge, Matcher]) -> None:
    """As the Trainer of Hugging Face prints the size of its batches."""
    start = "  Instantaneous batch size per device = {}\n"
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 54.00 MiB."
    one, four = (report(base, train=start.format(size) + traceback(MAIN, error=error)) for size in (1, 4))

    assert "one sample already" in words(one)
    assert "micro batch size" in words(four)


def test_other_processes_and_devices_are_not_looked_for_on_a_mac(base: tuple[Knowledge, Matcher]) -> None:
    """Its allocator counts the memory of its own process only."""
    error = "RuntimeError: MPS backend out of memory (MPS allocated: 14.05 GB, other allocations: 3.33 GB, max allowed: 18.13 GB). Tried to allocate 1.11 GB on private pool."
    found = report(base, train=STEPS + traceback(MAIN, error=error))

    assert "another process" not in words(found) + found.diagnoses[0].lies_in
    assert "more devices" not in words(found)


def test_a_late_error_of_a_device_has_no_certain_place(base: tuple[Knowledge, Matcher]) -> None:
    """Unless kernels are launched one by one."""
    error = "RuntimeError: CUDA error: device-side assert triggered"
    late = report(base, train=traceback(MAIN, ("/srv/fit/model.py", 9, "forward"), error=error))
    serial = report(
        base, train="CUDA_LAUNCH_BLOCKING=1\n" + traceback(MAIN, ("/srv/fit/model.py", 9, "forward"), error=error)
    )

    assert "was reported at /srv/fit/model.py:9 in forward; an earlier call" in late.diagnoses[0].summary
    assert "The code was at" in serial.diagnoses[0].summary


def test_a_crash_is_looked_into_by_what_the_log_holds(base: tuple[Knowledge, Matcher]) -> None:
    """A debugger's session, a core that the shell reports, and the stack of the interpreter."""
    debugger = words(
        report(base, gdb="[New Thread 0x7f (LWP 64611)]\n\nProgram received signal SIGSEGV, Segmentation fault.\n")
    )
    dumped = words(report(base, train="loading\nSegmentation fault (core dumped)\n"))
    handler = words(
        report(
            base,
            train='Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n  File "/srv/fit/data.py", line 74 in func\n',
        )
    )

    assert "py-bt" in debugger
    assert "run under a debugger" not in debugger
    assert "A core file was written" in dumped
    assert "grep" not in dumped
    assert "a native call from /srv/fit/data.py:74 in func" in handler
    assert "grep" not in handler


def test_the_target_of_a_download_is_the_path_of_a_full_disk(base: tuple[Knowledge, Matcher]) -> None:
    """Named by the line that announces it; without one, no path is known."""
    error = traceback(MAIN, error="OSError: [Errno 28] No space left on device")
    named = words(report(base, train="Downloading https://data.example/set.tgz to ./set.tgz\n" + error))
    unnamed = words(report(base, train="starting\n" + error))

    assert "./set.tgz" in named
    assert "do not name its path" in unnamed
    assert "inodes" not in unnamed


def test_a_device_that_was_used_before_is_not_a_wrong_setting(base: tuple[Knowledge, Matcher]) -> None:
    """After steps, the same settings named a device that was there."""
    error = traceback(MAIN, error="RuntimeError: CUDA error: invalid device ordinal")
    start, later = report(base, train=error), report(base, train=STEPS + error)

    assert start.diagnoses[0].lies_in == "launch or device settings"
    assert "requested a device" in words(start)
    assert "lost" in later.diagnoses[0].lies_in
    assert "local rank" not in words(later)


def test_the_endpoint_of_the_launchers_own_rendezvous_is_not_the_master(base: tuple[Knowledge, Matcher]) -> None:
    """It ignores MASTER_ADDR."""
    frame = (f"{SITE}/torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py", 155, "_create_tcp_store")
    error = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed."
    found = words(report(base, train=traceback(MAIN, frame, error=error)))

    assert "rdzv_endpoint" in found
    assert "<master>" not in found


def test_a_run_that_was_cancelled_after_its_loss_broke_has_ended(base: tuple[Knowledge, Matcher]) -> None:
    """Nobody needs to stop it."""
    lines = "".join(f"step {step}/500 loss {'nan' if step > 6 else 2.3} lr 1e-4\n" for step in range(1, 20))
    cancelled = "slurmstepd: error: *** JOB 4711 ON gpu-1 CANCELLED AT 2026-03-01T10:00:00 ***\n"
    found, alive = report(base, train=lines + cancelled), report(base, train=lines)

    assert (found.diagnoses[0].fault, found.phase) == ("loss_not_finite", "stopped")
    assert alive.phase == "degraded"


def test_several_processes_of_a_node_are_not_one_local_rank(base: tuple[Knowledge, Matcher]) -> None:
    """Device 0 tells no local rank, but its process is another one."""
    line = "gpu-2:{}:{} [{}] include/socket.h:361 NCCL WARN Call to connect timeout : Connection refused\n"
    alone = report(base, run=line.format(41, 90, 1))
    both = report(base, run=line.format(41, 90, 1) + line.format(40, 91, 0))

    assert [item.local_rank for item in alone.diagnoses[0].suspects] == [1]
    assert [(item.node, item.local_rank) for item in both.diagnoses[0].suspects] == [("gpu-2", None)]


def test_the_stage_of_an_own_evaluation_function(base: tuple[Knowledge, Matcher]) -> None:
    """A function called eval of the run's own code; a library's switches a mode."""
    error = "RuntimeError: number of dims don't match in permute"
    own = traceback(MAIN, ("/srv/fit/eval.py", 152, "eval"), ("/srv/fit/net.py", 9, "infer"), error=error)
    mode = traceback(
        MAIN, (f"{SITE}/torch/nn/modules/module.py", 9, "eval"), ("/srv/fit/net.py", 9, "infer"), error=error
    )

    assert report(base, train=STEPS + own).diagnoses[0].stage == "evaluating"
    assert report(base, train=STEPS + mode).diagnoses[0].stage != "evaluating"


def test_the_header_of_an_mpi_error_stack_is_no_other_failure(base: tuple[Knowledge, Matcher]) -> None:
    """What failed is in the last line of the stack."""
    stack = (
        "Fatal error in PMPI_Init_thread: Other MPI error, error stack:\nMPIR_Init_thread(474)..............: \n"
        "MPID_nem_tcp_init(379).............: gethostbyname failed, gpu-17 (errno 1)\n"
    )
    found = report(base, job=stack)

    assert [item.fault for item in found.diagnoses] == ["rendezvous"]


def test_a_library_that_calls_another_one_is_not_for_the_run_to_change(base: tuple[Knowledge, Matcher]) -> None:
    """Where the run's own line is far, the releases of the two may not fit."""
    error = "TypeError: Accelerator.unwrap_model() got an unexpected keyword argument 'keep'"
    inner = (f"{SITE}/transformers/trainer.py", 1954, "_wrap_model")
    library = words(report(base, train=traceback(MAIN, TRAINER, inner, error=error)))
    own = words(report(base, train=traceback(MAIN, ("/srv/fit/loop.py", 9, "wrap"), error=error)))

    assert "releases of the two that fit together" in library
    assert "adapt it to the installed release" in own


def test_an_equal_failure_of_each_restart_is_told(base: tuple[Knowledge, Matcher]) -> None:
    """By a launcher that starts its workers again without a line of the start; amounts of memory may differ."""
    run = (
        STEPS
        + traceback(MAIN, error="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}.00 GiB")
        + "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: {}) of binary: /usr/bin/python\n"
    )
    found = report(base, train="".join(run.format(number, 4000 + number) for number in (2, 3, 4)))

    assert "in each run that is seen in this log" in found.diagnoses[0].reasons


def test_a_gpu_in_a_list_of_pci_devices_is_named_by_its_address(base: tuple[Knowledge, Matcher]) -> None:
    """Lspci leaves the domain out."""
    listed = "1c:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 40GB] (rev ff)\n"

    assert "1c:00.0" in report(base, lspci=listed).diagnoses[0].lies_in
