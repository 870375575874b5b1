"""The logs of a 64-rank job around a failure: healthy text of several frameworks, then the teardown of the others.

All texts are templates: time, step, rank and host are slots, filled for one run of one case. A block is about 4 MB and
ten minutes long and is built once per framework; a log repeats that block with later times. Formats and wording are
those of the real programs, the numbers are made up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Literal

BLOCK_BYTES = 4_000_000
SECONDS = 600  # a block
STEP_SECONDS = 2
STEPS = SECONDS // STEP_SECONDS  # a block
TOTAL = 100_000
TRACKER_AT = 500  # seconds into a block: the rank that logs iterations also reports them, and that fails for a moment
NODE = 8  # ranks

Say = Callable[[random.Random], str]
Phase = Literal["prepare", "run"]

_SLOT = re.compile("\x01([a-z])(-?[0-9]*)\x02")
RANK, LOCAL, HOST = "\x01r\x02", "\x01l\x02", "\x01h\x02"


def at(offset: float, form: str = "i") -> str:
    """A slot for the time so many seconds after the template's epoch. Forms: i ISO, t with T, u American, g glog's, k torchrun's."""
    return f"\x01{form}{int(offset)}\x02"


@dataclass(frozen=True, slots=True)
class Template:
    """Text with slots: `parts` is text, form, number, text, form, number, … text."""

    parts: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Template:
        """Find the slots of a text."""
        return cls(tuple(_SLOT.split(text)))

    def fill(self, epoch: float, step: int = 0, rank: int = 0) -> bytes:
        """Return the text for an epoch (seconds), a first step and a rank."""
        out = list(self.parts[::3])
        known: dict[tuple[str, str], str] = {}
        for index, slot in enumerate(zip(self.parts[1::3], self.parts[2::3], strict=True)):
            value = known.get(slot)
            if value is None:
                value = known[slot] = _value(slot[0], int(slot[1] or 0), epoch, step, rank)
            out[index] += value
        return "".join(out).encode()


def _value(form: str, number: int, epoch: float, step: int, rank: int) -> str:
    if form in "rlh":
        return {"r": str(rank), "l": str(rank % NODE), "h": host(rank)}[form]
    if form in "nwpe":
        step += number
        seconds = step * STEP_SECONDS
        return {
            "n": str(step),
            "w": f"{step:8d}",
            "p": f"{100 * step // TOTAL:3d}%",
            "e": f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}",
        }[form]
    forms = {
        "i": "%Y-%m-%d %H:%M:%S",
        "t": "%Y-%m-%dT%H:%M:%S",
        "u": "%m/%d/%Y %H:%M:%S",
        "k": "%Y-%m-%d_%H:%M:%S",
        "g": "%m%d %H:%M:%S",
    }
    return datetime.fromtimestamp(int(epoch) + number, UTC).strftime(forms[form])


def host(rank: int) -> str:
    """Return the host of a rank."""
    return f"gpu-a{rank // NODE:03d}"


# Events of every rank, in each framework's format.


def _shard(rng: random.Random) -> str:
    return (
        f"data: opened part-{rng.randint(0, 8191):05d}.bin at {rng.randint(10**6, 10**10)}, {rng.randint(40, 900)} documents,"
        f" {rng.uniform(0.4, 30):.2f} ms"
    )


def _pack(rng: random.Random) -> str:
    return f"packed {rng.randint(90, 700)} documents into {rng.randint(16, 64)} sequences of 4096, fill {rng.uniform(0.93, 0.999):.4f}"


def _memory(rng: random.Random) -> str:
    used = rng.uniform(50, 64)
    return (
        f"memory: allocated {used:.2f} GiB, peak {used * 1.07:.2f} GiB, reserved {used * 1.15:.2f} GiB, alloc retries 0, ooms 0,"
        f" host rss {rng.uniform(18, 31):.1f} GiB"
    )


def _prefetch(rng: random.Random) -> str:
    return f"prefetch queue {rng.randint(3, 32)}/32, workers 8/8 alive, errors 0, wait {rng.uniform(0, 4):.2f} ms"


def _gc(rng: random.Random) -> str:
    return f"gc: generation {rng.choice((1, 2))} took {rng.uniform(2, 90):.1f} ms, collected {rng.randint(0, 9000)}, uncollectable 0"


