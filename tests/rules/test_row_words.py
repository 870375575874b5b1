"""A rule with several causes says of each line only what that line shows: title, summary and steps come from its row."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.diagnosis.findings import find
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.report import Diagnosis
from kb.scanning.matcher import Matcher

KNOWN = knowledge()
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/opt/llm/{file}", line 31, in {function}\n    run(job)\n{message}\n'
)


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def raised(message: str, file: str = "train.py", function: str = "<module>") -> str:
    """An uncaught exception."""
    return TRACEBACK.format(message=message, file=file, function=function)


def words(engine: Matcher, rule: str, text: str) -> Diagnosis:
    """What a rule says of a log."""
    report = diagnose(evidence_of(KNOWN, engine, {"job.log": text.encode()}), KNOWN.rulebook)
    found = [item for item in report.diagnoses if item.rule == rule]
    assert found, [item.rule for item in report.diagnoses]
    return found[0]


CASES = [
    # a stack that waits for a batch is no timeout
    (
        "loader-timeout",
        ('Process 7120: python train.py\nThread 7120 (idle): "MainThread"\n    select (selectors.py:415)\n'
        "    wait (multiprocessing/connection.py:931)\n    _try_get_data (torch/utils/data/dataloader.py:1132)\n"),
        "waits for its data loader",
        "timeout",
    ),
    ("loader-timeout", raised("RuntimeError: DataLoader timed out after 120 seconds"), "Data loader timeout", "stack"),
    # the traceback shows who calls, not who defines the function
    (
        "library-interface-changed",
        raised(
            "TypeError: PairTrainer.compute_loss() got an unexpected keyword argument 'num_items_in_batch'",
            "lib/python3.12/site-packages/transformers/trainer.py",
            "training_step",
        ),
        "argument that the function does not have",
        "installed library does not have",
    ),
    # a bare code does not show the state of a service
    (
        "fabric-manager-not-ready",
        raised("RuntimeError: CUDA error: system not yet initialized"),
        "system is not initialised",
        "not running",
    ),
    (
        "fabric-manager-not-ready",
        "May 04 10:00:00 gpu-7 systemd[1]: Failed to start NVIDIA fabric manager service.\n",
        "Fabric manager failed",
        "CUDA reports",
    ),
    # the run's own import, a package's import, a library
    (
        "import-failed",
        raised("ImportError: cannot import name 'Batcher' from 'lm.data' (/home/ana/lm/data.py)"),
        "Name missing",
        "packages are incompatible",
    ),
    (
        "import-failed",
        raised("ImportError: cannot import name 'AdamW' from 'optim' (/opt/venv/lib/python3.11/site-packages/optim/__init__.py)"),
        "Name missing",
        "incompatible",
    ),
    (
        "import-failed",
        raised("ImportError: libcusparseLt.so.0: cannot open shared object file: No such file or directory"),
        "Shared library",
        "Name missing",
    ),
    # offline mode says nothing about the hub
    (
        "hub-unreachable",
        raised(
            "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and "
            "outgoing traffic has been disabled."
        ),
        "downloads are switched off",
        "unreachable",
    ),
    ("bus-error-signal", "rank 3: Bus error: nonexistent physical address\n", "SIGBUS", "usually full"),
    ("text-decode", raised("UnicodeEncodeError: 'ascii' codec can't encode character '\\u2588' in position 0"), "output encoding", "data"),
    ("process-limit", raised("OSError: [Errno 37] No locks available: '/ckpt/.lock'"), "No file lock", "threads"),
    ("tensor-device-mismatch", raised("NotImplementedError: Cannot copy out of meta tensor; no data!"), "device that the operation cannot use", "different devices"),
    ("no-gradient", raised("ValueError: optimizer got an empty parameter list"), "No parameter to train", "loss"),
    ("c10d-collective-mismatch", raised("RuntimeError: DDP expects same model across all ranks, but Rank 2 has 61 params, while rank 0 has inconsistent 63 params."), "different models", "different collectives"),
    ("rendezvous-lost", raised("torch.distributed.elastic.rendezvous.api.RendezvousClosedError"), "was closed", "lost the"),
    ("jax-coordination-timeout", "E0504 DEADLINE_EXCEEDED: Barrier timed out. Id: eval_sync_7::0. This usually happens because a task died\n", "reach a barrier", "connect"),
    ("script-line-broken", "train.sh: line 12: DATA_ROOT: unbound variable\n", "Shell rejected", "backslash"),
    ("cuda-out-of-memory", raised('RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator.cpp":838'), "internal check", "requested"),
    ("master-name-unresolved", "ssh: Could not resolve hostname node-17: Name or service not known\n", "by ssh", "master"),
    ("process-limit", "TERM_THREADLIMIT: job killed after reaching LSF thread limit.\n", "over its limit", "refused"),
    ("oci-runtime-failed", "OCI runtime exec failed: exec failed: unable to start container process: no such file\n", "cannot be run in the container", "start the container"),
    ("image-pull-failed", "  Reason:  ErrImageNeverPull\n", "not to be pulled", "could not be pulled"),
    ("script-not-found", "python: can't find '__main__' module in '/job/src'\n", "No script at the path", "could not be opened"),
    ("cuda-illegal-memory-access", raised("RuntimeError: CUDA error: misaligned address"), "Misaligned", "illegal"),
    ("torch-without-gpu-support", raised("RuntimeError: Distributed package doesn't have NCCL built in"), "no NCCL", "device"),
    ("driver-too-old", raised("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."), "PTX", "the process uses"),
    ("empty-dataset", raised("RuntimeError: stack expects a non-empty TensorList", function="gather"), "Nothing to join", "dataset"),
    ("shard-damaged", raised("ValueError: could not convert string to float: 'label'"), "not a number", "truncated"),
    ("tokenizer-input", raised("ValueError: Asking to pad but the tokenizer does not have a padding token."), "Tokenizer lacks", "sample"),
    ("tokenizer-input", raised("RuntimeError: Prompt length 7312 is longer than 4096."), "length limit", "tokenizer"),
    ("dataset-tables", raised('ValueError: Unknown split "dev". Should be one of [\'train\']'), "Split missing", "unreadable"),
    ("dataset-tables", raised("ValueError: Column name text not in the dataset. Current columns in the dataset: ['prompt']"), "Columns", "unreadable"),
    ("cuda-device-busy", "EJ0001: Failed to initialize the HCCP process. Reason: Maybe the last training process is running.\n", "HCCP", "exclusive"),
    ("shared-memory-exhausted", 'kubelet  Usage of EmptyDir volume "dshm" exceeds the limit "8Gi".\n', "over the limit", "ran out"),
    ("kernel-panic", "[10021.511002] Kernel panic - not syncing: hung_task: blocked tasks\n", "tasks were blocked", "hardware"),
    ("kernel-panic", "[ 9111.204] Kernel panic - not syncing: Fatal exception in interrupt\n", "Kernel panic", "blocked"),
    ("gpu-peer-access", "[ 120.41] nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0011 address=0x9f000000 flags=0x0020]\n", "a GPU's memory access", "a device's"),
    ("mpi-fabric-init-failed", "libfabric:2211:17::opx:fabric:fi_opx_hfi1_context_open():812<warn> FATAL: HFI has no active ports, cannot continue\n", "Omni-Path", "MPI"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "text", "said", "not_said"), CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)]
)
def test_the_row_of_a_line_speaks(engine: Matcher, rule: str, text: str, said: str, not_said: str) -> None:
    """Title and summary name what the line shows, and not what another line of the same rule would show."""
    found = words(engine, rule, text)
    assert said in found.title
    assert not_said.lower() not in f"{found.title} {found.summary}".lower()


def test_a_blocked_access_of_an_unknown_device_is_context(engine: Matcher) -> None:
    """The kernel names it by its address only; it need not be a GPU, so the line alone makes no diagnosis."""
    line = b"[ 120.41] DMAR: [DMA Write] Request device [5e:00.0] fault addr 9f000000 [fault reason 05] PTE Write access is not set\n"
    evidence = evidence_of(KNOWN, engine, {"dmesg.log": line})
    (found,) = find(KNOWN.rulebook, Facts(evidence), History()).findings
    assert found.row is not None
    assert (found.rule.id, found.row.key, found.role) == ("gpu-peer-access", "dmar", "context")
    assert not diagnose(evidence, KNOWN.rulebook).diagnoses


def test_several_lost_machines_are_not_told_as_one(engine: Matcher) -> None:
    """The summary counts the others, and leaves out what only the first has."""
    lost = "WARNING worker.py:2121 -- The node with node id: {id} and address: {host} and node name: {host} has been marked dead\n"
    one = lost.format(id="5af1a07c" * 4, host="10.0.0.3")
    both = one + lost.format(id="77f1a07c" * 4, host="10.0.0.7")
    assert words(engine, "ray-node-lost", one).summary == f"Ray marked 10.0.0.3 as dead; its ID is {'5af1a07c' * 4}."
    assert words(engine, "ray-node-lost", both).summary == "Ray marked 10.0.0.3 and 1 more as dead."


def test_a_row_has_its_own_cause(engine: Matcher) -> None:
    """The rule's, which lists what it can be, is not said of a line without a row of its own."""
    own = words(engine, "process-limit", raised("OSError: [Errno 37] No locks available: '/ckpt/.lock'"))
    rule = words(engine, "process-limit", raised("RuntimeError: can't start new thread"))
    assert "lock service" in own.cause
    assert (rule.rule, rule.cause) == ("process-limit", "")


