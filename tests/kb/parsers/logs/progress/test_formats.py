"""Iteration lines of the training programs that we know, and lines that only look like them."""

import math
import re
from typing import Any

import pytest

from kb.parsers.logs.progress.formats import FORMATS, read_line
from kb.rulebase import patterns

GIB = 2.0**30
MIB = 2.0**20

LINES = [
    (
        b"[I 04:11:08 r02] update 45 of 800: loss 0.6125, gnorm 0.5",
        {"step": 45, "total": 800, "loss": 0.6125, "grad_norm": 0.5, "format": "fraction_loss"},
    ),
    (b"12:34:54 [2/3] it 39/400: train_loss=2.5", {"step": 39, "total": 400, "loss": 2.5, "format": "fraction_loss"}),
    (b"[1/8] worker up, batch 7/90, loss: 0.5", {"step": 7, "total": 90, "loss": 0.5, "format": "fraction_loss"}),
    (b"step 40 of 60: loss 0.25", {"step": 40, "total": 60, "loss": 0.25, "format": "step_loss"}),
    (
        b"Epoch 2 | iter 20 step 5 | loss train: 2.5, val: n/a | iter time: 39.34 ms (step)",
        {"step": 5, "epoch": 2.0, "loss": 2.5, "format": "step_loss"},
    ),
    (b"(Actor pid=71) [actor 3] it=40 loss=2.125", {"step": 40, "loss": 2.125, "format": "fraction_loss"}),
    (
        b"[Epoch 31 Batch 480/2210] avg loss 0.5125, throughput 3.5K wps",
        {"step": 480, "total": 2210, "epoch": 31.0, "loss": 0.5125, "format": "batch_brackets"},
    ),
    (
        b"INFO:root:[Epoch 3][Batch 799], Speed: 18.5 samples/sec, RPN_Conf=0.125,RPN_SmoothL1=0.25",
        {"step": 799, "epoch": 3.0, "throughput": 18.5, "format": "batch_brackets"},
    ),
    (
        b"Epoch[7] Batch [40-60]\tSpeed: 2950.25 samples/sec\taccuracy=0.512",
        {"step": 60, "epoch": 7.0, "throughput": 2950.25, "format": "batch_brackets"},
    ),
    (
        b"step:907/4100 train_time:88125ms step_avg:97.16ms",
        {"step": 907, "total": 4100, "format": "step_train_time"},
    ),
    (
        b"step:300/4100 avg_train_loss:nan time:239s step_avg:74ms",
        {"step": 300, "total": 4100, "loss": math.nan, "format": "step_train_time"},
    ),
    (
        b"step:1000/4100 val_loss:3.5 train_time:97160ms step_avg:97.16ms",
        {"step": 1000, "total": 4100, "loss": 3.5, "validation": True, "format": "step_train_time"},
    ),
    (
        b"DLL 2027-03-09 08:16:53.230317 - (2, 310) total_ips : 3301.5",
        {"step": 310, "epoch": 2.0, "format": "dllogger"},
    ),
    (
        (
            b' 0: :::MLLOG {"namespace": "", "time_ms": 1760101300000, "event_type": "POINT_IN_TIME", "key": "tracked_stats", '
            b'"value": {"validation_step_time": 0.085}, "metadata": {"file": "/w/callbacks.py", "lineno": 40, "step": 512}}'
        ),
        {"step": 512, "format": "mlperf"},
    ),
    (
        (
            b':::MLLOG {"namespace": "", "time_ms": 1, "event_type": "INTERVAL_END", "key": "epoch_stop", "value": null, '
            b'"metadata": {"file": "/w/fit.py", "lineno": 9, "epoch_num": 6}}'
        ),
        {"epoch": 6.0, "format": "mlperf"},
    ),
    (
        (
            b" [2027-02-09 17:40:08.100000] iteration     7130/  240000 | consumed samples:     14602240 | elapsed time per "
            b"iteration (ms): 5120.5 | throughput per GPU (TFLOP/s/GPU): 398.2 | learning rate: 1.500000E-04 | global batch "
            b"size:  2048 | lm loss: 2.250000E+00 | loss scale: 4096.0 | grad norm: 0.512 | number of skipped iterations:   3 "
            b"| number of nan iterations:   0 |"
        ),
        {
            "step": 7130,
            "total": 240000,
            "loss": 2.25,
            "grad_norm": 0.512,
            "learning_rate": 1.5e-4,
            "seconds": 5.1205,
            "throughput": 398.2,
            "loss_scale": 4096.0,
            "skipped": 3,
            "format": "megatron",
        },
    ),
    (
        (
            b" iteration       31/      80 | elapsed time per iteration (s): 4.5 | learning rate: 1.0E-05 | lm-loss: 9.5E+00 "
            b"| samples per second: 12.25 | TFLOPs: 44.10 |"
        ),
        {
            "step": 31,
            "total": 80,
            "loss": 9.5,
            "learning_rate": 1e-5,
            "seconds": 4.5,
            "throughput": 44.1,
            "format": "megatron",
        },
    ),
    (
        b"[default2]: iteration       31/      80 | consumed samples:  9920 | elapsed time per iteration (s): 4.5 | lear",
        {"step": 31, "total": 80, "seconds": 4.5, "format": "megatron"},
    ),
    (
        b" validation loss at iteration 900 on test set | lm loss value: 2.5E+00 | lm loss PPL: 1.2E+01 |",
        {"step": 900, "loss": 2.5, "validation": True, "format": "validation"},
    ),
    (
        b"[Rank 9] (after 3 iterations) memory (MB) | allocated: 100.5 | max allocated: 512.0 | reserved: 600.0 | max",
        {"step": 3, "memory": 512 * MIB, "format": "megatron_memory"},
    ),
    (
        (
            b"[2027-02-09 17:40:08,114] [INFO] [logging.py:129:log_dist] [Rank 0] step=810, skipped=4, lr=[6e-05, 6e-05], "
            b"mom=[(0.9, 0.95)]"
        ),
        {"step": 810, "skipped": 4, "learning_rate": 6e-5, "format": "deepspeed_step"},
    ),
    (
        (
            b"[INFO] [timer.py:260:stop] epoch=0/micro_step=3240/global_step=810, RunningAvgSamplesPerSec=101.5, "
            b"CurrSamplesPerSec=99.5, MemAllocated=10.0GB, MaxMemAllocated=40.0GB"
        ),
        {"step": 810, "throughput": 99.5, "memory": 40 * GIB, "format": "deepspeed_timer"},
    ),
    (
        b"[INFO] [timer.py:197:stop] 0/810, RunningAvgSamplesPerSec=101.5, CurrSamplesPerSec=99.5",
        {"step": 810, "throughput": 99.5, "format": "deepspeed_timer"},
    ),
    (
        b"steps: 810 loss: 3.5000 iter time (s): 2.250 samples/sec: 113.778",
        {"step": 810, "loss": 3.5, "seconds": 2.25, "throughput": 113.778, "format": "deepspeed_pipe"},
    ),
    (
        (
            b"Training epoch 1, iteration 310/4999 | lr: 3e-05 | global_batch_size: 256 | global_step: 310 | "
            b"reduced_train_loss: 1.75 | train_step_timing in s: 6.5 | consumed_samples: 79360"
        ),
        {
            "step": 310,
            "total": 4999,
            "epoch": 1.0,
            "loss": 1.75,
            "learning_rate": 3e-5,
            "seconds": 6.5,
            "throughput": 256 / 6.5,
            "format": "nemo",
        },
    ),
    (
        (
            b"Epoch 0: :   3%|#2        | 310/9000 [12:09<5:40:55, 2.35s/it, v_num=1, reduced_train_loss=1.750, "
            b"global_step=309.0, consumed_samples=1240.0, train_step_timing in s=2.25]"
        ),
        {"step": 309, "total": 9000, "epoch": 0.0, "loss": 1.75, "seconds": 2.25, "format": "tqdm"},
    ),
    (
        b"2025-02-22 12:18:51 - fit - INFO - Epoch 59: {'loss': 5.25}",
        {"loss": 5.25, "epoch": 59.0, "format": "hf_dict"},
    ),
    (
        b"{'loss': '1.2500', 'grad_norm': '0.5000', 'learning_rate': '3.0e-05', 'epoch': '0.25'}",
        {"loss": 1.25, "grad_norm": 0.5, "learning_rate": 3e-5, "epoch": 0.25, "format": "hf_dict"},
    ),
    (
        b"{'loss': 1.25, 'learning_rate': 3e-05, 'epoch': 0.25}",
        {"loss": 1.25, "learning_rate": 3e-5, "epoch": 0.25, "format": "hf_dict"},
    ),
    (
        (
            b"{'loss': 0.5, 'grad_norm': 1.5, 'learning_rate': 5e-07, 'rewards/chosen': 0.1, 'rewards/margins': 0.2, "
            b"'epoch': 0.5}"
        ),
        {"loss": 0.5, "grad_norm": 1.5, "learning_rate": 5e-7, "epoch": 0.5, "format": "hf_dict"},
    ),
    (
        b"{'eval_loss': 1.5, 'eval_runtime': 3.2, 'epoch': 1.0}",
        {"loss": 1.5, "epoch": 1.0, "validation": True, "format": "hf_dict"},
    ),
    (
        (
            b"{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 3e-05, 'epoch': 0.25, 'global_step/max_steps': '51/900', "
            b"'elapsed_time': '5m 2s', 'memory(GiB)': 40.0, 'train_speed(s/it)': 5.5}"
        ),
        {
            "step": 51,
            "total": 900,
            "loss": 1.25,
            "grad_norm": 0.5,
            "learning_rate": 3e-5,
            "epoch": 0.25,
            "memory": 40 * GIB,
            "seconds": 5.5,
            "format": "hf_dict",
        },
    ),
    (
        b"[INFO|2027-02-09 17:40:08] app.logging:143 >> {'loss': 1.25, 'learning_rate': 3.0000e-05, 'epoch': 2.25}",
        {"loss": 1.25, "learning_rate": 3e-5, "epoch": 2.25, "format": "hf_dict"},
    ),
    (
        b"val: {'epoch': 4, 'loss': 0.75, 'lr': 0.001}",
        {"loss": 0.75, "learning_rate": 1e-3, "epoch": 4.0, "validation": True, "format": "hf_dict"},
    ),
    (
        "Epoch 2:  51%|█████     | 51/100 [00:20<00:19,  2.50it/s, v_num=4, train_loss=0.250]".encode(),
        {"step": 51, "total": 100, "loss": 0.25, "seconds": 0.4, "epoch": 2.0, "format": "tqdm"},
    ),
    (
        "Epoch 2:  51%|█████     | 51/100 [00:20<00:19,  2.50it/s, v_num=4, val_loss=0.5, train_loss=nan.0]".encode(),
        {"step": 51, "total": 100, "loss": math.nan, "seconds": 0.4, "epoch": 2.0, "format": "tqdm"},
    ),
    (
        "  5%|▌         | 45/900 [04:12<1:20:00,  5.50s/it]".encode(),
        {"step": 45, "total": 900, "seconds": 5.5, "format": "tqdm"},
    ),
    (
        b"Epoch 2/8: 45it [04:12,  5.50s/it, loss=0.25]",
        {"step": 45, "epoch": 2.0, "loss": 0.25, "seconds": 5.5, "format": "tqdm"},
    ),
    (
        (
            "\x1b[2KEpoch 1/2  \x1b[35m━━━━━━\x1b[0m\x1b[90m╺\x1b[0m\x1b[90m━━━━\x1b[0m 11/25 \x1b[2m0:00:00 • 0:00:01\x1b[0m "
            "\x1b[2;4m20.00it/s\x1b[0m \x1b[3mv_num: 0.000 train_loss: 0.250\x1b[0m"
        ).encode(),
        {"step": 36, "total": 75, "epoch": 1.0, "loss": 0.25, "seconds": 0.05, "format": "tqdm"},
    ),
    (
        "Epoch 1/-2 ━━━━━━━━━━━━      23/32 0:00:01 • 0:00:01 20.00it/s v_num: 0.000     ".encode(),
        {"step": 55, "epoch": 1.0, "seconds": 0.05, "format": "tqdm"},
    ),
    (
        b"I1122 21:19:49.101 140 trainer.py:75] [15] loss=3.5, steps_per_sec=40.00",
        {"step": 15, "loss": 3.5, "throughput": 40.0, "format": "bracketed"},
    ),
    (
        b"2027-03-09 21:10:57.674 | INFO     | train:metrics:90 - step 100/160 | loss 0.5 | tps 925 | 365 ms",
        {"step": 100, "total": 160, "loss": 0.5, "throughput": 925.0, "seconds": 0.365, "format": "step_loss"},
    ),
    ("│ training_iteration          6 │".encode(), {"step": 6, "format": "ray_table"}),
    ("│ loss                      nan │".encode(), {"loss": math.nan, "format": "below"}),
    ("│ train_loss             1.8125 │".encode(), {"loss": 1.8125, "format": "below"}),
    (
        "Epoch 2/2  ━━━━━━━━━━━━━━━━━ 25/25 0:00:00 • 0:00:00 20.00it/s train_loss: nan  ".encode(),
        {"step": 75, "total": 75, "epoch": 2.0, "loss": math.nan, "seconds": 0.05, "format": "tqdm"},
    ),
    (
        "Validation ━━━━━━━━━━━━━━━━━ 3/8   0:00:00 • -:--:-- 20.00it/s                  ".encode(),
        {"step": 3, "total": 8, "seconds": 0.05, "validation": True, "format": "tqdm"},
    ),
    (
        "Epoch 2:  51%|█████     | 51/100 [00:20<00:19,  2.50it/s, v_num=4, val_loss=0.5]".encode(),
        {"step": 51, "total": 100, "epoch": 2.0, "seconds": 0.4, "format": "tqdm"},
    ),
    (
        "Validation DataLoader 0:  51%|█████     | 51/100 [00:20<00:19,  2.50it/s]".encode(),
        {"step": 51, "total": 100, "seconds": 0.4, "validation": True, "format": "tqdm"},
    ),
    (
        (
            b"[titan] 2027-02-09 17:40:08,002 - root - INFO - step: 45  loss:  5.25000  grad_norm:  1.5000  memory: "
            b"50.00GiB(63.10%)  tps: 6,120  tflops: 301.50  mfu: 30.48%"
        ),
        {"step": 45, "loss": 5.25, "grad_norm": 1.5, "memory": 50 * GIB, "throughput": 6120.0, "format": "step_loss"},
    ),
    (
        (
            b"INFO - \x1b[31mstep: 45  \x1b[32mloss:  5.25000  \x1b[38;2;180;60;0mgrad_norm:  1.5000  \x1b[36mmemory: "
            b"50.00GiB(63.10%)  \x1b[34mtps: 6,120"
        ),
        {"step": 45, "loss": 5.25, "grad_norm": 1.5, "memory": 50 * GIB, "throughput": 6120.0, "format": "step_loss"},
    ),
    (
        b"INFO - validate step: 45  loss:  5.5  memory: 50.00GiB(63.10%)  tps: 6,120",
        {"step": 45, "loss": 5.5, "memory": 50 * GIB, "throughput": 6120.0, "validation": True, "format": "step_loss"},
    ),
    (
        b"step 00045/09000 (0.50%) | loss: 4.250000 | lrm: 1.00 | dt: 250.50ms | tok/sec: 2,093,000 | mfu: 40.10",
        {"step": 45, "total": 9000, "loss": 4.25, "seconds": 0.2505, "throughput": 2093000.0, "format": "step_loss"},
    ),
    (
        b" 2677: nan, nan avg, 0.001000 rate, 4.580532 seconds, 171328 images",
        {"step": 2677, "loss": math.nan, "format": "counted"},
    ),
    (b"Step      80 (23.64%): loss = 0000nan EER=0.00000", {"step": 80, "loss": math.nan, "format": "step_loss"}),
    (
        b"[2026-07-28T15:25:54] Step 14100 stats, val: loss = 3.5",
        {"step": 14100, "loss": 3.5, "validation": True, "format": "step_loss"},
    ),
    (b"Step 00090 | Validation bpb: 1.2500", {"step": 90, "loss": 1.25, "validation": True, "format": "validation"}),
    (
        b"iter 45: loss 4.2500, time 250.50ms, mfu 30.10%",
        {"step": 45, "loss": 4.25, "seconds": 0.2505, "throughput": 30.1, "format": "iter_loss"},
    ),
    (
        b"step 90: train loss 4.2500, val loss 4.5000",
        {"step": 90, "loss": 4.5, "validation": True, "format": "validation"},
    ),
    (
        b"step   45/9000 | loss 4.250000 (+0.10z)| norm 1.5000 (+nanz)| lr 3.00e-05 | 250.50 ms | 40% bf16 MFU | 90000 tok/s",
        {
            "step": 45,
            "total": 9000,
            "loss": 4.25,
            "grad_norm": 1.5,
            "learning_rate": 3e-5,
            "seconds": 0.2505,
            "throughput": 90000.0,
            "format": "step_loss",
        },
    ),
    (
        (
            b"| INFO | train_inner | epoch 002:     45 / 900 loss=8.5, nll_loss=8.1, wps=1500, num_updates=945, lr=3e-05, "
            b"gnorm=1.5, loss_scale=8, train_wall=9"
        ),
        {
            "step": 945,
            "loss": 8.5,
            "grad_norm": 1.5,
            "learning_rate": 3e-5,
            "throughput": 1500.0,
            "loss_scale": 8.0,
            "epoch": 2.0,
            "format": "fairseq",
        },
    ),
    (b"| epoch 002:     45 / 900 loss=8.5, ppl=300", {"step": 45, "loss": 8.5, "epoch": 2.0, "format": "fairseq"}),
    (
        b'| train_inner | {"epoch": 2, "update": 1.05, "loss": "8.5", "wps": "1500", "num_updates": "945", "gnorm": "1.5"}',
        {"step": 945, "loss": 8.5, "grad_norm": 1.5, "throughput": 1500.0, "epoch": 2.0, "format": "json"},
    ),
    (
        (
            b"Epoch [2][45/900]\tlr: 3.000e-05, eta: 1:02:03, time: 0.250, data_time: 0.010, memory: 7000, loss_cls: 0.5, "
            b"loss: 4.25"
        ),
        {
            "step": 45,
            "total": 900,
            "epoch": 2.0,
            "learning_rate": 3e-5,
            "seconds": 0.25,
            "memory": 7000 * MIB,
            "loss": 4.25,
            "format": "epoch_brackets",
        },
    ),
    (
        b"mmengine - INFO - Epoch(train)   [2][ 45/900]  lr: 3.0e-05  time: 0.2500  memory: 7000  loss: 4.25",
        {
            "step": 45,
            "total": 900,
            "epoch": 2.0,
            "learning_rate": 3e-5,
            "seconds": 0.25,
            "memory": 7000 * MIB,
            "loss": 4.25,
            "format": "epoch_brackets",
        },
    ),
    (
        b"Epoch is [2/600], mini-batch is [7/41], time consumption is 0.25, batch_loss is 4.25",
        {"step": 7, "total": 41, "epoch": 2.0, "loss": 4.25, "format": "epoch_brackets"},
    ),
    (
        b"mmengine - INFO - Epoch(val) [2][50/50]    acc: 0.5",
        {"step": 50, "total": 50, "epoch": 2.0, "validation": True, "format": "epoch_brackets"},
    ),
    (
        b"Epoch: [2]  [  45/900]  eta: 0:40:12  lr: 0.000030  loss: 4.25 (4.50)  time: 0.25  data: 0.00  max mem: 7000",
        {
            "step": 45,
            "total": 900,
            "epoch": 2.0,
            "learning_rate": 3e-5,
            "loss": 4.25,
            "seconds": 0.25,
            "memory": 7000 * MIB,
            "format": "epoch_brackets",
        },
    ),
    (
        b"Iter(train) [   45/90000]  lr: 3.0e-05  time: 0.2500  loss: 4.25",
        {"step": 45, "total": 90000, "learning_rate": 3e-5, "seconds": 0.25, "loss": 4.25, "format": "iter_brackets"},
    ),
    (
        b"Train: 2 [  45/900 (  5%)]  Loss: 4.250 (4.50)  Time: 0.250s, 4096.0/s  (0.300s, 3413.3/s)  LR: 3.000e-05",
        {
            "step": 45,
            "total": 900,
            "epoch": 2.0,
            "loss": 4.25,
            "seconds": 0.25,
            "learning_rate": 3e-5,
            "format": "train_brackets",
        },
    ),
    (
        (
            b"Train: [2/300][45/900]\teta 1:02:03 lr 0.000030\t time 0.2500 (0.3000)\tloss 4.2500 (4.50)\tgrad_norm 1.5000 "
            b"(1.6)\tmem 7000MB"
        ),
        {
            "step": 45,
            "total": 900,
            "epoch": 2.0,
            "loss": 4.25,
            "learning_rate": 3e-5,
            "grad_norm": 1.5,
            "seconds": 0.25,
            "memory": 7000 * MIB,
            "format": "train_brackets",
        },
    ),
    (
        b"Training  [   450/90000]  eta: 9:40:12  loss: 4.2500 (4.50)  time: 0.250000  data: 0.000200  max mem: 7000",
        {
            "step": 450,
            "total": 90000,
            "loss": 4.25,
            "seconds": 0.25,
            "memory": 7000 * MIB,
            "format": "training_brackets",
        },
    ),
    (
        b"2026-03-06 05:51:32,186 INFO: [x..][epoch:283, iter: 496,400, lr:(1.676e-07,)] [eta: 0:29:15, time (data): 0.478 (0.002)] l_pix: 7.4e-03",
        {"step": 496400, "epoch": 283.0, "learning_rate": 1.676e-07, "format": "basicsr"},
    ),
    (
        b"25-01-26 19:51:18.779 : <epoch:  3, iter:   4,800, lr:2.000e-04> G_loss: 4.400e-03",
        {"step": 4800, "epoch": 3.0, "learning_rate": 2e-4, "format": "basicsr"},
    ),
    (
        b"[\x1b[34m2025-10-25 21:55:40\x1b[0m] (step=0000051) Train Loss mse: 0.0139, Train Loss ce: 0.0539, Train Steps/Sec: 0.03, ",
        {"step": 51, "format": "dit"},
    ),
    (
        b"INFO     it \x1b[1;36m105\x1b[0m of \x1b[1;36m4000\x1b[0m  \x1b[33mloss\x1b[0m=\x1b[1;36m0\x1b[0m\x1b[1;36m.0024\x1b[0m",
        {"step": 105, "total": 4000, "loss": 0.0024, "format": "fraction_loss"},
    ),
    (
        b"622 | loss 2.8663 | lr 3.110000e-04 | 167.23ms",
        {"step": 622, "loss": 2.8663, "learning_rate": 3.11e-4, "seconds": 0.16723, "format": "fraction_loss"},
    ),
    (
        b"Test:  [ 5/98]  eta: 0:00:12  loss: 0.5000 (0.60)",
        {"step": 5, "total": 98, "loss": 0.5, "validation": True, "format": "test_brackets"},
    ),
    (
        (
            b"[02/09 17:40:08 d2.utils.events]:  eta: 0:40:12  iter: 459  total_loss: 4.25  loss_cls: 0.5  time: 0.2500  "
            b"last_time: 0.3  data_time: 0.01  lr: 3e-05  max_mem: 7000M"
        ),
        {
            "step": 459,
            "loss": 4.25,
            "seconds": 0.25,
            "learning_rate": 3e-5,
            "memory": 7000 * MIB,
            "format": "iter_loss",
        },
    ),
    (
        b" 45/900 [>.............................] - ETA: 1:02 - loss: 4.2500 - accuracy: 0.1",
        {"step": 45, "total": 900, "loss": 4.25, "format": "keras"},
    ),
    (
        "\x1b[1m 45/900\x1b[0m \x1b[32m━\x1b[0m\x1b[37m━━━\x1b[0m \x1b[1m1:02\x1b[0m 50ms/step - loss: 4.2500".encode(),
        {"step": 45, "total": 900, "loss": 4.25, "seconds": 0.05, "format": "keras"},
    ),
    (
        b'{"current_steps": 45, "total_steps": 900, "loss": 4.25, "lr": 3e-05, "epoch": 0.05}',
        {"step": 45, "total": 900, "loss": 4.25, "learning_rate": 3e-5, "epoch": 0.05, "format": "json"},
    ),
    (b'{"loss": NaN, "step": 45}', {"step": 45, "loss": math.nan, "format": "json"}),
    (
        b"(TaskRunner pid=77) step:45 - actor/pg_loss:0.25 - actor/grad_norm:1.5 - perf/throughput:1500.5 - timing_s/step:41.5",
        {"step": 45, "loss": 0.25, "grad_norm": 1.5, "throughput": 1500.5, "seconds": 41.5, "format": "verl"},
    ),
    (
        (
            b"iteration: 45 / 900 | elapsed_time_per_iteration_ms: 250 | tokens_per_sec: 1.5K | lm_loss: 4.25 | lr: 3e-05 | "
            b"grad_norm: 1.5"
        ),
        {
            "step": 45,
            "total": 900,
            "seconds": 0.25,
            "throughput": 1500.0,
            "loss": 4.25,
            "learning_rate": 3e-5,
            "grad_norm": 1.5,
            "format": "nanotron",
        },
    ),
    (b"[batch=45/900]:", {"step": 45, "total": 900, "format": "composer"}),
    (
        b"completed step: 45, seconds: 4.5, TFLOP/s/device: 301.5, Tokens/s/device: 1500.5, loss: 4.250",
        {"step": 45, "seconds": 4.5, "throughput": 1500.5, "loss": 4.25, "format": "step_loss"},
    ),
    (
        b"loss: 4.25, learning_rate: 3e-05, global_step: 45",
        {"step": 45, "loss": 4.25, "learning_rate": 3e-5, "format": "global_step_loss"},
    ),
    (
        b"Epoch 2, global step 945: 'val_f1' was not in top 1",
        {"step": 945, "epoch": 2.0, "format": "lightning_callback"},
    ),
    (b"iter=45 loss=inf lr=0.001", {"step": 45, "loss": math.inf, "learning_rate": 1e-3, "format": "iter_loss"}),
    (
        b"2026-09-14 20:07:13.430 | INFO     | train.loop:step:462 - step 45 loss 4.25 lr 3e-05",
        {"step": 45, "loss": 4.25, "learning_rate": 3e-5, "format": "step_loss"},
    ),
    (b"train:step:45 - loss 4.25", {"step": 45, "loss": 4.25, "format": "step_loss"}),
    (b"step 45 loss -nan", {"step": 45, "loss": math.nan, "format": "step_loss"}),
    (b"[Epoch 2/20] Train Loss: 0.25, Val Loss: 0.50", {"epoch": 2.0, "loss": 0.25, "format": "epoch_loss"}),
    (b"Epoch: 2 Validation Loss: 0.50", {"epoch": 2.0, "loss": 0.5, "validation": True, "format": "epoch_loss"}),
    (
        b"Epoch 2 | Step 45/900 | Loss: 4.25",
        {"step": 45, "total": 900, "epoch": 2.0, "loss": 4.25, "format": "step_loss"},
    ),
    (
        (
            b'{"loss": 2.25, "acc": 0.5, "grad_norm": NaN, "learning_rate": 1.5e-05, "train_speed(iter/s)": 0.5, "epoch": 0.25,'
            b' "global_step/max_steps": "840/1600", "percentage": "52.50%"}'
        ),
        {
            "step": 840,
            "total": 1600,
            "loss": 2.25,
            "grad_norm": math.nan,
            "learning_rate": 1.5e-5,
            "seconds": 2.0,
            "epoch": 0.25,
            "format": "hf_dict",
        },
    ),
    (b"step_4120:\tloss_-5.125000000", {"step": 4120, "loss": -5.125, "format": "step_loss"}),
    (
        b"Training: 2025-01-02 03:04:05,678-Speed 1250.50 samples/sec   Loss 12.5000   Epoch: 1   Global Step: 750   Required: 9 hours",
        {"step": 750, "loss": 12.5, "epoch": 1.0, "throughput": 1250.5, "format": "step_loss"},
    ),
    (
        b"Epoch[2] Batch [40]\tSpeed: 75.50 samples/sec\tTrain-CrossEntropy=nan",
        {"step": 40, "epoch": 2.0, "loss": math.nan, "throughput": 75.5, "format": "batch_brackets"},
    ),
    (
        b"Epoch[0] Batch [60]\tSpeed: 31.25 samples/sec\tTrain-SmoothL1=nan",
        {"step": 60, "epoch": 0.0, "loss": math.nan, "throughput": 31.25, "format": "batch_brackets"},
    ),
    (
        b"Epoch[0] Batch [60]\tSpeed: 31.25 samples/sec\tTrain-ObjectAcc=0.000000",
        {"step": 60, "epoch": 0.0, "throughput": 31.25, "format": "batch_brackets"},
    ),
    (
        b"train: 3, 50 / 400] FPS: 210.5 (198.5)  ,  Loss/total: 1.25  ,  Loss/giou: 0.5",
        {"step": 50, "total": 400, "epoch": 3.0, "loss": 1.25, "throughput": 198.5, "format": "ltr"},
    ),
    (
        b"Train loss 31 0.500000 Grad Norm 1.250000 0.75s/it",
        {"step": 31, "loss": 0.5, "grad_norm": 1.25, "seconds": 0.75, "format": "stated"},
    ),
    (
        b"[2026-01-02 10:00:00] Ep. 1 : Up. 1500 : Sen. 64,000 : Cost 8.25 : Time 12.5s : 2000.5 words/s",
        {"step": 1500, "loss": 8.25, "throughput": 2000.5, "format": "stated"},
    ),
    (
        b"2epoch:train:101-200batch: iter_time=0.125, loss_ctc=80.5, loss=60.25, train_time=1.250",
        {"step": 200, "loss": 60.25, "seconds": 1.25, "format": "espnet"},
    ),
    (
        b"100\timages/sec: 700.5 +/- 1.2 (jitter = 3.4)\t7.125",
        {"step": 100, "loss": 7.125, "throughput": 700.5, "format": "counted"},
    ),
    (
        b"31: -nan, nan avg loss, 0.001000 rate, 3.1 seconds, 576 images",
        {"step": 31, "loss": math.nan, "format": "counted"},
    ),
    (b"epoch: 1 step: 90, loss is nan", {"step": 90, "epoch": 1.0, "loss": math.nan, "format": "step_loss"}),
    (b"INFO:tensorflow:global_step/sec: 2.5", {"throughput": 2.5, "format": "rate", "validation": True}),
    (
        b"| WARNING: overflow detected, setting loss scale to: 0.125",
        {"loss_scale": 0.125, "format": "loss_scale", "validation": True},
    ),
    (
        b"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 1.52587890625e-05",
        {"loss_scale": 1.52587890625e-05, "format": "loss_scale", "validation": True},
    ),
    (
        b"Memory info of CPU: total:251.25Gb, available: 200.5Gb, percent: 20.5%",
        {"memory": 20.5, "format": "used Memory info of CPU total Gb available Gb percent ", "validation": True},
    ),
    (
        b"Mem:           125Gi        32Gi       2.1Gi       1.0Mi        92Gi        93Gi",
        {"memory": 32 * GIB, "format": "used Mem Gi ", "validation": True},
    ),
    (b"[rank1]: rss=2.5GB", {"memory": 2.5 * GIB, "format": "used rss ", "validation": True}),
    (
        b"[default3]:      12/80      7.5G       1.25      0.500      2.000         33        512: 100%|###| 90/90 [00:45<00:00,  2.00it/s]",
        {"step": 90, "total": 90, "epoch": 12.0, "loss": 3.75, "seconds": 0.5, "memory": 7.5 * GIB, "format": "tqdm"},
    ),
    (
        "       0/80      7.5G        nan      0.500         33        512: 25% ━━━───────── 22/90 2.0it/s 11.0s<34.0s".encode(),
        {
            "step": 22,
            "total": 90,
            "epoch": 0.0,
            "loss": math.nan,
            "seconds": 0.5,
            "memory": 7.5 * GIB,
            "format": "tqdm",
        },
    ),
    (
        b"I0211 08:09:10.501901 99 logging_writer.py:48] [640] learning_rate=0.0005, loss=3.25, steps_per_second=2.5",
        {"step": 640, "loss": 3.25, "learning_rate": 0.0005, "throughput": 2.5, "format": "clu"},
    ),
    (
        b"I0211 08:09:10.501901 99 logging_writer.py:48] [640] eval_accuracy=0.5",
        {"step": 640, "format": "clu", "validation": True},
    ),
    (
        (
            b"2027-02-11 08:09:10,902 - mindformers[core/callback.py:31] - INFO - { Epoch:[  2/  4], step:[   64/ 900], loss: 3.25, "
            b"per_step_time: 750ms, lr: 1e-05, overflow cond: False, loss_scale: 64.0, global_norm: [1.5], train_throughput_per_npu: 99.5T }"
        ),
        {
            "step": 64,
            "total": 900,
            "epoch": 2.0,
            "loss": 3.25,
            "seconds": 0.75,
            "learning_rate": 1e-5,
            "loss_scale": 64.0,
            "grad_norm": 1.5,
            "throughput": 99.5,
            "format": "mindformers",
        },
    ),
    (
        b"2027-02-11 08:09:10\tnode-b:0\ttrain:95\tINFO\t[step=64/900,epoch=2]",
        {"step": 64, "total": 900, "epoch": 2.0, "format": "olmo"},
    ),
    (b"    train/CrossEntropyLoss=3.25", {"loss": 3.25, "format": "below"}),
    (b"\t Train loss/train/total: nan", {"loss": math.nan, "format": "below"}),
    (
        b"08:09:10 Schritt 64/900  Verlust=3.25  loss=3.25  Dauer 1.5 s",
        {"step": 64, "total": 900, "loss": 3.25, "seconds": 1.5, "format": "fraction_loss"},
    ),
    (
        b"step 64 loss 3.25 gnorm 0.4 (132 ms)",
        {"step": 64, "loss": 3.25, "grad_norm": 0.4, "seconds": 0.132, "format": "step_loss"},
    ),
    (
        b'{"msg": "train step=64 loss=3.25 ms=1554"}',
        {"step": 64, "loss": 3.25, "seconds": 1.554, "format": "step_loss"},
    ),
    (b"step 64 loss 3.25 (eta 2 h, 12 s)", {"step": 64, "loss": 3.25, "format": "step_loss"}),
    ("08:09 étape 64, loss: 3.25".encode(), {"step": 64, "loss": 3.25, "format": "fraction_loss"}),
    ("第 64 步 loss: 3.25".encode(), {"step": 64, "loss": 3.25, "format": "fraction_loss"}),
    ("Époque 2/4 loss: 3.25".encode(), {"epoch": 2.0, "loss": 3.25, "format": "fraction_loss"}),
    (
        b"(RayTrainWorker pid=9) {'loss': 3.25, 'lr': 1e-05, 'step': 64, 'epoch': 0.5}",
        {"step": 64, "loss": 3.25, "learning_rate": 1e-5, "epoch": 0.5, "format": "hf_dict"},
    ),
    (
        "[default0]:90/90 ━━━━━━━━━━ 9s 100ms/step - accuracy: 0.5 - loss: 3.25".encode(),
        {"step": 90, "total": 90, "loss": 3.25, "seconds": 0.1, "format": "keras"},
    ),
    (
        "90/90 ━━━━━━━━━━ 9s 100ms/step - accuracy: 0.5 - \x1b[36mloss\x1b[0m: 3.25".encode(),
        {"step": 90, "total": 90, "loss": 3.25, "seconds": 0.1, "format": "keras"},
    ),
    (
        b"completed step: 64, seconds: 1.5, TFLOP/s/device: 99.5, Tokens/s/device: 812.5, \x1b[36mloss\x1b[0m: 3.25",
        {"step": 64, "loss": 3.25, "seconds": 1.5, "throughput": 812.5, "format": "step_loss"},
    ),
    (
        b"2027-02-11 - INFO - Iter: 64    training-loss, overall: nan    training-loss, part: nan",
        {"step": 64, "loss": math.nan, "format": "iter_loss"},
    ),
    (b"step:64 - actor/lr:0.000 - actor/pg_loss:0.5", {"step": 64, "loss": 0.5, "format": "verl"}),
    (
        b"step:64 - actor/lr:0.0 - actor/pg_loss:0.5",
        {"step": 64, "loss": 0.5, "learning_rate": 0.0, "format": "verl"},
    ),
    (
        b"step:64 - actor/lr:0.000E+00 - actor/pg_loss:0.5",
        {"step": 64, "loss": 0.5, "learning_rate": 0.0, "format": "verl"},
    ),
    (b"curriculum: sequence length is now 8192 (was 4096)", {"format": "resized", "validation": True}),
    (b"WARNING: micro batch size halved to 2, going on", {"format": "resized", "validation": True}),
    (b"Decreasing batch size to: 4.", {"format": "resized", "validation": True}),
    (b"Increasing the global batch size from 256 to 512", {"format": "resized", "validation": True}),
    (
        b"2027-02-20 18:39:10,572 INFO fit: rank 1 | step 10 | data 8.5 ms | forward-backward 407.5 ms | rss 512 MB",
        {"step": 10, "data": 0.0085, "compute": 0.4075, "memory": 512 * 2.0**20, "format": "own", "validation": True},
    ),
    (b"step=7 compute_ms=125.5 wait_ms=3", {"step": 7, "compute": 0.1255, "format": "own", "validation": True}),
    (b'{"step": 7, "data_secs": 1.5}', {"step": 7, "data": 1.5, "format": "own", "validation": True}),
    (b"iter 7 compute_time=125ms", {"step": 7, "compute": 0.125, "format": "own", "validation": True}),
    (
        b"[rank3] step: 12 forward 0.25 s, backward: 0.5s",
        {"step": 12, "compute": 0.75, "format": "own", "validation": True},
    ),
    (b"global step 12 data_loading: 500us", {"step": 12, "data": 0.0005, "format": "own", "validation": True}),
    (b"step 5 rss 2.5 GiB", {"step": 5, "memory": 2.5 * 2.0**30, "format": "own", "validation": True}),
    (b"step 5 input shape: torch.Size([8, 4096])", {"step": 5, "size": 32768.0, "format": "own", "validation": True}),
    (b"step 5 seq_len=8192", {"step": 5, "size": 8192.0, "format": "own", "validation": True}),
    (
        b"step 5 loss: 2.5 compute: 250 ms data_wait: 4 ms seq_len: 4096",
        {"step": 5, "loss": 2.5, "compute": 0.25, "data": 0.004, "size": 4096.0, "format": "step_loss"},
    ),
]