def _dynamo(rng: random.Random) -> str:
    return (
        f"[{rng.randint(0, 60)}/{rng.randint(0, 3)}] torchdynamo cache hit, guards {rng.randint(12, 80)} passed in"
        f" {rng.uniform(8, 90):.1f} us, graph breaks 0"
    )


def _ports(rng: random.Random) -> str:
    return f"mlx5_{rng.randint(0, 7)} counters: tx {rng.uniform(100, 380):.1f} Gb/s, symbol_error 0, link_downed 0, discards 0"


def _timers(rng: random.Random) -> str:
    return (
        f"timers (ms): forward {rng.uniform(310, 330):.1f} backward {rng.uniform(640, 660):.1f} optimizer"
        f" {rng.uniform(40, 44):.1f} all-gather {rng.uniform(90, 120):.1f}"
    )


def _index(rng: random.Random) -> str:
    return f"index: corpus/part-{rng.randint(0, 8191):05d}.idx, {rng.randint(10**4, 10**6)} documents, sequence lengths mapped"


def _option(rng: random.Random) -> str:
    key = rng.choice(("num_layers", "hidden_size", "clip_grad", "seq_length", "weight_decay", "seed", "ignore_errors"))
    return f"config: data.blend[{rng.randint(0, 400)}].{key} = {rng.choice(('4096', '0.1', 'False', 'None', '1234', '80'))}"


def _tokenize(rng: random.Random) -> str:
    return f"tokenized shard {rng.randint(0, 8191)}: {rng.randint(10**4, 10**6)} tokens, {rng.randint(0, 9)} documents too short, 0 failed"


def _tune(rng: random.Random) -> str:
    return (
        f"autotune mm({1 << rng.randint(9, 13)}x{1 << rng.randint(9, 13)}) triton_mm_{rng.randint(1, 9999)}"
        f" {rng.uniform(0.05, 2):.4f} ms {rng.uniform(40, 100):.1f}% of best, skipped 0"
    )


_RUN: tuple[tuple[Say, int], ...] = (
    (_shard, 40),
    (_pack, 20),
    (_memory, 10),
    (_prefetch, 12),
    (_gc, 5),
    (_dynamo, 5),
    (_ports, 3),
    (_timers, 5),
)
_PREPARE: tuple[tuple[Say, int], ...] = ((_index, 50), (_tokenize, 25), (_option, 15), (_tune, 10))

# At error level, but harmless: each of these recovers, or never mattered.
Noise = Callable[[random.Random, str], list[str]]


def _tracker(rng: random.Random, clock: str) -> list[str]:
    return [
        f"{clock} ERROR tracker: could not send {rng.randint(2, 90)} metrics, will retry",
        "Traceback (most recent call last):",
        f'  File "/usr/lib/python3.11/site-packages/requests/adapters.py", line {rng.randint(400, 700)}, in send',
        "    raise ConnectionError(err, request=request)",
        "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
        f"wandb: Network error resolved after 0:00:{rng.randint(10, 59)}.{rng.randint(100000, 999999)}, resuming normal operation.",
    ]


def _retry(rng: random.Random, clock: str) -> list[str]:
    key = f"part-{rng.randint(0, 8191):05d}.bin"
    return [
        f"{clock} ERROR object-store: GET {key} answered 503 SlowDown, attempt 1 of 5, next in 0.{rng.randint(2, 9)} s",
        f"{clock} INFO object-store: GET {key} attempt 2 of 5 succeeded",
    ]


def _exporter(rng: random.Random, clock: str) -> list[str]:
    return [
        f"{clock} ERROR node-agent: scrape of http://127.0.0.1:9400/metrics failed: context deadline exceeded ({rng.randint(2, 9)} in a day)"
    ]


def _telemetry(rng: random.Random, clock: str) -> list[str]:
    return [
        (
            f"{clock} WARNING opentelemetry.exporter: Transient error StatusCode.UNAVAILABLE encountered while exporting metrics,"
            f" retrying in {rng.choice((1, 2, 4))}s."
        )
    ]


def _sample(rng: random.Random, clock: str) -> list[str]:
    text = rng.choice(
        (
            "the build failed with a fatal error, so we tried again",
            "raise ValueError('bad operand')  # never reached",
            "Q: my process was killed, is that out of memory? A: look at dmesg",
            "except RuntimeError as error: logger.error('failed: %s', error)",
            "the connection timed out twice before the letter came",
        )
    )
    return [f'{clock} DEBUG preview: document {rng.randint(10**5, 10**7)} text="{text}"']