def test_a_signal_that_ended_a_worker_leaves_no_other_cause(engine: Matcher) -> None:
    """A worker that crashed did not leave by an exit, and did not run out of memory."""
    crashed = words(
        engine,
        "loader-worker-died",
        raised("RuntimeError: DataLoader worker (pid 31) is killed by signal: Segmentation fault. "),
    )
    left = words(
        engine, "loader-worker-died", raised("RuntimeError: DataLoader worker (pid(s) 31) exited unexpectedly")
    )
    assert "Segmentation fault" in crashed.summary
    assert "exit" not in crashed.cause
    assert "memory" not in " ".join([crashed.cause, *(step.text for step in crashed.remediation)])
    assert left.cause == ""  # how it ended is open


def test_the_place_of_a_call_is_that_of_the_innermost_frame(engine: Matcher) -> None:
    """The code calls a library here; which of the two is older is not said."""
    message = "TypeError: DataLoader.__init__() got an unexpected keyword argument 'prefetch'"
    found = words(engine, "library-interface-changed", raised(message, "fit.py", "build_loader"))
    assert "that is passed to it at /opt/llm/fit.py:31 in build_loader." in found.summary


def test_patterns_without_a_row_make_one_finding(engine: Matcher) -> None:
    """The default row describes them together."""
    text = raised("RuntimeError: can't start new thread") + "bash: fork: retry: Resource temporarily unavailable\n"
    report = diagnose(evidence_of(KNOWN, engine, {"job.log": text.encode()}), KNOWN.rulebook)
    assert [item.rule for item in report.diagnoses].count("process-limit") == 1


