"""Lines that runs print at every step or many times a second, in lower case. Their words are useless for a search."""

from __future__ import annotations

# Printed by each rank, several times a step.
SIDE_LINES = """
forward: 1.0 ms, backward: 1.0 ms, wait: 1.0 ms, queue 3 of 32, errors 0, late 0, time across ranks (ms): all-reduce
allocated: 10.0 mb, max allocated: 10.0 mb, reserved: 10.0 mb, segments, cpu virtual memory: used = 10.0 gb,
 percent = 5%
read 10 samples from /data/corpus/part-00001.bin in 1.0 ms, cache hit rate 0.9, dataloader workers 8
"""
RECURRING = """
 iteration 12/ 500 | consumed samples: 24 | elapsed time per iteration (ms): 5.1
 | throughput per gpu (tflop/s/gpu): 41.0 | learning rate: 2.9e-04 | global batch size: 2048 | lm loss: 1.9e+00
 | loss scale: 1.0 | grad norm: 0.3 | number of skipped iterations: 0 | number of nan iterations: 0
 | params norm: 1.2 | load_balancing_loss: 1.0 |
iteration: 10 / 200 | consumed_tokens: 1m | time_per_iteration_ms: 90 | tokens_per_sec: 1k | global_batch_size: 8
{'loss': 2.1, 'grad_norm': 0.3, 'learning_rate': 5e-05, 'epoch': 0.1, 'num_tokens': 10.0, 'mean_token_accuracy':
 0.5}
{"step": 3, "loss": 1.2, "learning_rate": 1e-4, "gpu_memory_usage": 1, "gradient_norm": 1, "global_step": 3}
[2026-11-20 03:04:05,100] [info] [logging.py:96:log_dist] [rank 0] step=10, skipped=0, lr=[0.0001], mom=[(0.9,
 0.95)]
[info] [timer.py:199:stop] epoch=0/micro_step=10/global_step=10, runningavgsamplespersec=5, memallocated=1gb,
 maxmemallocated
steps: 10 loss: 2.5 iter time (s): 0.5 samples/sec: 16.0
training epoch 0, iteration 10/99 | lr: 1e-4 | global_batch_size: 8 | global_step: 10 | reduced_train_loss: 2.1
 | timing
epoch 0:  10%|#         | 10/100 [00:10<01:40, 1.00it/s, v_num=0, loss=2.31, train_loss_step=2.3, val_loss=2.0]
epoch: [0][10/100] time 0.5 ( 0.5) data 0.1 ( 0.1) loss 2.1e+00 (2.2e+00) acc@1 10.00 (9.00) eta: 0:01:40 max mem:
 1024
step:10 - global_seqlen/mean:1 - actor/entropy:0.1 - critic/score/mean:0.1 - timing_s/gen:1.0 - perf/throughput:10
[batch=10/100]: train: time/batch: 9 train: loss/train/total: 2.1 train: memory/peak_allocated_mem: 1.0
 throughput/tokens
step: 10 loss: 2.1 grad_norm: 0.5 memory: 10.0gib(12%) tps: 1,000 tflops: 40.1 mfu: 40.1%
step 10/100 train_loss:2.1 train_time:100ms step_avg:10.0ms val loss 2.0 dt: 100ms tok/sec: 1000 reducing to
""" + SIDE_LINES.lstrip("\n")