def _optional(rng: random.Random, clock: str) -> list[str]:
    name = rng.choice(("apex", "flash_attn_3", "transformer_engine", "pynvml_utils"))
    return [
        f"{clock} WARNING extras: could not import {name} (No module named '{name}'), optional, using the built-in path"
    ]


def _late(rng: random.Random, clock: str) -> list[str]:
    return [f"{clock} WARNING heartbeat: agent answered after {rng.uniform(1, 4):.1f} s (limit 30 s), fail count 0"]


_NOISE: tuple[Noise, ...] = (_retry, _exporter, _telemetry, _sample, _optional, _late)
_NOISE_SHARE = 0.002


# Frameworks


@dataclass(frozen=True, slots=True)
class Voice:
    """A framework's formats. `line`: a message; `step`: its iteration line; `logger`: the rank that logs it."""

    name: str
    known_by: str
    line: Callable[[random.Random, float, str], str]
    step: Callable[[random.Random, int, float], list[str]]
    logger: int
    banner: tuple[str, ...]


def _ms(rng: random.Random) -> str:
    return f"{rng.randint(0, 999):03d}"


def _megatron_step(rng: random.Random, step: int, when: float) -> list[str]:
    return [
        (
            f" [{at(when)}] iteration \x01w{step}\x02/  {TOTAL} | consumed samples: {rng.randint(10**7, 10**8):12d} | elapsed time per"
            f" iteration (ms): {rng.uniform(1990, 2010):.1f} | throughput per GPU (TFLOP/s/GPU): {rng.uniform(405, 412):.1f} | learning"
            f" rate: 2.998100E-04 | global batch size:  2048 | lm loss: {rng.uniform(1.94, 1.99):.6E} | loss scale: 1.0 | grad norm:"
            f" {rng.uniform(0.1, 0.3):.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
    ]


def _hf_step(rng: random.Random, step: int, when: float) -> list[str]:  # noqa: ARG001 - no clock in these lines
    return [
        (
            f"{{'loss': {rng.uniform(1.94, 1.99):.4f}, 'grad_norm': {rng.uniform(0.1, 0.3):.6f}, 'learning_rate': 1.99e-05,"
            " 'epoch': 0.03}"
        ),
        f"\x01p{step}\x02|▏         | \x01n{step}\x02/{TOTAL} [\x01e{step}\x02<55:31:07,  {rng.uniform(1.99, 2.01):.2f}s/it]",
    ]


def _deepspeed_step(rng: random.Random, step: int, when: float) -> list[str]:
    clock = f"[{at(when)},{_ms(rng)}] [INFO]"
    return [
        f"{clock} [logging.py:96:log_dist] [Rank 0] step=\x01n{step}\x02, skipped=0, lr=[1.99e-05, 1.99e-05], mom=[[0.9, 0.95]]",
        (
            f"steps: \x01n{step}\x02 loss: {rng.uniform(1.94, 1.99):.4f} iter time (s): {rng.uniform(1.99, 2.01):.3f} samples/sec:"
            f" {rng.uniform(126, 129):.3f}"
        ),
    ]


def _lightning_step(rng: random.Random, step: int, when: float) -> list[str]:  # noqa: ARG001 - likewise
    return [
        (
            f"Epoch 0: \x01p{step}\x02|▏         | \x01n{step}\x02/{TOTAL} [\x01e{step}\x02<55:31:07,  0.50it/s, v_num=3,"
            f" train_loss={rng.uniform(1.94, 1.99):.3f}]"
        )
    ]


def _titan_step(rng: random.Random, step: int, when: float) -> list[str]:
    return [
        (
            f"[titan] {at(when)},{_ms(rng)} - root - INFO - step: \x01n{step}\x02  loss:  {rng.uniform(1.94, 1.99):.4f}  grad_norm:"
            f"  {rng.uniform(0.1, 0.3):.4f}  memory: 71.48GiB(90.40%)  tps: {rng.randint(7380, 7440):,}  tflops:"
            f" {rng.uniform(430, 433):.2f}  mfu: {rng.uniform(43.4, 43.8):.2f}%"
        )
    ]


def _nemo_step(rng: random.Random, step: int, when: float) -> list[str]:  # noqa: ARG001 - likewise
    return [
        (
            f"Training epoch 0, iteration \x01n{step}\x02/{TOTAL - 1} | lr: 0.0002998 | global_batch_size: 512 | global_step: \x01n{step}\x02"
            f" | reduced_train_loss: {rng.uniform(1.94, 1.99):.3f} | train_step_timing in s: {rng.uniform(1.99, 2.01):.3f} |"
            " consumed_samples: 614400"
        )
    ]


def _plain_step(rng: random.Random, step: int, when: float) -> list[str]:
    return [
        (
            f"{at(when)},{_ms(rng)} INFO trainer: step \x01n{step}\x02/{TOTAL} | loss {rng.uniform(1.94, 1.99):.4f} | lr 2.998e-04 |"
            f" grad norm {rng.uniform(0.1, 0.3):.3f} | {rng.uniform(1.99, 2.01):.2f} s/step"
        )
    ]


def _accelerate_step(rng: random.Random, step: int, when: float) -> list[str]:
    return [
        (
            f"{at(when, 'u')} - INFO - __main__ - step \x01n{step}\x02: loss = {rng.uniform(1.94, 1.99):.4f}, lr = 1.99e-05,"
            f" step time = {rng.uniform(1.99, 2.01):.2f} s"
        )
    ]


def _megatron(rng: random.Random, when: float, text: str) -> str:
    return f"INFO:megatron.core.telemetry:{text}" if rng.random() < 0.6 else f"[{at(when)}] {text}"


def _hf(rng: random.Random, when: float, text: str) -> str:
    return f"[INFO|telemetry.py:{rng.randint(20, 400)}] {at(when)},{_ms(rng)} >> {text}"


def _deepspeed(rng: random.Random, when: float, text: str) -> str:
    return f"[{at(when)},{_ms(rng)}] [INFO] [telemetry.py:{rng.randint(20, 400)}:report] {text}"


def _loguru(rng: random.Random, when: float, text: str) -> str:
    return f"{at(when)}.{_ms(rng)} | INFO     | callbacks.telemetry:report:{rng.randint(20, 400)} - {text}"


def _titan(rng: random.Random, when: float, text: str) -> str:
    return f"[titan] {at(when)},{_ms(rng)} - root - INFO - {text}"


def _nemo(rng: random.Random, when: float, text: str) -> str:
    return f"[NeMo I {at(when)} telemetry:{rng.randint(20, 400)}] {text}"


def _plain(rng: random.Random, when: float, text: str) -> str:
    return f"{at(when)},{_ms(rng)} INFO telemetry: {text}"


def _accelerate(rng: random.Random, when: float, text: str) -> str:  # noqa: ARG001 - no milliseconds in this form
    return f"{at(when, 'u')} - INFO - __main__ - {text}"


VOICES: tuple[Voice, ...] = (
    Voice(
        "megatron",
        r"(?i)megatron",
        _megatron,
        _megatron_step,
        -1,
        (
            "using world size: 64, data-parallel size: 8, tensor-model-parallel size: 8, pipeline-model-parallel size: 1",
        ),
    ),
    Voice(
        "deepspeed",
        r"(?i)deepspeed|llava|rwkv",
        _deepspeed,
        _deepspeed_step,
        0,
        ("[INFO] [comm.py:652:init_distributed] cdb=None",),
    ),
    Voice("hf", r"(?i)transformers|openrlhf|llama-factory", _hf, _hf_step, 0, ("PyTorch: setting up devices",)),
    Voice("lightning", r"(?i)lightning", _loguru, _lightning_step, 0, ("GPU available: True (cuda), used: True",)),
    Voice("torchtitan", r"(?i)titan", _titan, _titan_step, 0, ("[titan] Building device mesh",)),
    Voice("nemo", r"(?i)nemo", _nemo, _nemo_step, 0, ("************** Experiment configuration ***********",)),
    Voice(
        "accelerate",
        r"(?i)accelerate",
        _accelerate,
        _accelerate_step,
        0,
        ("Distributed environment: MULTI_GPU  Backend: nccl",),
    ),
    Voice("plain", r"(?!)", _plain, _plain_step, 0, ("starting train.py",)),
)


def voice_for(framework: str, rng: random.Random) -> Voice:
    """Return the framework's formats, or another one's if unknown."""
    return next((voice for voice in VOICES if re.search(voice.known_by, framework)), None) or rng.choice(VOICES)


@cache
def block(voice: Voice, phase: Phase, *, iterations: bool, variant: int, tracker: bool = True) -> Template:
    """Return ten minutes of healthy text, optionally with iteration lines and a short loss of the tracker."""
    rng = random.Random(f"{voice.name}/{phase}/{iterations}/{variant}")
    says, weights = zip(*(_RUN if phase == "run" else _PREPARE), strict=True)
    out: list[str] = []
    size = steps = 0
    told = False
    while size < BLOCK_BYTES:
        when = size * SECONDS / BLOCK_BYTES
        if iterations and tracker and not told and when > TRACKER_AT:
            new, told = _tracker(rng, at(when)), True
        elif iterations and steps * STEP_SECONDS <= when:
            new = voice.step(rng, steps, when)
            steps += 1
        elif rng.random() < _NOISE_SHARE:
            new = rng.choice(_NOISE)(rng, at(when))
        else:
            new = [voice.line(rng, when, rng.choices(says, weights)[0](rng))]
        out += new
        size += sum(len(line) + 7 for line in new)  # a slot grows by some bytes when it is filled
    return Template.of("".join(f"{line}\n" for line in out))


@cache
def head(voice: Voice, *, ranks: int, nccl: bool, tracker: bool = False) -> Template:
    """Return the start of a rank's log: launch, settings, and NCCL's initialization if the run got that far.

    `tracker`: it also reports to a tracker, which does not answer at once.
    """
    rng = random.Random(f"{voice.name}/head")
    lines = [
        "*****************************************",
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded.",
        "*****************************************",
        f"/usr/lib/python3.11/site-packages/{voice.name}/compat.py:31: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated.",
        *(voice.line(rng, 1, text) for text in voice.banner),
        voice.line(rng, 1, f"host {HOST}, rank {RANK}, local rank {LOCAL}, world size {ranks}"),
        *(voice.line(rng, 2, _option(rng)) for _ in range(60)),
        voice.line(rng, 3, "optional package apex not found, using torch's optimizers"),
        *(voice.line(rng, 4, _index(rng)) for _ in range(20)),
        *(_tracker(rng, at(5)) if tracker else ()),
        *(_nccl_start(rng, ranks) if nccl else ()),
    ]
    return Template.of("".join(f"{line}\n" for line in lines))


def _nccl_start(rng: random.Random, ranks: int) -> list[str]:
    who = f"{HOST}:{rng.randint(2000, 9999)}:{rng.randint(10000, 19999)} [{LOCAL}] NCCL INFO"
    comm = f"0x{rng.getrandbits(44):x}"
    return [
        f"{who} Bootstrap: Using bond0:10.8.0.7<0>",
        f"{who} NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.",
        f"{who} cudaDriverVersion 12080",
        f"{who} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB bond0:10.8.0.7<0>",
        f"{who} comm {comm} rank {RANK} nRanks {ranks} nNodes {-(-ranks // NODE)} localRanks {NODE} localRank {LOCAL} MNNVL 0",
        *(f"{who} Channel {channel:02d}/0 : ring prev/next set up via P2P/CUMEM" for channel in range(24)),
        f"{who} Connected all rings, use ring PXN 0 GDR 1",
        f"{who} comm {comm} rank {RANK} nranks {ranks} cudaDev {LOCAL} nvmlDev {LOCAL} busId 1b000 commId 0x5be1{ranks:x} - Init COMPLETE",
    ]


def kernel_noise(rng: random.Random, *, boot_clock: float | None) -> Template:
    """A node's ordinary kernel log before a failure; `boot_clock`: seconds since boot of its end, None where days stand."""
    texts = (
        'audit: type=1400 apparmor="STATUS" operation="profile_load" name="docker-default"',
        "systemd[1]: Started Session {n} of User root.",
        "docker0: port 1(veth{n}) entered forwarding state",
        "nvidia-uvm: Loaded the UVM driver, major device number 234.",
        "mlx5_core 0000:5e:00.0: mlx5e_open_locked: link up, 400 Gb/s",
        "perf: interrupt took too long ({n} > 2500), lowering kernel.perf_event_max_sample_rate",
        "EXT4-fs (nvme0n1p2): re-mounted. Opts: (null)",
        "TCP: request_sock_TCP: Possible SYN flooding on port {n}. Sending cookies.",
    )
    count = 8000
    lines = []
    for number in range(count):
        left = (count - number) * 0.3
        text = rng.choice(texts).replace("{n}", str(rng.randint(3000, 9000)))
        lines.append(
            f"{at(-left, 't')} {host(3)} kernel: {text}"
            if boot_clock is None
            else f"[{max(1.0, boot_clock - left):12.6f}] {text}"
        )
    return Template.of("".join(f"{line}\n" for line in lines))


def job_head(rng: random.Random, ranks: int) -> Template:
    """Return the start of a job's own output."""
    nodes = f"gpu-a[000-{-(-ranks // NODE) - 1:03d}]"
    lines = [
        f"job {rng.randint(700000, 900000)} on {nodes}",
        *(
            f"{name}={value}"
            for name, value in (("NCCL_DEBUG", "INFO"), ("OMP_NUM_THREADS", "1"), ("MASTER_PORT", "29511"))
        ),
        f"{at(0, 't')} launching {ranks} tasks on {nodes}",
    ]
    return Template.of("".join(f"{line}\n" for line in lines))


# The cascade: the other ranks' messages when one rank is gone. Wording by version of torch.

State = Literal["meeting", "joining", "training", "stopped"]
PARTS = (
    "tracker",
    "loader",
    "waits",
    "watchdog",
    "named",
)  # parts of the burial that can be omitted to measure the cost of each
Torch = Literal["1.13", "2.1", "2.3", "2.6"]
TORCHES: tuple[Torch, ...] = ("1.13", "2.1", "2.3", "2.6")
Way = Callable[[random.Random, "Teardown", int], list[str]]
_NCCL = {"1.13": "2.14.3", "2.1": "2.18.5", "2.3": "2.20.5", "2.6": "2.21.5"}


@dataclass(frozen=True, slots=True)
class Teardown:
    """How a job of so many ranks ends after its first failure.

    `state`: how far it had got, or that it was stopped from outside. `watchdog`: some wait until their collectives time
    out; not where the failure is itself one of collectives. `srun`: it ends the step, loader processes too; else
    torchrun.
    """

    ranks: int
    state: State
    torch: Torch
    watchdog: bool
    srun: bool
    without: frozenset[str] = frozenset()

    @property
    def aborts(self) -> bool:
        """Whether torchrun sees its processes abort, as after a watchdog, or exit with an error."""
        return self.watchdog and self.state == "training" and "watchdog" not in self.without

    @property
    def limit(self) -> int:
        """The timeout of a collective, in seconds."""
        return 1800 if self.torch == "1.13" else 600

    @property
    def ended(self) -> int:
        """When the launcher ends the remaining ranks, in seconds after the failure; not before any timeouts."""
        return self.limit + 2 if self.aborts else 4

    def of_rank(self, rng: random.Random, rank: int) -> Template:
        """Return the messages of one of the other ranks; sometimes none, like a killed process."""
        if rng.random() < 0.15:
            return Template.of("")
        lines = rng.choice(self._ways())(rng, self, rank)
        return Template.of("".join(f"{line}\n" for line in lines))

    def _ways(self) -> tuple[Way, ...]:
        if self.state == "stopped":
            return (_terminated,)
        if self.state == "meeting":
            waits = () if "waits" in self.without else (_store_waits,)
            return *waits, _store_lost, _terminated_late
        if self.state == "joining":
            return _peer_closed, _store_lost, _terminated_late
        late = (_timed_out, _timed_out) if self.watchdog and "watchdog" not in self.without else ()
        loader = (_loader_terminated,) if self.srun and "loader" not in self.without else ()
        return _remote_error, _remote_error, _peer_closed, _store_lost, _terminated_late, *late, *loader


def _own(torch: Torch, rank: int) -> str:
    """Torch's prefix on a rank's standard error, since 2.2."""
    return f"[rank{rank}]: " if torch in {"2.3", "2.6"} else ""


def _glog(torch: Torch, rank: int, level: str, when: float, rng: random.Random) -> str:
    """Return the beginning of a line that torch's C++ side logs, up to the file."""
    if torch == "2.6":
        return f"[rank{rank}]:[{level}{at(when, 'g')}.{rng.randint(10**8, 10**9 - 1)} "
    return f"[rank{rank}]:[{level} " if torch == "2.3" else f"[{level} "


def _frames(rng: random.Random, torch: Torch, rank: int, call: str) -> list[str]:
    own = _own(torch, rank)
    return [
        f"{own}Traceback (most recent call last):",
        f'{own}  File "/workspace/train.py", line {rng.randint(200, 400)}, in <module>',
        f"{own}    main()",
        f'{own}  File "/workspace/train.py", line {rng.randint(100, 199)}, in main',
        f"{own}    {call}",
    ]


def _remote_error(rng: random.Random, end: Teardown, rank: int) -> list[str]:
    own = _own(end.torch, rank)
    kind = "torch.distributed.DistBackendError" if end.torch != "1.13" else "RuntimeError"
    return [
        *_peer_closed(rng, end, rank),
        *_frames(rng, end.torch, rank, "torch.distributed.all_reduce(total, group=group)"),
        (
            f"{own}{kind}: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:{rng.randint(1200, 2300)}, remote process"
            f" exited or there was a network error, NCCL version {_NCCL[end.torch]}"
        ),
        f"{own}ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    ]


def _peer_closed(rng: random.Random, end: Teardown, rank: int) -> list[str]:
    when = rng.randint(1, 6)
    peer = f"10.8.{rng.randint(0, 7)}.{rng.randint(2, 250)}<{rng.randint(32768, 60999)}>"
    who = f"{host(rank)}:{rng.randint(2000, 9999)}:{rng.randint(10000, 99999)} [{rank % NODE}]"
    if end.torch == "2.6":
        who = f"[{at(when)}] {who}"
    call = rng.choice(
        (
            "socketProgress: Connection closed by remote peer " + peer,
            f"socketProgressOpt: Call to recv from {peer} failed : Connection reset by peer",
        )
    )
    return [f"{who} misc/socket.cc:{rng.randint(40, 900)} NCCL WARN {call}"]


def _timed_out(rng: random.Random, end: Teardown, rank: int) -> list[str]:
    limit = end.limit
    numel = "" if end.torch == "1.13" else f"NumelIn={1 << 20}, NumelOut={1 << 20}, "
    sequence = 48211
    work = f"WorkNCCL(SeqNum={sequence}, OpType=ALLREDUCE, {numel}Timeout(ms)={limit}000)"
    text = (
        f"[Rank {rank}] Watchdog caught collective operation timeout: {work} ran for {limit}{rng.randint(10, 90):03d} milliseconds"
        " before timing out."
    )
    begin = _glog(end.torch, rank, "E", limit + 1, rng)
    kind = "std::runtime_error" if end.torch == "1.13" else "c10::DistBackendError"
    return [
        f"{begin}ProcessGroupNCCL.cpp:{rng.randint(450, 700)}] {text}",
        (
            f"{begin}ProcessGroupNCCL.cpp:{rng.randint(450, 800)}] Some NCCL operations have failed or timed out. Due to the asynchronous"
            " nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data."
        ),
        f"{begin}ProcessGroupNCCL.cpp:{rng.randint(450, 800)}] To avoid data inconsistency, we are taking the entire process down.",
        f"terminate called after throwing an instance of '{kind}'",
        f"  what():  {text}",
    ]


def _store_lost(rng: random.Random, end: Teardown, rank: int) -> list[str]:
    begin = _glog(end.torch, rank, "W", end.ended + rng.randint(1, 20), rng)
    if end.torch in {"1.13", "2.1"}:
        return [*_frames(rng, end.torch, rank, "torch.distributed.barrier()"), "RuntimeError: Broken pipe"]
    return [
        (
            f"{begin}TCPStore.cpp:{rng.randint(100, 140)}] [c10d] sendBytes failed on SocketImpl(fd={rng.randint(40, 90)},"
            f" addr=[{host(rank)}]:{rng.randint(32768, 60999)}, remote=[{host(0)}]:29511): Broken pipe"
        )
    ]


def _store_waits(rng: random.Random, end: Teardown, rank: int) -> list[str]:
    own = _own(end.torch, rank)
    joined = f"{rng.randint(48, end.ranks - 1) if end.ranks > 49 else end.ranks - 1}/{end.ranks}"
    kind = "torch.distributed.DistStoreError" if end.torch in {"2.3", "2.6"} else "RuntimeError"
    return [
        *_frames(rng, end.torch, rank, 'torch.distributed.init_process_group("nccl")'),
        f"{own}{kind}: Timed out after 601 seconds waiting for clients. {joined} clients joined.",
    ]


def _signalled(rng: random.Random, when: int) -> list[str]:
    return [f"{at(when)} INFO signals: received signal 15 (SIGTERM) from pid {rng.randint(900, 9000)}, leaving"]


def _terminated(rng: random.Random, end: Teardown, rank: int) -> list[str]:  # noqa: ARG001 - one shape for all ways
    return _signalled(rng, 1)


def _terminated_late(rng: random.Random, end: Teardown, rank: int) -> list[str]:  # noqa: ARG001 - likewise
    return _signalled(rng, end.ended + rng.randint(1, 30))


def _loader_terminated(rng: random.Random, end: Teardown, rank: int) -> list[str]:
    return [
        *_frames(rng, end.torch, rank, "loss.backward()"),
        f"{_own(end.torch, rank)}RuntimeError: DataLoader worker (pid {rng.randint(20000, 60000)}) is killed by signal: Terminated.",
    ]


def job_end(rng: random.Random, end: Teardown, culprit: int, named: Sequence[int]) -> Template:
    """Return the job's output about it: torchrun's block, or srun's lines, with the culprit among others.

    The block names `named` as failed, the first of them as root cause.
    """
    if end.state == "stopped":
        return Template.of(
            "".join(
                f"srun: error: {host(r)}: tasks {r}-{r + NODE - 1}: Terminated\n" for r in range(0, end.ranks, NODE)
            )
        )
    lines = _srun(rng, end, culprit) if end.srun else _torchrun(rng, end, named)
    return Template.of("".join(f"{line}\n" for line in lines))


def _elastic(rng: random.Random, end: Teardown, level: Literal["WARNING", "ERROR"], text: str) -> str:
    if end.torch == "1.13":
        return f"{level}:torch.distributed.elastic.multiprocessing.api:{text}"
    if end.torch == "2.1":
        return f"[{at(end.ended)},{_ms(rng)}] torch.distributed.elastic.multiprocessing.api: [{level}] {text}"
    return f"{level[0]}{at(end.ended, 'g')}.{_ms(rng)}000 {rng.randint(9000, 99999)} torch/distributed/elastic/multiprocessing/api.py:{rng.randint(800, 900)}] {text}"


def _torchrun(rng: random.Random, end: Teardown, named: Sequence[int]) -> list[str]:
    root, *others = named
    pids = {rank: rng.randint(20000, 60000) for rank in named}
    return [
        *(
            _elastic(rng, end, "WARNING", f"Sending process {pids[root] + 1 + n} closing signal SIGTERM")
            for n in range(5)
        ),
        _elastic(
            rng,
            end,
            "ERROR",
            f"failed (exitcode: {-6 if end.aborts else 1}) local_rank: {root % NODE} (pid: {pids[root]}) of binary: /usr/bin/python3",
        ),
        "Traceback (most recent call last):",
        '  File "/usr/local/bin/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "============================================================",
        "train.py FAILED",
        "------------------------------------------------------------",
        "Failures:",
        *(line for n, rank in enumerate(others) for line in _failed(end, n + 1, rank, pids[rank])),
        *(() if others else ("  <NO_OTHER_FAILURES>",)),
        "------------------------------------------------------------",
        "Root Cause (first observed failure):",
        *_failed(end, 0, root, pids[root]),
        "============================================================",
    ]


def _failed(end: Teardown, number: int, rank: int, pid: int) -> list[str]:
    signal = f"Signal 6 (SIGABRT) received by PID {pid}"
    return [
        f"[{number}]:",
        f"  time      : {at(end.ended - 1, 'k')}",
        f"  host      : {host(rank)}",
        f"  rank      : {rank} (local_rank: {rank % NODE})",
        f"  exitcode  : {-6 if end.aborts else 1} (pid: {pid})",
        "  error_file: <N/A>",
        f"  traceback : {signal if end.aborts else 'To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html'}",
    ]


def _srun(rng: random.Random, end: Teardown, culprit: int) -> list[str]:
    step = f"{rng.randint(700000, 900000)}.0"
    exits = [
        f"srun: error: {host(rank)}: task {rank}: Exited with exit code 1"
        for rank in {culprit, *(rng.randrange(end.ranks) for _ in range(3))}
    ]
    rng.shuffle(exits)
    return [
        *exits,
        f"srun: Terminating StepId={step}",
        f"slurmstepd: error: *** STEP {step} ON {host(0)} CANCELLED AT {at(end.ended, 't')} ***",
        *(f"srun: error: {host(r)}: tasks {r}-{r + NODE - 1}: Killed" for r in range(0, end.ranks, NODE)),
    ]