def test_the_check_of_a_data_file_accepts_json_lines() -> None:
    """json.tool rejects a healthy file of JSON Lines; the step must not ask for it."""
    rule = next(rule for rule in KNOWN.rulebook.rules if rule.id == "json-decode")
    assert not any("json.tool" in (step.command or "") for step in rule.remediation)


def steps_of(found: Diagnosis) -> str:
    """All steps of an answer with their commands."""
    return " ".join(f"{step.text} {step.command or ''}" for step in found.remediation)


def test_a_key_that_counts_messages_shows_that_the_group_had_worked(engine: Matcher) -> None:
    """A key of the start shows no such thing, and may wait for rank 0."""
    error = "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: "
    later = words(engine, "store-wait-timeout", raised(error + "/broadcast_from/2/57"))
    assert "57 broadcasts of rank 2 of this group had come before" in later.summary
    assert "rank 2" in later.lies_in
    assert "often rank 0" not in steps_of(later)
    start = words(engine, "store-wait-timeout", raised(error + "/default_pg/0//cuda//0"))
    assert "broadcasts" not in start.summary
    assert "often rank 0" in steps_of(start)


def test_a_limit_that_the_program_computed_is_no_setting_to_change(engine: Matcher) -> None:
    """Nobody writes a large negative number of tokens."""
    made = words(engine, "setting-refused", raised("ValueError: max_tokens must be at least 1, got -812."))
    assert made.title == "Computed limit is out of range"
    assert "setting that the message names" not in steps_of(made)
    given = words(engine, "setting-refused", raised("ValueError: unsupported optimizer lyon"))
    assert "setting that the message names" in steps_of(given)


