"""What the lines of a fault name and its sentence does not is added to it, where there is one candidate."""

from __future__ import annotations

import pytest

from bot.authoring import selftest
from bot.rulebase.loader import Knowledge, knowledge
from kb.diagnosis.engine import diagnose
from kb.scanning.matcher import Matcher

SITE = "/opt/env/lib/python3.11/site-packages"
BROKEN = (
    "requests.exceptions.ChunkedEncodingError: ('Connection broken: IncompleteRead(12 bytes read, 90 more expected)')\n"
)


def _raised(*frames: str) -> str:
    """A traceback of frames `file:line:function`, outermost first."""
    parts = (frame.rsplit(":", 2) for frame in frames)
    shown = "".join(f'  File "{file}", line {line}, in {function}\n    call()\n' for file, line, function in parts)
    return f"Traceback (most recent call last):\n{shown}"


@pytest.fixture(scope="module")
def base() -> tuple[Knowledge, Matcher]:
    """The shipped rules."""
    known = knowledge()
    return known, known.matcher()


def summary(base: tuple[Knowledge, Matcher], **logs: str) -> str:
    """What the first diagnosis of logs says, given by the stems of their names."""
    known, matcher = base
    texts = {f"{name.replace('_', '-')}.log": text.encode() for name, text in logs.items()}
    return diagnose(selftest.evidence_of(known, matcher, texts), known.rulebook).diagnoses[0].summary


def test_a_failed_download_names_the_code_and_the_package_that_it_calls(base: tuple[Knowledge, Matcher]) -> None:
    """Not the library through which every service is called."""
    outer = ("/srv/fit/fetch.py:12:main", "/srv/fit/genes.py:40:annotate")
    asked = summary(
        base, train=_raised(*outer, f"{SITE}/genome/client.py:9:ask", f"{SITE}/requests/models.py:818:read") + BROKEN
    )
    plain = summary(base, train=_raised(*outer, f"{SITE}/requests/models.py:818:read") + BROKEN)

    deep = (f"{SITE}/genome/{part}.py:9:{part}" for part in ("client", "pages", "cache", "wire"))
    far = summary(base, train=_raised(*outer, *deep) + BROKEN)

    assert asked.endswith("The code was at /srv/fit/genes.py:40 in annotate, calling genome: `call()`.")
    assert far.endswith("The code was at site-packages/genome/wire.py:9 in wire.")
    assert plain.endswith("The code was at /srv/fit/genes.py:40 in annotate: `call()`.")


def test_ranks_that_fail_in_different_places_name_none(base: tuple[Knowledge, Matcher]) -> None:
    """One place of several would be a guess; what only libraries raised has no place of the run's own."""
    error = "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Double\n"
    one = _raised("/srv/fit/train.py:90:main", f"{SITE}/torch/nn/linear.py:125:forward") + error
    other = one.replace("train.py", "value.py")

    assert "train.py:90 in main" in summary(base, rank_0=one, rank_1=one)
    assert ".py" not in summary(base, rank_0=one, rank_1=other)
    assert ".py" not in summary(base, train=_raised(f"{SITE}/torch/nn/linear.py:125:forward") + error)


def test_the_adapter_of_a_line_beside_is_named(base: tuple[Knowledge, Matcher]) -> None:
    """One of two would be a guess."""
    error = "NET/IB: Got completion from peer with status=IBV_WC_REM_ACCESS_ERR(10)\n"
    beside = "NET/IB: {}:1 async fatal event on QP: local access violation work queue error\n"

    assert summary(base, nccl=error + beside.format("ibp7s0f1")).endswith("names the adapter ibp7s0f1:1.")
    assert "adapter" not in summary(base, nccl=error + beside.format("mlx5_0") + beside.format("mlx5_3"))


def test_a_device_that_fails_is_not_looked_for_in_the_code(base: tuple[Knowledge, Matcher]) -> None:
    """The frame only shows who noticed."""
    error = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"

    assert "train.py" not in summary(base, train=_raised("/srv/fit/train.py:90:main") + error)


