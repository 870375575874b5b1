"""Prefixes of launchers, collectors and loggers."""

import re
from typing import Any

import pytest

from kb.parsers.logs import prefixes
from kb.parsers.logs.prefixes import MAX_BYTES, Prefix, peel

CASES = [
    (b"[rank17]: Traceback", b"Traceback", {"rank": 17}),
    (b"[rank: 2] Seed set to 7", b"Seed set to 7", {"rank": 2}),
    (b"[default6]:oops", b"oops", {"local_rank": 6}),
    (b"[actor=trainer{'hosts': 1/2, 'gpus': 3/8}] oops", b"oops", {"rank": 11}),
    (b"[actor=<root>.<fit.Pool pool{'gpus': 0/1}>.<fit.Trainer trainer{'gpus': 3/8}>] oops", b"oops", {"rank": 3}),
    (b"[actor=<root>] oops", b"oops", {}),
    (b"[actor=pool7] oops", b"oops", {}),
    (b"[trainer1]: oops", b"oops", {"local_rank": 1}),
    (b"23: oops", b"oops", {"rank": 23}),
    (b"rank 07> oops", b"oops", {"rank": 7}),
    (b"rank 7     | oops", b"oops", {"rank": 7}),
    (b"17:40:08 rank 7     | oops", b"oops", {"rank": 7}),
    (b"17:40:08 web.7     | oops", b"17:40:08 web.7     | oops", {}),
    (b"Feb  9 17:40:08 cn-b7 trainer@rank12[771]: oops", b"oops", {"rank": 12, "node": "cn-b7", "time": 1802194808.0}),
    (
        b'<131>1 2027-02-09T17:40:08.000Z cn-b7 fit 771 batch [run@9 user="a" rank="12"] oops',
        b"oops",
        {"rank": 12, "node": "cn-b7", "pid": 771, "time": 1802194808.0},
    ),
    (b"<131>1 2027-02-09T17:40:08Z cn-b7 fit - - - oops", b"oops", {"node": "cn-b7", "time": 1802194808.0}),
    (
        b"[3] <131>1 2027-02-09T17:40:08Z cn-b7 fit - - - oops",
        b"oops",
        {"rank": 3, "node": "cn-b7", "time": 1802194808.0},
    ),
    (b"  7: oops", b"oops", {"rank": 7}),
    (b"  0: slurmstepd-cn7: error: Exceeded limit", b"error: Exceeded limit", {"node": "cn7"}),
    (b"23: [default6]:[rank23]: oops", b"oops", {"rank": 23, "local_rank": 6}),
    (b"5: [rank61]: oops", b"oops", {"rank": 61}),
    (b"[rank61]:5: oops", b"oops", {"rank": 61}),
    (b"[2,14]<stderr>:oops", b"oops", {"rank": 14}),
    (b"[host1:3]AttributeError: no", b"AttributeError: no", {"node": "host1", "local_rank": 3}),
    (b"[train.py:9] oops", b"[train.py:9] oops", {}),
    (b"[INFO:7] oops", b"[INFO:7] oops", {}),
    (b"(RayTrainWorker pid=812, ip=10.1.0.7) oops", b"oops", {"pid": 812, "node": "10.1.0.7"}),
    (b"[2027-02-09T17:40:08.500Z] 0c0ffee1 || oops", b"oops", {"time": 1802194808.5}),
    (b"[2027-02-09 17:40:08] [0c0ffee1] [rank=3] || oops", b"oops", {"rank": 3, "time": 1802194808.0}),
    (b"2027-02-09 17:40:08.500 0c0ffee1 [rank=3] || oops", b"oops", {"rank": 3, "time": 1802194808.5}),
    (b"<error> [2027-02-09 17:40:08] [0c0ffee1] || oops", b"oops", {"time": 1802194808.0}),
    (b"2027-02-09 17:40:08.500 0c0ffee1 oops", b"0c0ffee1 oops", {"time": 1802194808.5}),
    (b"(TaskRunner pid=812) oops", b"oops", {"pid": 812}),
    (b"(pid=812) oops", b"oops", {"pid": 812}),
    (b"\x1b[36m(pid=812, ip=10.1.0.7)\x1b[0m oops", b"oops", {"pid": 812, "node": "10.1.0.7"}),
    (b"[36m(WorkerDict pid=812)[0m oops", b"oops", {"pid": 812}),
    (b"(raylet) oops", b"oops", {}),
    (b"pretrain-worker-3: oops", b"oops", {"node": "pretrain-worker-3"}),
    (b"worker-3b: oops", b"oops", {"node": "worker-3b"}),
    (b"pretrain-master-0  | oops", b"oops", {"node": "pretrain-master-0"}),
    (b"10.1.0.7: oops", b"oops", {"node": "10.1.0.7"}),
    (b"[node-b rank3] [rank3]: oops", b"oops", {"node": "node-b", "rank": 3}),
    (b"[gpu-017/rank12]: oops", b"oops", {"node": "gpu-017", "rank": 12}),
    (b"[INFO rank3] oops", b"[INFO rank3] oops", {}),
    (b"[pod/pretrain-worker-3/main] oops", b"oops", {"node": "pretrain-worker-3"}),
    (b"811.2s\t44\toops", b"oops", {}),
    (b"\x1b[31m\x1b[1moops", b"oops", {}),
    (b"\roops", b"oops", {}),
    (b"[904511.120034] NVRM: oops", b"NVRM: oops", {}),
    (b"[Tue Feb  9 17:40:08 2027] NVRM: oops", b"NVRM: oops", {"time": 1802194808.0}),
    (
        b"Feb  9 17:40:08 gpu-b7 kernel: [904511.120034] NVRM: oops",
        b"NVRM: oops",
        {"node": "gpu-b7", "time": 1802194808.0},
    ),
    (b"(raylet, ip=10.1.0.7) oops", b"oops", {"node": "10.1.0.7"}),
    # a driver or device in a kernel's line is no host
    (b"[Tue Feb  9 17:40:08 2027] EDAC MC1: 1 UE oops", b"EDAC MC1: 1 UE oops", {"time": 1802194808.0}),
    (b"[Tue Feb  9 17:40:08 2027] pcieport 0000:5a:01.0: oops", b"pcieport 0000:5a:01.0: oops", {"time": 1802194808.0}),
    (b"[904511.120034] nvidia-nvswitch2: oops", b"nvidia-nvswitch2: oops", {}),
    (b"[904511.120034] i2c-7: oops", b"i2c-7: oops", {}),
    (b"gpu-b7: [904511.120034] usb-2: oops", b"usb-2: oops", {"node": "gpu-b7"}),
    (b"2027-02-09T17:40:08,000+00:00 nvidia-nvswitch2: oops", b"nvidia-nvswitch2: oops", {"time": 1802194808.0}),
    (b"2027-02-09T17:40:08+0000 gpu-b7 kernel: usb-2: oops", b"usb-2: oops", {"node": "gpu-b7", "time": 1802194808.0}),
    (
        b"Feb  9 17:40:08 gpu-b7 kernel: [904511.120034] nvidia-nvswitch2: oops",
        b"nvidia-nvswitch2: oops",
        {"node": "gpu-b7", "time": 1802194808.0},
    ),
    (b"2027-02-09T17:40:08+0000 gpu-b7 kernel: oops", b"oops", {"node": "gpu-b7", "time": 1802194808.0}),
    (
        b"2027-02-09T17:40:08+0000 gpu-b7 slurmd[91]: oops",
        b"oops",
        {"node": "gpu-b7", "pid": 91, "time": 1802194808.0},
    ),
    (b"2027-02-09T17:40:08.0Z stderr F [rank3]: oops", b"oops", {"rank": 3, "time": 1802194808.0}),
    (b"[2027-02-09 17:40:08,000] [INFO] oops", b"[INFO] oops", {"time": 1802194808.0}),
    (b"[2027-02-09 17:40:08][app][INFO] - oops", b"[app][INFO] - oops", {"time": 1802194808.0}),
    (b"2027-02-09 17:40:08 - app - oops", b"app - oops", {"time": 1802194808.0}),
    (b"[INFO|trainer.py:1203] 2027-02-09 17:40:08,000 >> oops", b"oops", {"time": 1802194808.0}),
    (b"[NeMo W 2027-02-09 17:40:08 nemo_logging:405] oops", b"oops", {"time": 1802194808.0}),
    (b"[rank3]:[W209 17:40:08.0 ProcessGroupNCCL.cpp:100] oops", b"oops", {"rank": 3, "time": 1802194808.0}),
    (b"W0209 17:40:08.0 4411 torch/distributed/run.py:793] oops", b"oops", {"time": 1802194808.0}),
    # a rank in brackets, in the spellings of trainers
    *(
        (line, b"oops", {"rank": 3})
        for line in (
            b"[rank 3] oops",
            b"[rank=3] oops",
            b"[rank_3] oops",
            b"[rank:3] oops",
            b"[rank 3/16] oops",
            b"[RANK 3] oops",
            b"[RANK3]: oops",
            b"[Rank 3] oops",
            b"[global_rank=3] oops",
            b"(rank 3) oops",
            b"<rank 3> oops",
            b"[DP0 PP1 TP3 rank 3] oops",
            b"[node=1 rank=3] oops",
        )
    ),
    (b"[node3 | rank 12] oops", b"oops", {"node": "node3", "rank": 12}),
    (b"[host=gpu-7 rank=12] oops", b"oops", {"node": "gpu-7", "rank": 12}),
    (b"[gpu-7] [rank12] oops", b"oops", {"node": "gpu-7", "rank": 12}),
    (b"Rank 3: oops", b"oops", {"rank": 3}),
    (b"rank3 - oops", b"oops", {"rank": 3}),
    (b"[local_rank=3] oops", b"oops", {"local_rank": 3}),
    (b"[process 3] oops", b"oops", {"rank": 3}),
    (b"[process_index=3] oops", b"oops", {"rank": 3}),
    (b"[2027-02-09 17:40:08][rank 3] oops", b"oops", {"rank": 3, "time": 1802194808.0}),
    (b"[17:40:08][rank 3] oops", b"oops", {"rank": 3}),
    (b"[NeMo E 2027-02-09 17:40:08 nemo_logging:405 rank:3] oops", b"oops", {"rank": 3, "time": 1802194808.0}),
    (b"rank:  3 | 2027-02-09 17:40:08,000 oops", b"oops", {"rank": 3, "time": 1802194808.0}),
    # parallel launchers: lanes, tags of mpirun and horovodrun, stern, torchx, MPICH
    (b"3|[rank11]: oops", b"oops", {"rank": 11}),
    (b"[prterun-gpu-7-881@1,14]<stderr>: oops", b"oops", {"rank": 14}),
    (b"[1,14][gpu-7:8812]<stderr>: oops", b"oops", {"rank": 14, "node": "gpu-7", "pid": 8812}),
    (b"[14]<stderr>:oops", b"oops", {"rank": 14}),
    (b"llm-worker-3 pytorch [rank25]: oops", b"oops", {"node": "llm-worker-3", "rank": 25}),
    (b"trainer/0 [rank2]: oops", b"oops", {"rank": 2}),
    (b": [rank2]: oops", b"oops", {"rank": 2}),
    (
        b"[7] Traceback (most recent call last):",
        b"Traceback (most recent call last):",
        {"rank": 7},
    ),
    (b"[host1:3]: oops", b"oops", {"node": "host1", "local_rank": 3}),
    (b"(RayTrainWorker(rank=3) pid=812, ip=10.1.0.7) oops", b"oops", {"rank": 3, "pid": 812, "node": "10.1.0.7"}),
    (b"(VllmWorker rank=3 pid=812) oops", b"oops", {"rank": 3, "pid": 812}),
    (b"(Worker pid=812, ip=10.1.0.7, actor_id=4fa) oops", b"oops", {"pid": 812, "node": "10.1.0.7"}),
    # SageMaker, HPE's mpiexec, Composer, torchx with a role that has no name, and loggers that name the process
    (b"[1,mpirank:3,algo-2]<stderr>:oops", b"oops", {"rank": 3, "node": "algo-2"}),
    (b"x4501c3s2b0n1.hsn.site.gov 3: oops", b"oops", {"rank": 3, "node": "x4501c3s2b0n1.hsn.site.gov"}),
    (b"rank3[812][MainThread]: oops", b"oops", {"rank": 3, "pid": 812}),
    (b"trainer/0 [3]:oops", b"oops", {"local_rank": 3}),
    (b"[3]:  File", b"  File", {"local_rank": 3}),
    (b"node-b7-rank3: oops", b"oops", {"node": "node-b7", "rank": 3}),
    (b"[rank=3, local_rank=1] oops", b"oops", {"rank": 3}),
    (b"rank=3, local_rank=1: oops", b"oops", {"rank": 3}),
    (b"RANK=3 Traceback", b"Traceback", {"rank": 3}),
    (b"process_index=3, oops", b"oops", {"rank": 3}),
    (b"(worker_3) : oops", b"oops", {"rank": 3}),
    (b"[R3] oops", b"oops", {"rank": 3}),
    (b"mill_worker.3.2c467d2@node-b    | oops", b"oops", {}),  # a Docker service counts its tasks from 1
    (b"[GPU 3] oops", b"oops", {"local_rank": 3}),
    (b"[cuda:3] oops", b"oops", {"local_rank": 3}),
    (b"[xla:3]{1} oops", b"oops", {"local_rank": 3}),
    # abseil before its logger starts
    (b"E0000 00:00:1802194808.000000   4411 agent.cc:707] oops", b"oops", {"time": 1802194808.0}),
    # a progress bar without a line break after it
    (b"Epoch 1:  30%|###  | 3/10 [00:01<00:02, 1.2it/s, loss=2][rank6]: oops", b"oops", {"rank": 6}),
    (b" 30%|###  | 3/10 [00:01<00:02, 1.2it/s]sluice: shut", b"sluice: shut", {}),  # of another program
    (b" 30%|###  | 3/10 [00:01<00:02, 1.2s/it, loss=2]\x1b[A[mill] dry", b"[mill] dry", {}),
    (
        b"[2027-02-09 17:40:08 swin] (main.py 9): oops",
        b"[2027-02-09 17:40:08 swin] (main.py 9): oops",
        {"time": 1802194808.0},
    ),
]


