"""What an answer says beside the fault is what the logs show: who, when, how far, whose task it is."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.render.decisions import decided
from bot.render.headline import headline
from bot.render.phrases import progress, suspected, suspects_label
from bot.render.terminal import plain
from bot.rulebase.loader import knowledge
from kb.diagnosis.context.passing_changes import NO_FAULT
from kb.diagnosis.engine import diagnose
from kb.report import Report
from kb.scanning.matcher import Matcher

KNOWN = knowledge()


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def diagnosed(engine: Matcher, **streams: str) -> Report:
    """The report on streams by name: `rank_3="…"` is rank-3.log."""
    texts = {f"{name.replace('_', '-')}.log": text.encode() for name, text in streams.items()}
    return diagnose(evidence_of(KNOWN, engine, texts), KNOWN.rulebook)


STEPS = "".join(f" {n}%|██        | {4 * n}/400 [00:{n:02d}<01:00,  4.00it/s]\r" for n in range(1, 40))
STOPPED = (
    "[2026-04-07T08:15:22.530] error: *** JOB 5511 ON c7 CANCELLED AT 2026-04-07T08:15:22 DUE TO {why} ***\n"
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 411 got signal: 15\n"
)


@pytest.mark.parametrize(("why", "fault"), [("TIME LIMIT", "time_limit"), ("PREEMPTION", "preempted")])
def test_a_signal_whose_sender_is_known_is_no_finding_of_its_own(engine: Matcher, why: str, fault: str) -> None:
    """The scheduler says why it stopped the job, so the signal that the launcher got is explained."""
    report = diagnosed(engine, train=STEPS + STOPPED.format(why=why))
    assert [item.fault for item in report.diagnoses] == [fault]
    assert "Stopped by SIGTERM from outside" in [item.title for item in report.diagnoses[0].explains]


def test_a_process_that_crashed_is_the_rank_that_its_launcher_names(engine: Matcher) -> None:
    """Its own lines name the node only."""
    text = (
        "[cn-a94:17969] *** Process received signal ***\n[cn-a94:17969] Signal: Segmentation fault (11)\n"
        "[cn-a94:17969] Signal code: Address not mapped (1)\n[cn-a94:17969] Failing at address: 0x18\n"
        "mpirun noticed that process rank 286 with PID 17969 on node cn-a94 exited on signal 11 (Segmentation fault).\n"
    )
    (first,) = diagnosed(engine, train=text).diagnoses[0].suspects
    assert (first.kind, first.node, first.rank) == ("rank", "cn-a94", 286)


def test_the_time_of_a_message_glued_to_a_bar_is_not_that_of_the_step(engine: Matcher) -> None:
    """The bar has no time of its own, and nothing tells how long before the message it was drawn."""
    glued = STEPS.rstrip("\r") + STOPPED.format(why="TIME LIMIT")
    assert list(progress(diagnosed(engine, train=glued))) == ["stage iterating", "last iteration 156 of 400"]


def test_an_error_of_all_ranks_names_none_of_them(engine: Matcher) -> None:
    """The first line is that of the rank whose output came first."""
    raised = 'Traceback (most recent call last):\n  File "/srv/fit.py", line 8, in go\n    run(a=1)\nZeroDivisionError: division by zero\n'
    text = "".join(f"[rank{n}]: {line}\n" for n in (4, 0, 1, 2, 3) for line in raised.splitlines())
    report = diagnosed(engine, train=text)
    assert [item.kind for item in report.diagnoses[0].suspects] == ["job"]
    assert "rank 4" not in report.diagnoses[0].summary


SPIKE = "".join(
    f" iteration {n:8d}/  900000 | consumed samples: {n * 8} | lm loss: {{}}E+00 | grad norm: 0.2 |\n"
    for n in range(31200, 31230)
)
LEVEL = [2.2 + 0.01 * (n % 3) for n in range(18)]


def test_a_jump_that_is_over_at_the_end_does_not_call_the_run_degraded(engine: Matcher) -> None:
    """The last losses are at the level from before the jump."""
    losses = [*LEVEL, 9.1, 8.2, 7.5, 6.9, 6.1, 5.2, 4.8, 4.1, 3.6, 3.1, 2.21, 2.22]
    report = diagnosed(engine, train=SPIKE.format(*losses))
    assert (report.phase, report.decision.advice) == ("unknown", "none")
    assert report.diagnoses[0].title == "Loss spiked, then recovered"


def test_a_jump_that_lasts_leaves_the_run_degraded(engine: Matcher) -> None:
    """The last losses are far above the level from before the jump."""
    report = diagnosed(engine, train=SPIKE.format(*LEVEL, 9.1, 8.2, 7.5, *[7.0] * 9))
    assert (report.phase, report.decision.advice) == ("degraded", "fix_first")


TIMEOUT = (
    "[rank{0}]:[E402 11:30:07.551120331 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=4411, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600021"
    " milliseconds before timing out.\n"
)


def test_a_rank_that_waits_is_not_called_a_suspect(engine: Matcher) -> None:
    """Only its own timeout is known, and nobody says for whom it waited."""
    report = diagnosed(engine, train=TIMEOUT.format(3))
    suspects = report.diagnoses[0].suspects
    assert (suspects_label(report.diagnoses[0]), suspected(suspects)) == ("Waiting", "rank 3 (blocker unknown)")
    assert headline(report) == "Collective timed out in the watchdog"
    assert "(waiting: rank 3)" in report.summary


RENDEZVOUS = (
    "Traceback (most recent call last):\n"
    '  File "/opt/env/lib/python3.10/site-packages/torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py", line 155,'
    " in _create_tcp_store\n    store = TCPStore(\n"
    "TimeoutError: The client socket has timed out after 60s while trying to connect to ({host}, 29400).\n\n"
    "The above exception was the direct cause of the following exception:\n\n"
    "Traceback (most recent call last):\n"
    '  File "/opt/env/bin/torchrun", line 33, in <module>\n    sys.exit(main())\n'
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed."
    " See inner exception for details.\n"
)


@pytest.mark.parametrize(("host", "owner"), [("localhost", "user"), ("127.0.0.1", "user"), ("10.3.9.1", "platform")])
def test_a_store_on_the_own_machine_is_the_users(engine: Matcher, host: str, owner: str) -> None:
    """Nothing but the job's own start and settings stands between a process and its own machine."""
    report = diagnosed(engine, train=RENDEZVOUS.format(host=host))
    assert (report.diagnoses[0].fault, report.decision.owner) == ("rendezvous", owner)