@pytest.mark.parametrize(
    ("log", "named"),
    [
        ("RuntimeError: Expected to mark a variable ready only once. It was used twice.\nParameter at index 8 with name head.4.mlp.weight has been marked as ready twice.\n", "A line beside it names the parameter head.4.mlp.weight."),
        ("join (rank 0): tcp://fit-cn7:29611\n[c10d] The server socket has failed to bind to [::]:29611 (errno: 98 - Address already in use).\n", "A line beside it names the address fit-cn7:29611."),
        ("join (rank 0): tcp://fit-cn7:29500\n[c10d] The server socket has failed to bind to [::]:29611 (errno: 98 - Address already in use).\n", ""),
        ("read: ./shards/a_7.png does not exist!\nread: ./shards/a_9.png does not exist!\nSystemError: (Fatal) Blocking queue is killed because the data reader raises an exception.\n", "Lines beside it say that files are missing, such as ./shards/a_7.png."),
        ("warning: ./shards/a_7.png does not exist, skipped\nSystemError: (Fatal) Blocking queue is killed because the data reader raises an exception.\n", ""),
        ("start: model=acme/tiny-2b steps=9\nhuggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing traffic has been disabled.\n", "The log names acme/tiny-2b."),
        ("start: model=acme/tiny-2b reward_model=acme/judge\nhuggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing traffic has been disabled.\n", ""),
        ("start: model=acme/tiny-2b steps=9\nPermissionError: [Errno 13] Permission denied: '/media/disk7/runs'\n", ""),
        ("start: model=checkpoints/tiny\nhuggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing traffic has been disabled.\n", ""),
        ("wandb: ERROR Run initialization has timed out\nwandb: ERROR see https://docs.wandb.ai/guides/start or https://wandb.acme.example/up\nwandb.errors.CommError: Run initialization has timed out\n", "A line beside it names wandb.acme.example."),
        ("wandb: ERROR Run initialization has timed out\nwandb: ERROR see https://docs.wandb.ai/guides/start\nwandb.errors.CommError: Run initialization has timed out\n", ""),
        ('Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f3a9c1c0740 (most recent call first):\n  File "/venv/lib/python3.11/site-packages/shards/reader.py", line 60 in open\n', "The code was at site-packages/shards/reader.py:60 in open."),
    ],
)  # fmt: skip
def test_what_lines_beside_a_fault_name_is_told(base: tuple[Knowledge, Matcher], log: str, named: str) -> None:
    """Another port, a file that was skipped, a path, or one of two models is not named."""
    said = summary(base, train=log)

    assert said.endswith(named)
    assert bool(named) or not any(word in said for word in ("beside it", "The log names"))


def test_a_local_file_that_was_missing_before_a_download_is_named(base: tuple[Knowledge, Matcher]) -> None:
    """Only one of the same chain of exceptions."""
    first = "Traceback (most recent call last):\n  File \"/srv/fit/data.py\", line 9, in load\n    open(p)\nFileNotFoundError: [Errno 2] No such file or directory: '/data/tasks/meta.json'\n"
    handling = "\nDuring handling of the above exception, another exception occurred:\n\n"
    second = _raised("/srv/fit/data.py:12:load", f"{SITE}/requests/models.py:818:read") + BROKEN

    assert summary(base, train=first + handling + second).endswith("says that /data/tasks/meta.json is missing.")
    assert "missing" not in summary(base, train=first + "step 1\n" + second)


def test_a_line_names_only_what_its_own_process_says(base: tuple[Knowledge, Matcher]) -> None:
    """Lines of other ranks in the same log are theirs."""
    other = "[rank1]: read: ./shards/a_7.png does not exist!\n"
    error = "[rank0]: SystemError: (Fatal) Blocking queue is killed because the data reader raises an exception.\n"

    assert "a_7.png" not in summary(base, train=other + error)
    assert "a_7.png" in summary(base, train=other.replace("rank1", "rank0") + error)