def test_the_quota_of_a_queue_is_no_object_of_the_namespace(engine: Matcher) -> None:
    """The command shows the queue."""
    found = words(
        engine, "kubernetes-unschedulable", "0s Warning Unschedulable podgroup/a queue resource quota insufficient\n"
    )
    assert "queues.scheduling" in steps_of(found)
    assert "resourcequota" not in steps_of(found)


def test_a_loopback_address_is_told_to_be_one(engine: Matcher) -> None:
    """No port of a firewall is in its way."""
    line = "node-a:11:77 [0] NCCL WARN socketStartConnect: Connect to {}<45069> failed : Software caused connection abort\n"
    assert "loopback" in steps_of(words(engine, "nccl-connect-failed", line.format("127.0.0.1")))
    assert "loopback" not in steps_of(words(engine, "nccl-connect-failed", line.format("10.1.2.3")))


def test_a_package_whose_build_fails_has_a_version(engine: Matcher) -> None:
    """Pinning another one is for a version that was not found."""
    built = words(
        engine, "package-install-failed", "  Getting requirements to build wheel: finished with status 'error'\n"
    )
    assert "build isolation" in steps_of(built)
    absent = words(engine, "package-install-failed", "ERROR: No matching distribution found for rotary==9.9\n")
    assert "pin versions" in steps_of(absent)


def test_an_interrupt_behind_lines_of_nan_is_not_nothing(engine: Matcher) -> None:
    """Somebody stopped a run that was broken; lines that only say that values are checked show no such thing."""
    raised_by_hand = raised("KeyboardInterrupt", function="forward")
    for before, broken in (
        ("".join(f"NaN found behind layer {number}\n" for number in range(12)), True),
        ("".join(f"layer {number} has no NaN\n" for number in range(12)), False),
        ("NaN found behind layer 3\n" + "".join(f"step {number} loss 2.5\n" for number in range(12)), False),
    ):
        report = diagnose(evidence_of(KNOWN, engine, {"job.log": (before + raised_by_hand).encode()}), KNOWN.rulebook)
        found = next(item for item in report.diagnoses if item.rule == "stopped-by-keyboard")
        assert (report.decision.advice == "fix_first") == broken
        assert ("numerics" in found.lies_in) == broken
        assert ("If this was not intended" in steps_of(found)) != broken


def test_no_search_for_a_stack_that_no_log_has(engine: Matcher) -> None:
    """The C library prints one line about its heap; what to look for is only named where a process printed more."""
    bare = "rank 1 step 12 loss 2.9\nfree(): invalid pointer\n"
    stack = 'Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n  File "/opt/llm/fit.py", line 3 in <module>\n'
    assert "grep" not in steps_of(words(engine, "heap-corruption", bare))
    assert "PYTHONFAULTHANDLER" in steps_of(words(engine, "heap-corruption", bare))
    assert "grep" in steps_of(words(engine, "heap-corruption", bare + stack))


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd-n4: error: *** JOB 812 ON n4 CANCELLED AT 2026-02-03T10:00:00 DUE TO JOB REQUEUE ***\n",
        "[2026-02-03T10:00:00] preempted JobId=812 has been requeued to reclaim resources for JobId=813\n",
    ],
)
def test_a_job_that_slurm_has_put_back_is_not_submitted_again(engine: Matcher, line: str) -> None:
    """A second copy would use the same checkpoints; nobody has put back a job that was preempted and killed."""
    killed = "slurmstepd-n4: error: *** JOB 812 ON n4 CANCELLED AT 2026-02-03T10:00:00 DUE TO PREEMPTION ***\n"
    reports = [
        diagnose(evidence_of(KNOWN, engine, {"job.log": text.encode()}), KNOWN.rulebook) for text in (line, killed)
    ]
    assert [item.decision.advice for item in reports] == ["wait", "requeue"]
    assert "Restart" not in steps_of(words(engine, "slurm-preempted", line))