@pytest.mark.parametrize(
    ("line", "owner"),
    [
        ("nid6:180:181 [0] net.cc:626 NCCL WARN Error: network Some Plugin not found.\n", "user"),
        ("nid6:180:181 [0] init.c:12 NCCL WARN NET/OFI Couldn't open a fabric provider. RC: -61\n", "network"),
    ],
)
def test_a_plug_in_that_is_not_there_is_the_users(engine: Matcher, line: str, owner: str) -> None:
    """The job asks for it and brings it along; a provider that does not open is the network's."""
    assert diagnosed(engine, train=line).decision.owner == owner


def test_a_change_is_promised_only_where_one_follows(engine: Matcher) -> None:
    """The first step for a port that is taken is a look at who holds it."""
    taken = "RuntimeError: The server socket has failed to bind to [::]:6000 (errno: 98 - Address already in use).\n"
    assert decided(diagnosed(engine, train=taken)).startswith("Check first, then resubmit with a change")


SHOWN = (
    "step 10 loss 2.1\n=== sample 12 ===\nany ideas?\n```python\nTraceback (most recent call last):\n"
    '  File "main.py", line 12, in <module>\n    fit(x)\nValueError: shapes (3,4) and (5,) not aligned\n{end}'
)


@pytest.mark.parametrize(("end", "verdict"), [("```\nthanks\n", "insufficient_evidence"), ("", "fault")])
def test_a_traceback_in_a_code_fence_is_shown_text(engine: Matcher, end: str, verdict: str) -> None:
    """Samples of a data set are printed like this; a program that fails closes no fence."""
    assert diagnosed(engine, train=SHOWN.format(end=end)).verdict == verdict


