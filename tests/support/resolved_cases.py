"""Small resolved incidents for the tests of mining: a few lines of training, noise, and what the test is about."""

from __future__ import annotations

from kb.learning.cases import Case, Observation
from kb.learning.negative_corpus import background, negative_text
from kb.rulebase.rule import FaultClass, Rulebook

STEPS = "".join(f"[rank0]: step {at} | loss: {3 - at / 50:.4f} | lr: 3.0e-4\n" for at in range(1, 6))
NOISE = (
    "[rank0]: WARNING: tokenizer cache of shard 12 was stale, rebuilt\n",
    "kernel: usb 1-2: new high-speed USB device number 5 using xhci_hcd\n",
    "[rank1]: profiler trace upload failed with 503, will be retried\n",
)
LEASE = "[rank{rank}]: lease-agent: lease of volume {volume} was refused by its owner at epoch {epoch}\n"
GONE = "[rank{rank}]: quota.VolumeGoneError: volume {volume} is gone from mount table\n"

BOOK = Rulebook(
    "1",
    "",
    (),
    {
        "storage_io": FaultClass("storage_io", "platform", "Storage fault: I/O error", explains=("checkpoint_save",)),
        "checkpoint_save": FaultClass("checkpoint_save", "software", "Checkpoint cannot be written"),
        "data_error": FaultClass("data_error", "software", "Training data fault: corrupt sample"),
        "gpu_memory_ecc": FaultClass("gpu_memory_ecc", "hardware", "GPU memory: uncorrectable ECC error"),
        "deadlock": FaultClass("deadlock", "software", "Process hung outside communication: lock"),
        "killed": FaultClass("killed", "none", "Process killed from outside", symptom=True),
        "code_bug": FaultClass("code_bug", "software", "Error in the run's own Python code"),
    },
    {},
    {},
)


def case(number: int, text: str, fault: str | None = "storage_io", **more) -> Case:
    """A case of one log: the run, some noise, the text."""
    return Case(number, fault, texts={"logs/rank-0.log": STEPS + NOISE[number % 3] + text}, **more)


def leases(*numbers: int) -> list[Case]:
    """Incidents of one signature, in which ranks, volumes and epochs differ."""
    return [case(number, LEASE.format(rank=number % 8, volume=number * 7, epoch=number + 3)) for number in numbers]


def others(*texts: str, fault: str | None = "data_error", good: tuple[str, ...] = ()):
    """A background of texts of another fault, good runs, and noise. `good`: lines of a good run."""
    told = [
        negative_text(100 + at, fault, {"logs/rank-0.log": STEPS + NOISE[at % 3] + text})
        for at, text in enumerate(texts)
    ]
    runs = [
        negative_text(900 + at, "healthy", {"logs/rank-0.log": STEPS + item}) for at, item in enumerate((*NOISE, *good))
    ]
    return background([*told, *runs])


def seen(kind: str, **fields: str) -> Observation:
    """Something observed."""
    return Observation(kind, fields)