def values_of(line: bytes) -> dict[str, object]:
    """Return what a line's point says, without what it leaves open."""
    point = read_line(line)
    assert point is not None
    values = {name: getattr(point, name) for name in point.__slots__ if name != "offset"}
    return {name: value for name, value in values.items() if value is not None and value is not False}


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_an_iteration_line_gives_its_step_and_measures(line: bytes, expected: dict[str, object]) -> None:
    """Each known form gives every quantity that it prints, a rate of its own sizes where it prints none, and no more."""
    assert values_of(line) == {
        name: pytest.approx(value, nan_ok=True) if isinstance(value, float) else value
        for name, value in expected.items()
    }


@pytest.mark.parametrize(
    "line",
    [
        "Loading checkpoint shards:  45%|████▌     | 5/11 [00:31<00:39,  3.80s/it]".encode(),
        "Fetching 12 files:  45%|████▌     | 5/11 [00:31<00:39,  3.80it/s]".encode(),
        "Running tokenizer on train dataset:  45%|████▌     | 5/11 [00:31<00:39,  3.80it/s]".encode(),
        "Map (num_proc=4):  45%|████▌     | 500/1100 [00:31<00:39, 38.0 examples/s]".encode(),
        "model.safetensors:  45%|████▌     | 1.2G/4.9G [00:31<00:39, 38.0MB/s]".encode(),
        b"the loss function took step 3",
        b"[2027-03-09 21:10:57] [INFO] [train.py:75] [3] loss=2.5",
        b"time (ms) | fwd_microstep: 22.1 | bwd_microstep: 9.5 | data 3 ms",
        b"step 3 forward 12.5 ms",
        b"forward-backward 12.5 ms on average",
        b"step 3 of the forward pass takes 5 sheets",
        b"reading data 3 ms after step",
        b"rss 512 MB",
        b"loss = self.training_step(model, inputs, step=3)",
        b"RuntimeError: step 3 failed: loss is not a scalar",
        b"  loss_scale_window ............................... 1000",
        b'  "loss_scale": 0, "step": 4',
        b"max_steps: 1000, loss: CrossEntropy",
        b"[rank 3/8] loss: 2.5",
        b"rank 3 of 8: loss 2.5",
        b"sample 3 of 8: loss 2.5",
        b"2027/03/01 loss: 2.5",
        b"ranks 8/4 answered, loss: 2.5",
        b"batch_size: 4",
        b"the batch size is set to 4",
        b'  "loss": 0.5, "name": "weights"',
        b"saved step 200 as model_loss_0.05.ckpt",
        b"12 files, 3.5 avg loss, 0.001 rate",
        b"9 packets transmitted, 9 received, 0% packet loss, time 12ms, step 3",
        b"{'train_runtime': 99.5, 'train_steps_per_second': 1.5, 'train_loss': 1.25, 'epoch': 3.0}",
        b"[2027-02-09 17:40:08,114] [INFO] [logging.py:129:log_dist] [Rank 0] step=0, skipped=0, lr=[0.0], mom=[(0.9, 0.95)]",
        b"Epoch 1/5",
        b"srun: Terminating job step 81.0",
        b"",
        b"\xff\xfe step \x00 loss",
        b"saved the best model to runs/a/best.pt (epoch 1257, loss 8.1e-04)",  # of a step that has its own line
        b"Step: 425k loss: 0.3",  # rounded to thousands
    ],
)
def test_a_near_miss_is_no_iteration_line(line: bytes) -> None:
    """Bars of loading, code, configuration and talk of losses are not progress."""
    assert read_line(line) is None