@pytest.mark.parametrize(("line", "message", "said"), CASES)
def test_a_prefix_is_peeled_and_read(line: bytes, message: bytes, said: dict[str, Any]) -> None:
    """Each known prefix is taken off and says what it says, and no more."""
    prefix = peel(line, 2027)
    assert message == line[prefix.end :]
    assert Prefix(end=prefix.end, **said) == prefix


@pytest.mark.parametrize(
    "line",
    [
        b"Traceback (most recent call last):",
        b'  File "/srv/app/train.py", line 12, in main',
        b"    loss.backward()",
        b"RuntimeError: worker-3: lost",
        b"Epoch 1: 40%",
        b"accuracy: 0.5",
        b"12:34:56 late",
        b"[Rank 5] Watchdog caught",
        b"[3/7] building",
        b"[1, 2, 3]",
        b"{'loss': 1.2}",
        b"resnet: x",
        b"step-100: loss 2.1",
        b"gpt-2: loading",
        b"[epoch:3] loss 2.1",
        b"[Rank:3] late",
        b"[ERROR rank3] oops",
        b"[3] oops",
        b"[3] <14> oops",
        b"3| oops",
        b"rank 3 of 8 is ready",
        b"[Rank 0]: Rank 1 failed to pass monitoredBarrier in 1800000 ms",
        b"RANK=3 WORLD_SIZE=8 python train.py",
        b"llm worker is up",
        b"Epoch 1:  30%|###  | 3/10 [00:01<00:02, 1.2it/s]",
        b"",
        b"\xff\xfe\x00",
    ],
)
def test_a_line_without_a_prefix_is_left_alone(line: bytes) -> None:
    """Messages that only look a little like prefixes stay whole."""
    assert Prefix() == peel(line)