def slower(now: float, end: str) -> str:
    """A run whose steps take 0.9 s, from half of it on longer, and its last line."""
    return (
        "".join(
            f"2026-03-02 11:{n // 60:02d}:{n % 60:02d},674 INFO step: {n} / 399 loss: {3 - n / 400:.4f} iter time (s): "
            f"{0.9 if n < 200 else now:.3f}\n"
            for n in range(10, 400)
        )
        + end
    )


ENDED = "2026-03-02 11:07:02,000 INFO Training completed.\n"


@pytest.mark.parametrize(
    ("now", "end", "verdict"),
    [(1.6, ENDED, "no_fault"), (1.6, "", "fault"), (9.0, ENDED, "fault")],
    ids=["moderate", "open", "far"],
)
def test_a_moderate_slow_down_of_a_run_that_completed_is_an_observation(
    engine: Matcher, now: float, end: str, verdict: str
) -> None:
    """A busy machine slows healthy runs down as much, but whoever runs it again may want to know."""
    report = diagnosed(engine, train=slower(now, end))
    told = [event.what for event in report.indicators.events if event.why == NO_FAULT]
    assert report.verdict == verdict
    assert told == (["a step takes 1.6 s from step 200 on, 0.9 s before"] if verdict == "no_fault" else [])


@pytest.mark.parametrize(
    ("last", "end", "verdict"), [(2.0, ENDED, "no_fault"), (2.0, "", "fault"), (8.0, ENDED, "fault")]
)
def test_a_jump_from_which_a_completed_run_came_back_is_an_observation(
    engine: Matcher, last: float, end: str, verdict: str
) -> None:
    """A loss that stays where it jumped to spoils the result."""
    losses = [2.0 + 0.01 * (n % 3) for n in range(9)] + [8.0, 8.1, 7.9, 8.0, 7.7, 8.1] + [last] * 4
    log = "".join(f"step: {381 + n} / 399 loss: {loss:.4f}\n" for n, loss in enumerate(losses))
    report = diagnosed(engine, train=log + end)
    assert report.verdict == verdict
    assert any(event.why == NO_FAULT for event in report.indicators.events) is (verdict == "no_fault")


def test_a_bar_of_one_late_epoch_is_no_step_of_the_run(engine: Matcher) -> None:
    """The log was cut: nothing tells how many steps the epochs before had."""
    bars = "".join(f"Epoch 7:  {n}%|█         | {n}/100 [00:{n:02d}<01:00,  1.0it/s]\n" for n in range(10, 40))
    report = diagnosed(
        engine, train=bars + 'Traceback (most recent call last):\n  File "/srv/a.py", line 3, in f\nKeyError: 1\n'
    )
    assert (report.progress.last_iteration, report.progress.epoch, report.progress.epoch_iteration) == (None, 7, 39)


CAUGHT = (
    'Traceback (most recent call last):\n  File "/srv/summary.py", line 40, in write\n    self.out.write(data)\n'
    "OSError: [Errno 5] Input/output error\n"
)


@pytest.mark.parametrize(
    ("end", "faulty"),
    [
        ("ERROR:summary:could not write scalars, skipped\n" + CAUGHT, False),
        ("ERROR:retention:the removal of step 100 did not work, left in place\n" + CAUGHT, False),
        (CAUGHT, True),
    ],
    ids=["skipped", "left", "raised"],
)
def test_what_a_rank_reports_last_in_a_run_that_completed(engine: Matcher, end: str, faulty: bool) -> None:
    """Only rank 0 logs its steps. Another rank's log ends with what it handled: nothing failed, though little proves it."""
    done = "{'train_runtime': 822.2, 'train_steps_per_second': 0.2, 'train_loss': 0.44, 'epoch': 1.0}\n"
    bars = STEPS + " 100%|██████████| 400/400 [02:00<00:00,  4.00it/s]\n"
    started = "Using auto half precision backend\n  0%|          | 0/400 [00:00<?, ?it/s]\n"
    report = diagnosed(engine, rank_0=bars + done, rank_1=started + end)
    assert (report.verdict in ("fault", "no_match")) is faulty