def test_an_iteration_without_a_loss_is_not_finite_where_megatron_counted_one() -> None:
    """Megatron leaves the loss out of a line whose iterations were all not finite."""
    point = read_line(b" iteration  9/ 90 | elapsed time per iteration (ms): 9.0 | number of nan iterations:   2 |")
    assert point is not None
    assert point.loss is not None
    assert math.isnan(point.loss)


def test_a_colour_between_words_changes_nothing() -> None:
    """A coloured line gives the same point as the plain one, but for its offset."""
    plain = values_of(b"step: 12  loss:  2.5  grad_norm:  0.5")
    assert plain == values_of(b"\x1b[0m\x1b[31mstep: 12  \x1b[32mloss:  2.5  \x1b[36mgrad_norm:  0.5\x1b[39m")


def test_bars_redrawn_on_one_line_are_read_one_by_one() -> None:
    """Carriage returns separate the states of a bar."""
    block = b"".join(f"\r {i}%|#   | {i}/100 [00:0{i}<10:00,  1.00s/it, loss=0.{i}]".encode() for i in range(1, 5))
    (form,) = [form for form in FORMATS if form.head == b"s/it"]
    points = [form.read(match) for match in form.find.finditer(block)]
    assert [(point.step, point.loss) for point in points if point] == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]