def test_a_stamp_without_a_year_is_peeled_but_gives_no_time() -> None:
    """Without the caller's year a glog header goes, its time stays unknown."""
    line = b"[E0209 17:40:08.0 a.cpp:1] oops"
    prefix = peel(line)
    assert line[prefix.end :] == b"oops"
    assert prefix.time is None


def test_at_most_eight_prefixes_are_peeled() -> None:
    """A line of nothing but prefixes costs a bounded amount of work."""
    line = b"[rank1]:" * 500
    assert peel(line).end == 64


def test_nothing_is_peeled_behind_the_byte_limit() -> None:
    """A prefix that does not end within the limit is not a prefix."""
    line = b"[E0209 17:40:08.0 " + b"x" * MAX_BYTES + b"] oops"
    assert peel(line).end == 0


def test_slurms_daemons_name_their_node():
    """`slurmstepd-node-a` is the daemon on node-a, not a host of that name."""
    assert peel(b"slurmstepd-node-a: error: Detected 1 oom_kill event").node == "node-a"
    assert peel(b"slurmd-cn12.site: error: x").node == "cn12.site"
    assert peel(b"slurmstepd: error: *** STEP 12.0 ON node-a CANCELLED ***").node is None


def test_a_rank_of_a_process_group_stays_with_the_message():
    """Behind the header of c10d, a rank in brackets counts within a process group."""
    line = b"[E0209 17:40:08.0 ProcessGroupNCCL.cpp:474] [Rank 3] oops"
    assert (peel(line).rank, line[peel(line).end :]) == (None, b"[Rank 3] oops")