def test_how_a_model_did_is_no_error_of_the_run(engine: Matcher) -> None:
    """Answers of the model that are wrong, or do not end in time, are counted in the last line of a rank."""
    report = diagnosed(
        engine, rank_0=STEPS, rank_1="HumanEval: 61 passed, 103 failed, 4 timed out, 2 errors; pass@1 = 0.372\n"
    )
    assert report.verdict == "insufficient_evidence"


REFUSED = (
    "{0}: Traceback (most recent call last):\n"
    '{0}:   File "/opt/e/train.py", line 31, in main\n'
    '{0}:     torch.distributed.init_process_group("nccl", device_id=device)\n'
    '{0}:   File "/opt/e/lib/torch/distributed/distributed_c10d.py", line 1813, in init_process_group\n'
    "{0}:     default_pg, _ = _new_process_group_helper(\n"
    "{0}: torch.distributed.DistBackendError: NCCL error in: /opt/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, invalid usage"
    " (run with NCCL_DEBUG=WARN for details), NCCL version 2.29.3\n"
    "{0}: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
    "{0}: Last error:\n{0}: {1}\n"
)


def test_the_last_error_of_nccl_gives_the_cause(engine: Matcher) -> None:
    """It stands in lines of its own below the exception, behind the prefix of the rank."""
    first = diagnosed(engine, train=REFUSED.format(12, "Failed to initialize any NET plugin")).diagnoses[0]
    assert (first.fault, first.rule) == ("rdma_setup", "rdma-net-plugin-missing")


def test_a_last_error_that_no_rule_knows_is_quoted(engine: Matcher) -> None:
    """The answer does not say that the reason is missing where the message has one."""
    first = diagnosed(engine, train=REFUSED.format(12, "Ring order of domain 7 cannot be met")).diagnoses[0]
    assert "Ring order of domain 7 cannot be met" in first.summary
    texts = " ".join(step.text for step in first.remediation)
    assert "does not say" not in f"{first.summary} {texts}"


def test_srun_names_the_node_of_a_rank(engine: Matcher) -> None:
    """By the ends of its tasks, where these are the ranks."""
    ends = "srun: error: gn31: tasks 12-13: Exited with exit code 1\nsrun: error: gn30: tasks 8-11: Killed\n"
    report = diagnosed(engine, train=REFUSED.format(12, "Failed to initialize any NET plugin") + ends)
    assert [(item.rank, item.node) for item in report.diagnoses[0].suspects] == [(12, "gn31")]


TPU = (
    "I0611 09:20:01.402511 140008790735744 distributed.py:172] Connecting to JAX distributed service on 10.2.0.4:8476\n"
    "Traceback (most recent call last):\n"
    '  File "/srv/fit/train.py", line 41, in main\n    print(jax.process_index())\n'
    "RuntimeError: Unable to initialize backend 'tpu': {} (set JAX_PLATFORMS='' to automatically choose an available backend)\n"
)


@pytest.mark.parametrize(
    "reason",
    [
        "INTERNAL: Failed to open libtpu.so: libtpu.so: cannot open shared object file: No such file or directory",
        "UNAVAILABLE: No TPU Platform available.",
    ],
)
def test_a_backend_that_is_no_gpu_gets_no_advice_for_gpus(engine: Matcher, reason: str) -> None:
    """The message names the backend; no import failed."""
    report = diagnosed(engine, train=TPU.format(reason))
    (first,) = report.diagnoses
    texts = [first.summary, first.cause, *(f"{step.text} {step.command} {step.verify}" for step in first.remediation)]
    words = " ".join(filter(None, texts))
    assert "tpu" in first.summary
    assert "JAX_PLATFORMS" in words
    assert not any(word in words for word in ("GPU", "nvidia", "CUDA_", "ldd", "import"))