@pytest.mark.parametrize(
    ("label", "is_progress"),
    [
        (b"", True),
        (b"[rank3]: ", True),
        (b"7: ", True),
        (b"2027-02-09 17:40:08 INFO: ", True),
        (b"Steps: ", True),
        (b"Training (epoch 2/3): ", True),
        (b"(Worker pid=9) Training Progress: ", True),
        (b"Epoch 2 loss 0.250: ", True),
        (b"{'loss': 0.25, 'epoch': 0.5}", True),
        (b"critic: -0.988;gen: 0.119: ", True),
        (b"Epoch 0, Loss 2.214, LR 1.92e-05: ", True),
        (b"psnr: 20.1 ssim: 0.82: ", False),
        (b"val_loss: 0.5, val_acc: 0.9: ", False),
        (b"Rollout generation: ", False),
        (b"Loading train steps: ", False),
        (b"Capturing CUDA graph shapes: ", False),
        (b"[running kmeans]: ", False),
        (b"[train loop]: ", True),
        (b"[node 3]: ", True),
    ],
)
def test_a_bar_counts_where_its_label_says_so(label: bytes, is_progress: bool) -> None:
    """A bar is progress where its label is about training, or where it has none but prefixes."""
    bar = b" 10%|#         | 5/50 [00:31<00:39,  3.80s/it]"
    assert (read_line(label + bar) is not None) == is_progress