STARTS = [
    "2026-11-03 04:10:00,019",
    "2026-11-03T23:59:60.5",
    "[2026-11-03 04:10:00.123456",
    "2026-13-03 04:10:00,1",
    "2026-02-30 04:10:00,1",
]
TAILS = [
    "", " ", " oops", "] oops", "]: oops", " - oops", " | oops", ": oops", " [INFO] oops", " AM oops", " PM", " UTC oops", " +01:00 oops", "Z oops",
    " +0530", " GPU 3", " gpu-a3 kernel: NVRM: gpu-a3: Xid", " node7 trainer[41]: oops", " stderr F [rank3]: oops", " [rank 3] [rank5]: oops", "x",
    "] [rank 3] oops", " oops] more", "\r", "1234567890 oops", "_oops", " - gpu-a3 kernel: oops", " host-3: oops", "/2", " < oops", " =1", " >> oops",
]  # fmt: skip


@pytest.mark.parametrize("start", STARTS)
def test_the_commonest_start_is_read_as_any_other(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own short expression gives what the one for all prefixes does."""
    lines = [f"{start}{tail}".encode() for tail in TAILS]
    prefixes._peeled.cache_clear()
    short = [peel(line) for line in lines]
    monkeypatch.setattr(prefixes, "_ISO_START", re.compile(rb"(?!)"))
    prefixes._peeled.cache_clear()
    assert short == [peel(line) for line in lines]
    prefixes._peeled.cache_clear()