def test_who_waits_for_the_coordinator_is_no_suspect(engine: Matcher) -> None:
    """The coordinator could not open its port, and the task that connects to it only reports the timeout."""
    coordinator = (
        "I1128 07:55:54.269618 139939744283520 distributed.py:149] Starting JAX distributed service on [::]:45969\n"
        "E1128 07:55:54.297994   17456 add_port.cc:83] Failed to add port to server: No address added out of total 1 resolved"
        " for '[::]:45969'\n"
    )
    task = (
        "I1128 07:55:54.291327 139939744283520 distributed.py:172] Connecting to JAX distributed service on 10.0.0.1:45969\n"
        "F1128 07:56:19.313071   17457 client.h:80] Terminating process because the JAX distributed service detected fatal"
        " errors. This most likely indicates that another task died; see the other task logs for more details."
        " absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded\n\nRPC: /xla.coordination.CoordinationService/RegisterTask\n"
    )
    first = diagnosed(engine, rank_0=coordinator, rank_1=task).diagnoses[0]
    assert (first.fault, [item.rank for item in first.suspects]) == ("port_in_use", [0])
    alone = diagnosed(engine, rank_1=task).diagnoses[0]
    assert alone.title == "JAX task could not register with the coordinator"
    assert not suspects_label(alone).startswith("Suspect")


CRASH = 'Traceback (most recent call last):\n  File "/srv/fit.py", line 8, in go\n    k(a)\nRuntimeError: CUDA error: an illegal memory access was encountered\n'


def test_that_no_hardware_error_was_found_needs_a_kernel_log(engine: Matcher) -> None:
    """Without one, nobody has looked."""
    why = diagnosed(engine, train=CRASH).decision.why
    assert "no kernel log was collected" in why
    looked = diagnosed(engine, train=CRASH, dmesg="[ 100.1] systemd[1]: Started Daily Cleanup.\n").decision.why
    assert "show no hardware error" in looked


@pytest.mark.parametrize(("release", "named"), [("2.7.8", False), ("2.20.5", True)])
def test_a_setting_is_only_named_for_releases_that_have_it(engine: Matcher, release: str, named: bool) -> None:
    """NCCL 2.7 has neither cuMem nor NVLS."""
    text = f"RuntimeError: NCCL error in: /x/ProcessGroupNCCL.cpp:784, unhandled cuda error, NCCL version {release}\n"
    steps = " ".join(step.text for step in diagnosed(engine, train=text).diagnoses[0].remediation)
    assert ("NCCL_CUMEM_ENABLE" in steps) == named


@pytest.mark.parametrize(
    ("line", "listed"),
    [
        (
            "The node with client ID 6a16415bb1baa3dc2e753af42ab73ff900d87222 has been marked dead because the monitor",
            False,
        ),
        (
            "The node with node id: 6a16415bb1baa3dc2e753af42ab73ff900d87222 and address: 10.0.0.7 has been marked dead",
            True,
        ),
    ],
)
def test_old_releases_of_ray_have_no_list_of_nodes(engine: Matcher, line: str, listed: bool) -> None:
    """`ray list` came with Ray 2.0; before 1.0, a node was a client."""
    first = diagnosed(engine, driver=f"2024-08-03 09:58:24,196 ERROR worker.py:1713 -- {line}\n").diagnoses[0]
    assert any("ray list" in (step.command or "") for step in first.remediation) == listed
    assert "6a16415b" in first.summary or listed


FRAGMENTED = (
    "{}torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.00 GiB. GPU 0 has a total capacity of 79.15 GiB of"
    " which 2.00 GiB is free. Process 41 has 77.00 GiB memory in use. Of the allocated memory 37.00 GiB is allocated by PyTorch,"
    " and 9.00 GiB is reserved by PyTorch but unallocated.\n"
)


@pytest.mark.parametrize(
    ("head", "named"),
    [
        ("torch version: 1.13.1\n", "max_split_size_mb"),
        ("", "expandable_segments"),
        ("torch 2.4.0\n", "expandable_segments"),
    ],
)
def test_a_setting_of_the_allocator_fits_the_release_of_torch(engine: Matcher, head: str, named: str) -> None:
    """Expandable segments came with PyTorch 2."""
    steps = " ".join(step.text for step in diagnosed(engine, train=FRAGMENTED.format(head)).diagnoses[0].remediation)
    assert named in steps
    assert ("expandable_segments" in steps) == (named == "expandable_segments")