def test_clients_of_a_store_are_processes(engine: Matcher) -> None:
    """How many nodes they are on is not said; the launcher's own rendezvous counts nodes and has an endpoint."""
    error = "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 3/8 clients joined."
    store = words(engine, "rendezvous-timeout", raised(error))
    assert "3/8 processes" in store.summary
    assert "node" not in f"{store.title} {store.summary} {store.lies_in} {steps_of(store)}"
    frame = "lib/python3.11/site-packages/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py"
    error = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"
    launcher = steps_of(words(engine, "rendezvous-timeout", raised(error, frame, "run")))
    assert "--rdzv-endpoint" in launcher
    assert "MASTER_" not in launcher


def test_autocast_is_no_remedy_for_float64(engine: Matcher) -> None:
    """It leaves such tensors as they are."""
    error = "RuntimeError: mat1 and mat2 must have the same dtype, but got {} and Float"
    assert "under autocast" in steps_of(words(engine, "tensor-dtype-mismatch", raised(error.format("Half"))))
    double = steps_of(words(engine, "tensor-dtype-mismatch", raised(error.format("Double"))))
    assert "under autocast" not in double
    assert "float64" in double


def test_what_weights_only_refused_is_named_or_not(engine: Matcher) -> None:
    """An operand is no object that can be allowed, and the words of the message itself are none either."""
    error = (
        "_pickle.UnpicklingError: Weights only load failed. We changed the default value of the `weights_only` argument"
        " in `torch.load` from `False` to `True`.\n\tWeightsUnpickler error: {}\n"
    )
    operand = steps_of(words(engine, "weights-only-refused", raised(error.format("\n\nUnsupported operand 80"))))
    assert "allowlist" not in operand
    assert "file is whole" in operand
    named = "Unsupported global: GLOBAL fit.config.Settings was not an allowed global by default."
    found = steps_of(words(engine, "weights-only-refused", raised(error.format(named))))
    assert "allowlist fit.config.Settings" in found
    assert "weights_only and" not in found


def test_the_check_of_a_wrapper_is_the_failing_line(engine: Matcher) -> None:
    """It may stand behind the loop, where a batch does not reach it."""
    error = "AttributeError: 'DistributedDataParallel' object has no attribute 'best_score'"
    step = words(engine, "wrapped-module-attribute", raised(error)).remediation[0]
    assert "batch" not in (step.verify or "")


def test_a_message_that_came_too_long_over_gloo_accuses_no_collective(engine: Matcher) -> None:
    """The receiver reports it, of a collective or of a send; what TORCH_DISTRIBUTED_DEBUG compares are collectives."""
    line = "[enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 2048 vs 1024.\n"
    found = words(engine, "c10d-collective-mismatch", line)
    assert "different collectives" not in f"{found.title} {found.summary}"
    assert "If the call is a collective" in steps_of(found)
    timed_out = raised(
        "RuntimeError: gloo/unbound_buffer.cc:78] Timed out waiting 12000ms for recv operation to complete"
    )
    assert "collective" not in steps_of(words(engine, "gloo-timeout", timed_out))


def test_the_address_that_the_line_states_is_the_one_to_test(engine: Matcher) -> None:
    """Nobody needs to look for it."""
    line = "fetch url=https://models.depot.example/v1/base.json failed: <urlopen error [Errno -2] Name or service not known>\n"
    found = steps_of(words(engine, "http-connection-failed", line))
    assert "curl -sI https://models.depot.example" in found
    assert "Find the address" not in found
    bare = raised("urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>")
    assert "Find the address" in steps_of(words(engine, "http-connection-failed", bare))