def test_the_loss_in_a_label_is_that_of_its_bar() -> None:
    """But not the zero from before the first step; a step that is rounded does not replace the bar's own."""
    bar = b" 10%|#         | 5/50 [00:31<00:39,  3.80s/it]"
    losses = (b"Epoch 0, Loss nan, LR 3.85e-05:", b"Epoch 0, Loss 2.214, LR 1.9e-05:", b"Epoch 0, Loss 0.000:")
    found = [read_line(label + bar) for label in losses]
    assert [str(point.loss) for point in found if point] == ["nan", "2.214", "None"]

    for count, step in ((b"3.2e+4", 32040), (b"32.5", 32040), (b"32039.0", 32039), (b"32039", 32039)):
        line = b"Epoch 0:   6%|#  | 32040/500150 [6:28:43<94:39:17,  1.37it/s, loss=2.6, global_step=" + count + b"]"
        point = read_line(line)
        assert point is not None
        assert point.step == step


def test_a_bar_of_epochs_has_no_step() -> None:
    """What it counts are epochs, and their number is not the run's number of steps."""
    point = read_line(b"epochs:   1%|#         | 7/1000 [00:31<00:39,  3.80s/it]")
    assert point is not None
    assert (point.epoch, point.step, point.total, point.seconds) == (7.0, None, None, None)