def test_a_step_names_the_suspect_that_the_answer_has(engine: Matcher) -> None:
    """Who is told to find the rank that does not wait has it in the answer."""
    line = (
        "[rank{0}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 15000ms"
        " for recv operation to complete\n"
    )
    logs = {f"rank_{rank}": f"[rank{rank}]: step 10\n" + (line.format(rank) if rank != 2 else "") for rank in range(4)}
    first = diagnosed(engine, **logs).diagnoses[0]
    assert [item.rank for item in first.suspects] == [2]
    assert "Read the log of rank 2" in first.remediation[0].text
    alone = diagnosed(engine, rank_0=line.format(0)).diagnoses[0]
    assert "Find the rank" in alone.remediation[0].text


NO_GPU = (
    "{}Traceback (most recent call last):\n"
    '  File "/srv/fit/run.py", line 12, in main\n    step = jax.jit(loss)\n'
    "RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.\n"
)


def test_that_jax_found_no_tpu_makes_no_run_one_of_tpus(engine: Matcher) -> None:
    """JAX tries all its backends, and says of each that it is not there."""
    tried = (
        "INFO:jax._src.xla_bridge:Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: libtpu.so:"
        " cannot open shared object file: No such file or directory\n"
    )
    (first,) = diagnosed(engine, train=NO_GPU.format(tried)).diagnoses
    assert "nvidia-smi" in str([step.command for step in first.remediation])


def test_the_tool_of_the_device_lists_it(engine: Matcher) -> None:
    """On nodes of another vendor, there is no nvidia-smi."""
    text = "torch 2.6.0, ROCm 6.2\nTraceback (most recent call last):\nRuntimeError: No HIP GPUs are available\n"
    steps = diagnosed(engine, train=text).diagnoses[0].remediation
    commands = str([step.command for step in steps])
    assert "rocm-smi" in commands
    assert "nvidia" not in commands


def test_a_process_that_reports_a_barrier_of_a_save_is_no_suspect(engine: Matcher) -> None:
    """It waited there; those that did not come are not named."""
    line = (
        "E0301 05:30:12.402527 4411 async_checkpointer.py:180] [process=0] Failed to run background save operation:"
        " DEADLINE_EXCEEDED: Barrier timed out. Id: write_metadata_after_commits/7000.items::2::7.\n"
    )
    first = diagnosed(engine, rank_0=line).diagnoses[0]
    assert first.fault == "checkpoint_save"
    assert not first.suspects


BLOCKS = (
    "ValueError: FSDP2 with SHARDED_STATE_DICT is not compatible with save_only_model=True. Either set save_only_model=False, or"
    " change state_dict_type to FULL_STATE_DICT in fsdp_config.\n"
    "============================================================\ntrain.py FAILED\n"
    "------------------------------------------------------------\nFailures:\n[1]:\n  time      : 2025-04-25_20:11:03\n"
    "  host      : gn7\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 41)\n  error_file: <N/A>\n"
    "  traceback : Signal 15 (SIGTERM) received by PID 41\n"
    "------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n"
    "  time      : 2025-04-25_20:11:02\n  host      : gn7\n  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 44)\n"
    "  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
    "============================================================\n"
)


def test_who_runs_into_a_setting_first_is_not_to_blame_for_it(engine: Matcher) -> None:
    """All ranks got the same setting; the launcher only says which of them it stopped first."""
    text = 'Traceback (most recent call last):\n  File "/srv/fit.py", line 8, in go\n    check(args)\n' + BLOCKS
    report = diagnosed(engine, train=text)
    assert report.diagnoses[0].fault == "config_error"
    assert "rank 3" not in headline(report).partition("(")[0]
    assert not suspects_label(report.diagnoses[0]).startswith("Suspect")


def test_the_last_error_of_a_failed_cuda_call_is_quoted(engine: Matcher) -> None:
    """The exception itself only says that some call failed."""
    text = REFUSED.format(12, "Cuda failure 1 'invalid argument'").replace("invalid usage", "unhandled cuda error")
    first = diagnosed(engine, train=text).diagnoses[0]
    assert (first.rule, "invalid argument" in first.summary) == ("nccl-cuda-failure", True)


def test_a_key_that_did_not_come_is_no_damaged_store(engine: Matcher) -> None:
    """The store answers; another rank has not set the key."""
    text = (
        'Traceback (most recent call last):\n  File "/x/t.py", line 3, in f\n    dist.barrier()\n'
        "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cuda//0\n"
    )
    report = diagnosed(engine, rank_3=text)
    assert [item.rule for item in report.diagnoses] == ["store-wait-timeout"]


def test_the_program_that_a_container_lacks_is_named(engine: Matcher) -> None:
    """The runtime's line says more than that it failed."""
    text = (
        "OCI runtime create failed: container_linux.go:380: starting container process caused:"
        ' exec: "torchrun": executable file not found in $PATH: unknown\n'
    )
    assert "torchrun was not found" in diagnosed(engine, train=text).diagnoses[0].summary


def test_a_refused_connection_is_no_missing_route(engine: Matcher) -> None:
    """The host answered: it is reachable, and nobody listens there."""
    line = "cn-1:11:22 [0] misc/socket.cc:1 NCCL WARN Net : Connect to 10.0.0.9<54263> failed : {}\n"
    refused = diagnosed(engine, train=line.format("Connection refused")).diagnoses[0]
    assert "no route" not in refused.cause
    assert "ended before" in refused.remediation[0].text
    unreachable = diagnosed(engine, train=line.format("No route to host")).diagnoses[0]
    assert "no route" in unreachable.cause


CRASHED = "[cn-a94:17969] *** Process received signal ***\n[cn-a94:17969] Signal: Segmentation fault (11)\n"
XID = "Apr  2 11:30:07 cn-a94 kernel: NVRM: Xid (PCI:0000:3b:00): {0}\n"


@pytest.mark.parametrize(
    ("text", "label", "at_fault"),
    [
        (CRASHED, "Seen on", True),
        (XID.format("79, pid=1234, GPU has fallen off the bus."), "Suspects", False),
        (XID.format("31, pid=1234, Ch 00000010, MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0"), "Seen on", True),
        (TIMEOUT.format(3), "Waiting", True),
    ],
)
def test_a_place_is_a_suspect_only_where_the_fault_is_one_of_machines(
    engine: Matcher, text: str, label: str, at_fault: bool
) -> None:
    """A crash of the program, or a page fault of its kernel, is seen on a node; the node is not accused of it."""
    first = diagnosed(engine, train=text).diagnoses[0]
    assert (suspects_label(first), bool(first.lies_in)) == (label, at_fault)


def test_a_fault_of_the_whole_job_has_no_row_for_its_place(engine: Matcher) -> None:
    """That it affects the whole job is no place, and no reason."""
    report = diagnosed(
        engine, train="slurmstepd: error: *** JOB 5511 ON c7 CANCELLED AT 2026-04-07T08:15:22 DUE TO TIME LIMIT ***\n"
    )
    assert suspected(report.diagnoses[0].suspects) == ""
    assert "Seen on" not in plain(report)


def test_a_later_finding_does_not_restart_a_job_whose_cause_must_be_fixed(engine: Matcher) -> None:
    """The first finding decides; an interrupt of the same run has no advice that contradicts it."""
    text = "iter 0: loss nan, time 450.43ms\niter 1: loss nan, time 450.43ms\niter 2: loss nan, time 451.00ms\n"
    text += 'Traceback (most recent call last):\n  File "/srv/fit.py", line 8, in go\n    step()\nKeyboardInterrupt\n'
    report = diagnosed(engine, train=text)
    assert [item.fault for item in report.diagnoses] == ["loss_not_finite", "cancelled"]
    assert "restart" not in " ".join(step.text for step in report.diagnoses[1].remediation)