def test_the_offset_is_where_the_match_starts() -> None:
    """The scanner finds the line from the match's place in its block."""
    point = read_line(b"node-b: iter 3: loss 2.5")
    assert point is not None
    assert point.offset == 8


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"{form.name}-{form.head.decode()}")
def test_a_format_keeps_its_contract(form: Any) -> None:
    """A detector is in the safe subset, and a find starts with its literal head of four bytes or more."""
    faults = [fault for fault in patterns.check(form.detector) if "four letters" not in fault]
    assert faults == []
    assert len(form.head) >= 4
    assert form.find.pattern.startswith(re.escape(form.head))


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_a_line_that_is_read_is_also_detected(line: bytes, expected: dict[str, object]) -> None:
    """The scanner would have looked: some detector of the line's format fires on it."""
    detectors = [form.detector for form in FORMATS if form.name in (str(expected["format"]).split()[0], "hf_eval")]
    assert any(re.search(detector.encode(), line) for detector in detectors)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"{form.name}-{form.head.decode()}")
def test_a_match_never_crosses_a_line(form: Any) -> None:
    """However long the block, a match ends where its line does."""
    for line, _ in LINES:
        block = line + b"\nsecond line, step: 3 loss: 4\n"
        ends = [match.end() for match in form.find.finditer(block) if match.start() < len(line)]
        assert all(end <= len(line) for end in ends)


def test_what_one_step_read_is_no_step() -> None:
    """A count of tokens in this step stands behind the word, too."""
    found = read_line(b"{'train_loss': 1.218, 'epoch': 0.99, 'tokens_this_step': 24175, 'train_speed(s/it)': '86.18'}")
    assert found is None or found.step is None


@pytest.mark.parametrize(
    ("line", "rate"),
    [
        ("Step 8 loss: 0.205040 examples/sec: 271.5", 271.5),
        ("Step 8 loss: 0.205040 271.5 examples/sec", 271.5),
        ("Step 8 loss: 0.205040 tok/s: 300", 300.0),
    ],
)
def test_a_rate_is_the_number_that_its_name_belongs_to(line: str, rate: float) -> None:
    """The number before a name with a colon is another's."""
    point = read_line(line.encode())
    assert point is not None
    assert point.throughput == rate
