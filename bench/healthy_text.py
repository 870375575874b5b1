"""What healthy runs print: the frames of training programs, and the noise that such logs carry though nothing is wrong.

Texts are templates of lines, filled by `fill`: `@{name}` or `@{name:spec}` is a value by Python's format, `@{int:1-9}` and
`@{real:0.1-2}` are drawn. `t` is the clock, so `@{t:%H:%M:%S}` prints it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_FIELD = re.compile(r"@\{(\w+)(?::([^}]*))?\}")


def fill(text: str, values: Mapping[str, Any], chance: random.Random) -> list[str]:
    """Lines of a template.

    Raises:
        KeyError: it names a value that there is not.
    """

    def one(match: re.Match[str]) -> str:
        name, spec = match[1], match[2] or ""
        if name in ("int", "real"):
            low, high = spec.split("-")
            return str(chance.randint(int(low), int(high))) if name == "int" else f"{_between(chance, low, high):.2f}"
        if name == "hex":
            return f"{chance.getrandbits(48):012x}"
        return format(values[name], spec)

    return _FIELD.sub(one, text.strip("\n")).split("\n")


def _between(chance: random.Random, low: str, high: str) -> float:
    return chance.uniform(float(low), float(high))


@dataclass(frozen=True, slots=True)
class Frame:
    """How one training program prints a run; texts left empty stand for a general form.

    `curve` is how its loss goes, `bar` that it draws a progress bar, `every` that each rank
    prints its own steps, `epochs` that it counts in epochs.
    """

    name: str
    head: str
    step: str
    save: str
    check: str
    done: str
    early: str = "Early stopping: the validation metric has not improved for 5 evaluations, best @{best:.4f}. Stopping."
    limit: str = "Reached max_run_hours=@{hours} set in the config after step @{step}, stopping as configured"
    resume: str = "Resuming from checkpoint /ckpt/@{run}/step_@{step}"
    curve: str = "lm"
    needs: frozenset[str] = frozenset({"torch"})
    bar: bool = False
    every: bool = False
    epochs: bool = False


@dataclass(frozen=True, slots=True)
class Noise:
    """Lines that alarm a reader and mean nothing. `where`: start, middle, end (of a completed run) or any (not at the end)."""

    name: str
    where: str
    text: str
    needs: str = ""


_HF = frozenset({"torch", "hf"})
_DS = frozenset({"torch", "ds"})
_RAY = frozenset({"torch", "ray"})
_TF = frozenset({"tf"})
_JAX = frozenset({"jax"})
_OTHER = frozenset({"other"})

FRAMES: tuple[Frame, ...] = (
    Frame(
        "megatron",
        """
using world size: @{world}, data-parallel size: @{half}, context-parallel size: 1, tensor-model-parallel size: 2, pipeline-model-parallel size: 1
------------------------ arguments ------------------------
  accumulate_allreduce_grads_in_fp32 .............. True
  check_for_nan_in_loss_and_grad .................. True
  distributed_timeout_minutes ..................... 10
  error_injection_rate ............................ 0
  error_injection_type ............................ transient_error
  exit_duration_in_mins ........................... 1410
  exit_signal_handler ............................. False
  inprocess_restart ............................... False
  inprocess_soft_timeout .......................... 60
  inprocess_hard_timeout .......................... 90
  num_layers ...................................... @{int:12-96}
  rerun_mode ...................................... disabled
  seq_length ...................................... 4096
-------------------- end of arguments ---------------------
> building GPT2BPETokenizer tokenizer ...
 > padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)
> initializing torch distributed ...
> setting random seeds to 1234 ...
building GPT model ...
 > number of parameters on (tensor, pipeline) model parallel rank (0, 0): @{int:300000000-900000000}
> learning rate decay style: cosine
> building train, validation, and test datasets for GPT ...
[after dataloaders are built] datetime: @{t:%Y-%m-%d %H:%M:%S}
done with setup ...
training ...
[before the start of training step] datetime: @{t:%Y-%m-%d %H:%M:%S}
""",
        " [@{t:%Y-%m-%d %H:%M:%S}] iteration @{step:8d}/@{total:8d} | consumed samples: @{samples:12d} | elapsed time per iteration (ms): @{ms:.1f} | throughput per GPU (TFLOP/s/GPU): @{tflops:.1f} | learning rate: @{lr:.6E} | global batch size: @{batch:5d} | lm loss: @{loss:.6E} | loss scale: @{scale:.1f} | grad norm: @{gnorm:.3f} | number of skipped iterations: @{skipped:3d} | number of nan iterations:   0 |",
        """
saving checkpoint at iteration @{step:7d} to /ckpt/@{run} in torch_dist format
  successfully saved checkpoint from iteration @{step:7d} to /ckpt/@{run} [ t 1/2, p 1/1 ]
""",
        """
(min, max) time across ranks (ms):
    evaluate .......................................: (@{real:900-999}, @{real:1000-1200})
----------------------------------------------------------------------------------------------
 validation loss at iteration @{step} | lm loss value: @{vloss:.6E} | lm loss PPL: @{real:8-30} |
----------------------------------------------------------------------------------------------
""",
        """
[after training is done] datetime: @{t:%Y-%m-%d %H:%M:%S}
saving checkpoint at iteration @{step:7d} to /ckpt/@{run} in torch_dist format
  successfully saved checkpoint from iteration @{step:7d} to /ckpt/@{run} [ t 1/2, p 1/1 ]
Evaluating on @{int:100-900} samples
 validation loss at iteration @{step} on test set | lm loss value: @{vloss:.6E} | lm loss PPL: @{real:8-30} |
""",
        limit="""
saving checkpoint at iteration @{step:7d} to /ckpt/@{run} in torch_dist format
  successfully saved checkpoint from iteration @{step:7d} to /ckpt/@{run} [ t 1/2, p 1/1 ]
[exiting program after @{real:1400-1410} minutes] datetime: @{t:%Y-%m-%d %H:%M:%S}
""",
        resume="""
 loading checkpoint from /ckpt/@{run} at iteration @{step}
 checkpoint version 3.0
  successfully loaded checkpoint from /ckpt/@{run} [ t 1/2, p 1/1 ] at iteration @{step}
""",
    ),
    Frame(
        "megatron-deepspeed",
        """
[@{t:%Y-%m-%d %H:%M:%S},101] [INFO] [comm.py:637:init_distributed] cdb=None
[@{t:%Y-%m-%d %H:%M:%S},161] [INFO] [comm.py:668:init_distributed] Initializing TorchBackend in DeepSpeed with backend nccl
DeepSpeed general environment info:
deepspeed info ................... 0.14.2, unknown, unknown
torch cuda version ............... 12.1
--------------------------------------------------
No existing process group found, creating a new group named: _default
estimated model parameters: 6.652735488
""",
        " iteration @{step:8d}/@{total:8d} | consumed samples: @{samples:12d} | consumed tokens: @{int:1000000-9000000} | elapsed time per iteration (ms): @{ms:.1f} | learning rate: @{lr:.3E} | global batch size: @{batch:5d} | lm loss: @{loss:.6E} | loss scale: @{scale:.1f} | grad norm: @{gnorm:.3f} | actual seqlen: @{seqlen:5d} | number of skipped iterations: @{skipped:3d} | number of nan iterations:   0 | samples per second: @{sps:.3f} | tokens per gpu per second (tgs): @{tps:.3f} | TFLOPs: @{tflops:.2f} |",
        """
saving checkpoint at iteration @{step:7d} to /scratch/@{run}
[@{t:%Y-%m-%d %H:%M:%S},310] [INFO] [logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint global_step@{step} is about to be saved!
[@{t:%Y-%m-%d %H:%M:%S},910] [INFO] [torch_checkpoint_engine.py:23:save] [Torch] Saving /scratch/@{run}/global_step@{step}/mp_rank_00_model_states.pt...
[@{t:%Y-%m-%d %H:%M:%S},990] [INFO] [torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step@{step} is ready now!
  successfully saved checkpoint at iteration @{step:7d} to /scratch/@{run}
""",
        " validation loss at iteration @{step} | lm loss value: @{vloss:.6E} | lm loss PPL: @{real:8-30} | ",
        "[after training is done] datetime: @{t:%Y-%m-%d %H:%M:%S} ",
        limit="exiting program after @{real:1100-1190} minutes",
        needs=_DS,
    ),
    Frame(
        "deepspeed",
        """
[@{t:%Y-%m-%d %H:%M:%S},421] [INFO] [runner.py:568:main] cmd = /opt/conda/bin/python -u -m deepspeed.launcher.launch --world_info=eyJsb2NhbGhvc3QiOiBbMF19 --master_addr=@{node} --master_port=29500 train.py
[@{t:%Y-%m-%d %H:%M:%S},991] [INFO] [launch.py:146:main] WORLD INFO DICT: {'@{node}': [0, 1, 2, 3, 4, 5, 6, 7]}
[@{t:%Y-%m-%d %H:%M:%S},992] [INFO] [launch.py:163:main] dist_world_size=@{world}
[@{t:%Y-%m-%d %H:%M:%S},102] [INFO] [config.py:996:print] DeepSpeedEngine configuration:
[@{t:%Y-%m-%d %H:%M:%S},103] [INFO] [config.py:1000:print]   aio_config ................... {'block_size': 1048576, 'queue_depth': 8}
[@{t:%Y-%m-%d %H:%M:%S},103] [INFO] [config.py:1000:print]   disable_allgather ............ False
[@{t:%Y-%m-%d %H:%M:%S},103] [INFO] [config.py:1000:print]   dump_state ................... False
[@{t:%Y-%m-%d %H:%M:%S},103] [INFO] [config.py:1000:print]   load_universal_checkpoint .... False
[@{t:%Y-%m-%d %H:%M:%S},103] [INFO] [config.py:1000:print]   zero_optimization_stage ...... 3
Time to load cpu_adam op: 2.41 seconds
""",
        """
[@{t:%Y-%m-%d %H:%M:%S},718] [INFO] [logging.py:96:log_dist] [Rank 0] step=@{step}, skipped=@{skipped}, lr=[@{lr:.3e}], mom=[(0.9, 0.95)]
[@{t:%Y-%m-%d %H:%M:%S},719] [INFO] [timer.py:260:stop] epoch=0/micro_step=@{step}/global_step=@{step}, RunningAvgSamplesPerSec=@{sps:.3f}, CurrSamplesPerSec=@{sps:.3f}, MemAllocated=@{mem:.2f}GB, MaxMemAllocated=@{real:50-70}GB
steps: @{step} loss: @{loss:.4f} iter time (s): @{secs:.3f} samples/sec: @{sps:.3f}
""",
        "[@{t:%Y-%m-%d %H:%M:%S},213] [INFO] [torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step@{step} is ready now!",
        "step @{step} | eval loss @{vloss:.4f} | eval ppl @{real:5-20}",
        "[@{t:%Y-%m-%d %H:%M:%S},301] [INFO] [launch.py:351:main] Process @{pid} exits successfully.",
        needs=_DS,
    ),
    Frame(
        "hf-trainer",
        """
Loading checkpoint shards: 100%|██████████| 3/3 [00:05<00:00,  1.71s/it]
Some weights of LlamaForSequenceClassification were not initialized from the model checkpoint at meta-llama/Llama-3.1-8B and are newly initialized: ['score.weight']
You should probably TRAIN this model on a down-stream task to be able to use it for predictions and inference.
[INFO|trainer.py:2128] @{t:%Y-%m-%d %H:%M:%S},871 >> ***** Running training *****
[INFO|trainer.py:2129] @{t:%Y-%m-%d %H:%M:%S},871 >>   Num examples = 52,002
[INFO|trainer.py:2130] @{t:%Y-%m-%d %H:%M:%S},871 >>   Num Epochs = 3
[INFO|trainer.py:2131] @{t:%Y-%m-%d %H:%M:%S},871 >>   Instantaneous batch size per device = 4
[INFO|trainer.py:2137] @{t:%Y-%m-%d %H:%M:%S},872 >>   Total optimization steps = @{total}
""",
        "{'loss': @{loss:.4f}, 'grad_norm': @{gnorm}, 'learning_rate': @{lr}, 'epoch': @{epoch:.2f}}",
        """
[INFO|trainer.py:3410] @{t:%Y-%m-%d %H:%M:%S},500 >> Saving model checkpoint to out/@{run}/checkpoint-@{step}
[INFO|tokenization_utils_base.py:2513] @{t:%Y-%m-%d %H:%M:%S},711 >> tokenizer config file saved in out/@{run}/checkpoint-@{step}/tokenizer_config.json
[INFO|trainer.py:3502] @{t:%Y-%m-%d %H:%M:%S},902 >> Deleting older checkpoint [out/@{run}/checkpoint-100] due to args.save_total_limit
""",
        "{'eval_loss': @{vloss:.4f}, 'eval_accuracy': @{acc:.4f}, 'eval_runtime': @{real:10-90}, 'eval_samples_per_second': @{real:10-60}, 'epoch': @{epoch:.2f}}",
        """

Training completed. Do not forget to share your model on huggingface.co/models =)

{'train_runtime': @{real:2000-9000}, 'train_samples_per_second': @{sps:.3f}, 'train_steps_per_second': @{real:0-2}, 'train_loss': @{loss:.6f}, 'epoch': 3.0}
""",
        resume="""
[INFO|trainer.py:2150] @{t:%Y-%m-%d %H:%M:%S},911 >>   Continuing training from checkpoint, will skip to saved global_step
[INFO|trainer.py:2152] @{t:%Y-%m-%d %H:%M:%S},911 >>   Continuing training from global step @{step}
""",
        curve="tune",
        needs=_HF,
        bar=True,
    ),
    Frame(
        "accelerate",
        """
@{t:%m/%d/%Y %H:%M:%S} - INFO - __main__ - Distributed environment: MULTI_GPU  Backend: nccl
Num processes: @{world}
Process index: 0
Local process index: 0
Device: cuda:0

Mixed precision type: bf16

@{t:%m/%d/%Y %H:%M:%S} - INFO - __main__ - ***** Running training *****
@{t:%m/%d/%Y %H:%M:%S} - INFO - __main__ -   Num batches each epoch = 4120
@{t:%m/%d/%Y %H:%M:%S} - INFO - __main__ -   Total optimization steps = @{total}
""",
        "@{t:%m/%d/%Y %H:%M:%S} - INFO - __main__ - step=@{step}, step_loss=@{loss:.4f}, lr=@{lr:.3e}",
        """
@{t:%m/%d/%Y %H:%M:%S} - INFO - accelerate.accelerator - Saving current state to sd-out/checkpoint-@{step}
@{t:%m/%d/%Y %H:%M:%S} - INFO - accelerate.checkpointing - Optimizer state saved in sd-out/checkpoint-@{step}/optimizer.bin
@{t:%m/%d/%Y %H:%M:%S} - INFO - __main__ - Saved state to sd-out/checkpoint-@{step}
""",
        "@{t:%m/%d/%Y %H:%M:%S} - INFO - __main__ - Running validation... Generating 4 images with prompt: a photo of a broken machine.",
        "@{t:%m/%d/%Y %H:%M:%S} - INFO - __main__ - Training finished, pipeline saved to sd-out",
        curve="flat",
        needs=_HF,
        bar=True,
    ),
    Frame(
        "trl-dpo",
        """
Tokenizing train dataset: 100%|██████████| 61135/61135 [03:10<00:00, 320.11 examples/s]
Using auto half precision backend
  0%|          | 0/@{total} [00:00<?, ?it/s]Could not estimate the number of tokens of the input, floating-point operations will not be computed
""",
        "{'loss': @{loss:.4f}, 'grad_norm': @{gnorm}, 'learning_rate': @{lr}, 'rewards/chosen': @{real:0-1}, 'rewards/rejected': -@{real:0-2}, 'rewards/accuracies': @{acc:.4f}, 'rewards/margins': @{real:0-2}, 'logps/rejected': -@{real:200-400}, 'logps/chosen': -@{real:200-400}, 'epoch': @{epoch:.2f}}",
        "Saving model checkpoint to dpo/@{run}/checkpoint-@{step}",
        "{'eval_loss': @{vloss:.4f}, 'eval_runtime': @{real:100-140}, 'eval_rewards/accuracies': @{acc:.4f}, 'eval_rewards/margins': @{real:0-2}, 'epoch': @{epoch:.2f}}",
        "{'train_runtime': @{real:2000-9000}, 'train_samples_per_second': @{sps:.3f}, 'train_steps_per_second': 0.21, 'train_loss': @{loss:.6f}, 'epoch': 1.0}",
        curve="dpo",
        needs=_HF,
        bar=True,
    ),
    Frame(
        "trl-grpo",
        "INFO 03-01 10:00:00 [__init__.py:239] Automatically detected platform cuda.\n***** Running training *****",
        "{'loss': @{near0:.4f}, 'grad_norm': @{gnorm}, 'learning_rate': @{lr}, 'num_tokens': @{samples}.0, 'completions/mean_length': @{real:200-400}, 'completions/clipped_ratio': @{real:0-1}, 'rewards/accuracy_reward/mean': @{acc:.4f}, 'reward': @{acc:.4f}, 'reward_std': @{real:0-1}, 'frac_reward_zero_std': 0.25, 'kl': @{real:0-1}, 'epoch': @{epoch:.2f}}",
        "Saving model checkpoint to grpo/@{run}/checkpoint-@{step}",
        "{'eval_reward': @{acc:.4f}, 'eval_runtime': @{real:100-140}, 'epoch': @{epoch:.2f}}",
        "{'train_runtime': @{real:2000-9000}, 'train_samples_per_second': @{sps:.3f}, 'train_steps_per_second': 0.21, 'train_loss': @{near0:.6f}, 'epoch': 1.0}",
        curve="tune",
        needs=_HF,
        bar=True,
    ),
    Frame(
        "lightning",
        """
GPU available: True (cuda), used: True
TPU available: False, using: 0 TPU cores
You are using a CUDA device ('NVIDIA H100 80GB HBM3') that has Tensor Cores. To properly utilize them, you should set `torch.set_float32_matmul_precision('medium' | 'high')` which will trade-off precision for performance.
Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/@{world}
----------------------------------------------------------------------------------------------------
distributed_backend=nccl
All distributed processes registered. Starting with @{world} processes
----------------------------------------------------------------------------------------------------
LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1,2,3,4,5,6,7]

  | Name  | Type             | Params
-------------------------------------------
0 | model | GPTNeoXForCausal | @{int:100-900} M
-------------------------------------------
Sanity Checking DataLoader 0: 100%|██████████| 2/2 [00:01<00:00,  1.80it/s]
""",
        "Epoch @{whole}:  @{percent:2d}%|██▌       | @{step}/@{total} [@{elapsed}<@{left}, @{rate:.2f}it/s, v_num=3, train/loss_step=@{loss:.3f}, train/grad_norm=@{gnorm:.3f}, lr=@{lr:.2e}]",
        "Epoch @{whole}, global step @{step}: 'val_loss' reached @{vloss:.5f} (best @{best:.5f}), saving model to 'logs/@{run}/epoch=@{whole}-step=@{step}.ckpt' as top 2",
        "Validation DataLoader 0: 100%|██████████| 40/40 [00:12<00:00,  3.11it/s]",
        "`Trainer.fit` stopped: `max_epochs=@{epochs}` reached.",
        early="Monitored metric val_loss did not improve in the last 3 records. Best score: @{best:.3f}. Signaling Trainer to stop.",
        resume="Restoring states from the checkpoint path at logs/@{run}/last.ckpt\nRestored all states from the checkpoint at logs/@{run}/last.ckpt",
        curve="tune",
    ),
    Frame(
        "nemo",
        """
[NeMo W @{t:%Y-%m-%d %H:%M:%S} nemo_logging:349] /usr/local/lib/python3.10/dist-packages/lightning_fabric/plugins/environments/slurm.py:168: The `srun` command is available on your system but is not used.
[NeMo I @{t:%Y-%m-%d %H:%M:%S} megatron_gpt_pretraining:41] exp_manager: {'resume_if_exists': True, 'create_early_stopping_callback': False, 'ema': {'enable': False}, 'max_time_per_run': None}
[NeMo I @{t:%Y-%m-%d %H:%M:%S} exp_manager:394] Experiments will be logged at /results/@{run}
[NeMo W @{t:%Y-%m-%d %H:%M:%S} exp_manager:708] No version folders would be created under the log folder as 'resume_if_exists' is enabled.
[NeMo W @{t:%Y-%m-%d %H:%M:%S} exp_manager:726] There were no checkpoints found in checkpoint_dir or no checkpoint folder at checkpoint_dir :/results/checkpoints. Training from scratch.
[NeMo I @{t:%Y-%m-%d %H:%M:%S} megatron_init:241] Rank 0 has data parallel group : [0, 2, 4, 6]
""",
        "Training epoch @{whole}, iteration @{step}/@{total} | lr: @{lr:.4g} | consumed_samples: @{samples} | global_batch_size: @{batch} | global_step: @{step} | reduced_train_loss: @{loss:.4f} | train_step_timing in s: @{secs:.3f}",
        """
[NeMo I @{t:%Y-%m-%d %H:%M:%S} model_checkpoint:497] Scheduled async checkpoint save for /results/@{run}/checkpoints/model_name=0--val_loss=@{vloss:.2f}-step=@{step}-last.ckpt
[NeMo I @{t:%Y-%m-%d %H:%M:%S} model_checkpoint:522] Async checkpoint save for step @{step} (/results/@{run}/checkpoints/model_name=0-last.ckpt) finalized successfully.
""",
        "Validation: iteration 50/50 | val_loss: @{vloss:.4f}",
        "`Trainer.fit` stopped: `max_steps=@{total}` reached.",
    ),
    Frame(
        "torchtitan",
        """
[titan] @{t:%Y-%m-%d %H:%M:%S},101 - root - INFO - Starting job: Llama 3 8B training
[titan] @{t:%Y-%m-%d %H:%M:%S},309 - root - WARNING - ENV[TORCH_NCCL_ASYNC_ERROR_HANDLING] = 1 will be overridden to 3 based on job config
[titan] @{t:%Y-%m-%d %H:%M:%S},311 - root - INFO - Building 1-D device mesh with ['dp_shard'], [@{world}]
[titan] @{t:%Y-%m-%d %H:%M:%S},441 - root - INFO - CUDA capacity: NVIDIA H100 80GB HBM3 with 79.10GiB memory
[titan] @{t:%Y-%m-%d %H:%M:%S},601 - root - INFO - Applied FSDP to the model
[titan] @{t:%Y-%m-%d %H:%M:%S},801 - root - INFO - Training starts at step 1, with local batch size 1, global batch size @{batch}, sequence length 8192, total steps @{total} (warmup 200)
[titan] @{t:%Y-%m-%d %H:%M:%S},901 - root - INFO - Set TORCH_NCCL timeout to 0:01:40 after the first step
""",
        "[titan] @{t:%Y-%m-%d %H:%M:%S},553 - root - INFO - step: @{step:2d}  loss: @{loss:7.4f}  grad_norm: @{gnorm:.4f}  memory: @{mem:5.2f}GiB(@{real:60-80}%)  tps: @{tps:,.0f}  tflops: @{tflops:.2f}  mfu: @{real:38-46}%",
        """
[titan] @{t:%Y-%m-%d %H:%M:%S},610 - root - INFO - Saving the checkpoint (or staging if async is enabled).
[titan] @{t:%Y-%m-%d %H:%M:%S},980 - root - INFO - Finished saving the checkpoint (or staging if async is enabled)in @{real:1-9} seconds.
""",
        "[titan] @{t:%Y-%m-%d %H:%M:%S},553 - root - INFO - validate step: @{step:2d}  loss: @{vloss:7.4f}  memory: @{mem:5.2f}GiB",
        """
[titan] @{t:%Y-%m-%d %H:%M:%S},710 - root - INFO - Sleeping 2 seconds for other ranks to complete
[titan] @{t:%Y-%m-%d %H:%M:%S},980 - root - INFO - Training completed
[titan] @{t:%Y-%m-%d %H:%M:%S},999 - root - INFO - Process group destroyed
""",
        resume="[titan] @{t:%Y-%m-%d %H:%M:%S},710 - root - INFO - Loading the checkpoint from outputs/checkpoint/step-@{step}.\n[titan] @{t:%Y-%m-%d %H:%M:%S},980 - root - INFO - Finished loading the checkpoint in 12.90 seconds.",
        every=True,
    ),
    Frame(
        "fairseq",
        """
@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq.distributed.utils | distributed init (rank 0): tcp://@{node}:@{int:10000-19999}
@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq_cli.train | {'_name': None, 'common': {'log_interval': 100, 'fp16': True, 'fp16_init_scale': 128, 'min_loss_scale': 0.0001, 'on_cpu_convert_precision': False, 'empty_cache_freq': 0}, 'dataset': {'skip_invalid_size_inputs_valid_test': True, 'ignore_unused_valid_subsets': False}, 'optimization': {'stop_time_hours': 0.0, 'skip_remainder_batch': False}}
@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq_cli.train | num. shared model params: 210,788,352 (num. trained: 210,788,352)
@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq.trainer | No existing checkpoint found checkpoints/@{run}/checkpoint_last.pt
@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq.trainer | begin training epoch 1
@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq.trainer | NOTE: your device does NOT support faster training with --fp16 or --amp, please switch to FP32 which is likely to be faster
""",
        "@{t:%Y-%m-%d %H:%M:%S} | INFO | train_inner | epoch @{one:03d}:  @{step:6d} / @{total} loss=@{loss:.3f}, nll_loss=@{loss:.3f}, ppl=@{real:5-30}, wps=@{tps:.1f}, ups=@{rate:.2f}, wpb=29330.1, bsz=@{batch}, num_updates=@{step}, lr=@{lr:.6g}, gnorm=@{gnorm:.3f}, loss_scale=@{small:.0f}, train_wall=@{int:40-60}, gb_free=9.4, wall=@{wall}",
        """
@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq.checkpoint_utils | Preparing to save checkpoint for epoch @{one} @ @{step} updates
@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq.trainer | Saving checkpoint to /ckpt/@{run}/checkpoint_@{one}_@{step}.pt
@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq.trainer | Finished saving checkpoint to /ckpt/@{run}/checkpoint_@{one}_@{step}.pt
""",
        "@{t:%Y-%m-%d %H:%M:%S} | INFO | valid | epoch @{one:03d} | valid on 'valid' subset | loss @{vloss:.3f} | nll_loss @{vloss:.3f} | ppl @{real:5-30} | wps @{tps:.1f} | wpb 2420 | bsz 90 | num_updates @{step} | best_loss @{best:.3f}",
        "@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq_cli.train | done training in @{real:10000-90000} seconds",
        early="@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq_cli.train | early stop since valid performance hasn't improved for last 10 runs\n@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq_cli.train | done training in 41021.3 seconds",
        limit="@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq_cli.train | Stopping training due to cumulative_training_time: 11.9 > stop_time_hours: 11.9 hour(s)\n@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq_cli.train | done training in 42840.0 seconds",
        resume="@{t:%Y-%m-%d %H:%M:%S} | INFO | fairseq.trainer | Loaded checkpoint checkpoints/@{run}/checkpoint_last.pt (epoch 2 @ @{step} updates)",
    ),
    Frame(
        "mmengine",
        """
@{t:%m/%d %H:%M:%S} - mmengine - INFO -
------------------------------------------------------------
System environment:
    sys.platform: linux
    CUDA available: True
    GPU 0,1,2,3: NVIDIA A100-SXM4-80GB
    GCC: gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
------------------------------------------------------------
@{t:%m/%d %H:%M:%S} - mmengine - INFO - Distributed training is not used, all SyncBatchNorm (SyncBN) layers in the model will be automatically reverted to BatchNormXd layers if they are used.
@{t:%m/%d %H:%M:%S} - mmengine - WARNING - "FileClient" will be deprecated in future. Please use io functions in https://mmengine.readthedocs.io/en/latest/api/fileio.html#file-io
@{t:%m/%d %H:%M:%S} - mmengine - INFO - Checkpoints will be saved to /work_dirs/@{run}.
""",
        "@{t:%m/%d %H:%M:%S} - mmengine - INFO - Epoch(train)  [@{one}][@{step:5d}/@{total}]  lr: @{lr:.4e}  eta: @{left}  time: @{secs:.4f}  data_time: @{real:0-1}  memory: @{int:9000-19000}  grad_norm: @{gnorm:.4f}  loss: @{loss:.4f}  loss_cls: @{loss:.4f}  loss_bbox: @{real:0-1}",
        "@{t:%m/%d %H:%M:%S} - mmengine - INFO - Saving checkpoint at @{one} epochs",
        "@{t:%m/%d %H:%M:%S} - mmengine - INFO - Epoch(val) [@{one}][625/625]    coco/bbox_mAP: @{acc:.4f}  coco/bbox_mAP_s: -1.0000  data_time: 0.0110  time: 0.0912",
        "@{t:%m/%d %H:%M:%S} - mmengine - INFO - The best checkpoint with 0.4120 coco/bbox_mAP at 11 epoch is saved to best_coco_bbox_mAP_epoch_11.pth.",
        early="@{t:%m/%d %H:%M:%S} - mmengine - INFO - Early stopping triggered: the monitored metric did not improve in the last 5 validations, best score 0.412",
        resume="@{t:%m/%d %H:%M:%S} - mmengine - INFO - Load checkpoint from /work_dirs/@{run}/epoch_3.pth\n@{t:%m/%d %H:%M:%S} - mmengine - INFO - resumed epoch: 3, iter: @{step}",
        curve="vision",
    ),
    Frame(
        "keras",
        'Num GPUs Available:  4\nModel: "transformer"\nTotal params: 85,054,464 (324.46 MB)',
        "Epoch @{step}/@{total}\n1563/1563 ━━━━━━━━━━━━━━━━━━━━ @{int:10-99}s @{ms:.0f}ms/step - accuracy: @{acc:.4f} - loss: @{loss:.4f} - val_accuracy: @{acc:.4f} - val_loss: @{vloss:.4f} - learning_rate: @{lr:.4e}",
        "Epoch @{step}: val_loss improved from @{real:2-3} to @{vloss:.5f}, saving model to ckpt/best.keras",
        "Epoch @{step}: val_loss did not improve from @{best:.5f}",
        "Training finished. Test accuracy: @{acc:.4f}",
        early="Epoch @{step}: early stopping\nRestoring model weights from the end of the best epoch: @{int:2-9}.",
        curve="vision",
        needs=_TF,
        epochs=True,
    ),
    Frame(
        "tf-model-garden",
        """
I@{t:%m%d %H:%M:%S}.101000 140101 train_utils.py:374] Final experiment parameters: {'runtime': {'distribution_strategy': 'mirrored', 'mixed_precision_dtype': 'bfloat16'}, 'trainer': {'recovery_max_trials': 0, 'loss_upper_bound': 1000000.0, 'recovery_begin_steps': 0}}
I@{t:%m%d %H:%M:%S}.201000 140101 train_lib.py:250] Starting experiment
""",
        "I@{t:%m%d %H:%M:%S}.301000 140101 controller.py:310] train | step: @{step:6d} | steps/sec: @{rate:6.1f} | output: {'training_loss': @{loss:.5f}, 'learning_rate': @{lr:.8f}, 'accuracy': @{acc:.4f}}",
        "I@{t:%m%d %H:%M:%S}.401000 140101 controller.py:512] saved checkpoint to gs://@{run}/ckpt-@{step}.",
        "I@{t:%m%d %H:%M:%S}.501000 140101 controller.py:290]  eval | step: @{step:6d} | eval time: @{real:10-40} sec | output: {'accuracy': @{acc:.4f}, 'validation_loss': @{vloss:.4f}}",
        "I@{t:%m%d %H:%M:%S}.601000 140101 train_lib.py:330] Finished experiment at step @{step}",
        curve="vision",
        needs=_TF,
    ),
    Frame(
        "flax",
        """
I@{t:%m%d %H:%M:%S}.101901 140245 xla_bridge.py:889] Unable to initialize backend 'rocm': NOT_FOUND: Could not find registered platform with name: "rocm". Available platform names are: CUDA
I@{t:%m%d %H:%M:%S}.111901 140245 xla_bridge.py:889] Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: libtpu.so: cannot open shared object file: No such file or directory
I@{t:%m%d %H:%M:%S}.301901 140245 train.py:401] JAX process: 0 / @{nodes}
I@{t:%m%d %H:%M:%S}.401901 140245 train.py:510] Initial compilation, this might take some minutes...
""",
        "I@{t:%m%d %H:%M:%S}.501901 140245 logging_writer.py:48] [@{step}] learning_rate=@{lr:.8f}, loss=@{loss:.6f}, steps_per_second=@{rate:.4f}, train_accuracy=@{acc:.5f}",
        "I@{t:%m%d %H:%M:%S}.601901 140245 checkpoints.py:1062] Saved checkpoint at /ckpt/@{run}/checkpoint_@{step}",
        "I@{t:%m%d %H:%M:%S}.701901 140245 logging_writer.py:48] [@{step}] eval_accuracy=@{acc:.5f}, eval_loss=@{vloss:.5f}",
        "I@{t:%m%d %H:%M:%S}.801901 140245 train.py:690] Finished training at step @{step}.",
        resume="I@{t:%m%d %H:%M:%S}.201901 140245 checkpoints.py:300] Restoring legacy Flax checkpoint from /ckpt/@{run}/checkpoint_@{step}",
        needs=_JAX,
    ),
    Frame(
        "maxtext",
        """
Config param abort_on_inf_loss: True
Config param abort_on_nan_loss: True
Config param checkpoint_storage_target_data_file_size_bytes: 2147483648
Config param collect_stack_trace: False
Config param enable_goodput_recording: False
Config param jax_distributed_initialization_timeout: 300
Config param max_target_length: 8192
Config param stack_trace_interval_seconds: 600
System Information: Jax Version: 0.4.35
num_devices: @{world}, shape_by_tuple (@{world}, 1)
Memstats: After params initialized:
\tUsing (GB) 12.41 / 71.10 (17.454290%) on cuda:0
""",
        "completed step: @{step}, seconds: @{secs:.3f}, TFLOP/s/device: @{tflops:.3f}, Tokens/s/device: @{tps:.3f}, total_weights: 524288, loss: @{loss:.3f}",
        "saved a checkpoint at step @{step}",
        "eval metrics after step: @{step}, loss=@{vloss:.3f}, total_weights=@{int:90000-99999}.0",
        "Training completed at step @{step}",
        early="Early stop and exit loop: reached target_eval_loss=@{best:.3f}, eval_loss=@{best:.3f}",
        resume="restoring from this run's directory latest step @{step}\nrestored checkpoint at step @{step}",
        needs=_JAX,
    ),
    Frame(
        "paddle",
        """
[@{t:%Y-%m-%d %H:%M:%S},410] [ WARNING] - evaluation_strategy reset to IntervalStrategy.STEPS for do_eval is True. you can also set evaluation_strategy='epoch'.
[@{t:%Y-%m-%d %H:%M:%S},411] [    INFO] - The global seed is set to 42, local seed is set to 43 and random seed is set to 42.
[@{t:%Y-%m-%d %H:%M:%S},420] [    INFO] - unified_checkpoint            : True
[@{t:%Y-%m-%d %H:%M:%S},421] [    INFO] - skip_memory_metrics           : True
[@{t:%Y-%m-%d %H:%M:%S},950] [    INFO] - ***** Running training *****
W@{t:%m%d %H:%M:%S}.110101 41101 gpu_resources.cc:119] Please NOTE: device: 0, GPU Compute Capability: 8.0, Driver API Version: 12.2, Runtime API Version: 11.8
""",
        "[@{t:%Y-%m-%d %H:%M:%S},317] [    INFO] - loss: @{loss:.8f}, learning_rate: @{lr:.3e}, global_step: @{step}, current_memory_allocated: @{mem:.4f}, max_memory_reserved: 70.1, interval_runtime: @{secs:.4f}, interval_samples_per_second: @{sps:.4f}, interval_tokens_per_second_per_device: @{tps:.2f}, interval_steps_per_second: @{rate:.4f}, progress_or_epoch: @{epoch:.4f}",
        "[@{t:%Y-%m-%d %H:%M:%S},610] [    INFO] - Saving model checkpoint to ./checkpoints/@{run}/checkpoint-@{step}",
        "[@{t:%Y-%m-%d %H:%M:%S},770] [    INFO] - eval_loss: @{vloss:.6f}, eval_ppl: @{real:4-9}, eval_runtime: @{real:20-40}, progress_or_epoch: @{epoch:.4f}",
        "[@{t:%Y-%m-%d %H:%M:%S},801] [    INFO] - \nTraining completed. \n",
        needs=_OTHER,
    ),
    Frame(
        "mindspore",
        """
@{t:%Y-%m-%d %H:%M:%S},101 - mindformers[mindformers/core/context/build_context.py:120] - INFO - Predict context config, jit_level: O1, infer_boost: on
[WARNING] ME(@{pid}:281473,MainProcess):@{t:%Y-%m-%d-%H:%M:%S}.310.101 [mindspore/context.py:1335] For 'context.set_context', the parameter 'ascend_config' will be deprecated and removed in a future version.
[WARNING] DISTRIBUTED(@{pid},ffff,python):@{t:%Y-%m-%d-%H:%M:%S}.410.201 [mindspore/ccsrc/distributed/cluster/topology/compute_graph_node.cc:173] Register] Failed to connect to the meta server node url: 10.2.0.4:8118
[WARNING] DISTRIBUTED(@{pid},ffff,python):@{t:%Y-%m-%d-%H:%M:%S}.510.203 [mindspore/ccsrc/distributed/cluster/topology/compute_graph_node.cc:363] ReconnectWithTimeoutWindow] Failed to register and try to reconnect to the meta server.
[WARNING] DISTRIBUTED(@{pid},ffff,python):@{t:%Y-%m-%d-%H:%M:%S}.910.201 [mindspore/ccsrc/distributed/cluster/cluster_context.cc:330] BuildCluster] Topology build timestamp. All nodes are online: succeed
""",
        "@{t:%Y-%m-%d %H:%M:%S},902 - mindformers[mindformers/core/callback/callback.py:314] - INFO - { Epoch:[  @{one}/  @{epochs}], step:[@{step:5d}/@{total:5d}], loss: @{loss:5.3f}, per_step_time: @{ms:.0f}ms, lr: @{lr}, overflow cond: False, loss_scale: @{small:.1f}, global_norm: [@{gnorm:.5f}], train_throughput_per_npu: @{tflops:.3f}T }",
        "@{t:%Y-%m-%d %H:%M:%S},952 - mindformers[mindformers/core/callback/callback.py:560] - INFO - ......Saving ckpt......",
        "@{t:%Y-%m-%d %H:%M:%S},992 - mindformers[mindformers/core/callback/callback.py:714] - INFO - Eval result: epoch @{one}, perplexity @{real:4-9}, loss @{vloss:.4f}",
        "@{t:%Y-%m-%d %H:%M:%S},999 - mindformers[mindformers/trainer/base_trainer.py:1101] - INFO - .........Training Over!.............",
        needs=_OTHER,
    ),
    Frame(
        "colossalai",
        """
[extension] Compiling the JIT cpu_adam_x86 kernel during runtime now
[extension] Time taken to compile cpu_adam_x86 op: 0.1203 seconds
[@{t:%m/%d/%y %H:%M:%S}] INFO     colossalai - colossalai - INFO: /opt/conda/lib/python3.10/site-packages/colossalai/initialize.py:67 launch
                    INFO     colossalai - colossalai - INFO: Distributed environment is initialized, world size: @{world}
Max CUDA memory after data loader: 0.00 MB
Model params: 6.28 B
""",
        "Epoch @{whole}: @{percent:3d}%|███▎      | @{step}/@{total} [@{elapsed}<@{left}, @{secs:.2f}s/it, Loss=@{loss:.4f}]",
        "Start saving model checkpoint with running states\nSaved checkpoint at epoch @{whole} step @{step} at folder ckpt/@{run}-epoch@{whole}_step@{step}",
        "Eval epoch @{whole}: mean loss @{vloss:.4f}",
        "Start saving final model checkpoint\nSaved final model checkpoint at epoch 1 at folder ckpt/@{run}\nMax CUDA memory usage: 51241.14 MB",
        curve="tune",
    ),
    Frame(
        "ms-swift",
        """
run sh: `/opt/conda/bin/python -m torch.distributed.run --nproc_per_node 8 /opt/swift/cli/sft.py --model Qwen/Qwen2.5-7B-Instruct --truncation_strategy delete`
[INFO:swift] Successfully registered `/opt/swift/llm/dataset/data/dataset_info.json`.
[WARNING:swift] max_model_len(32768) is greater than the one of the model, ignored
[INFO:swift] Setting args.lazy_tokenize: False
[INFO:swift] Start time of running main: @{t:%Y-%m-%d %H:%M:%S}.100000
[INFO:swift] The logging file will be saved in: /output/@{run}/logging.jsonl
""",
        "{'loss': @{loss:.8f}, 'token_acc': @{acc:.6f}, 'grad_norm': @{gnorm}, 'learning_rate': @{lr}, 'memory(GiB)': @{mem:.2f}, 'train_speed(iter/s)': @{rate:.6f}, 'epoch': @{epoch:.2f}, 'global_step/max_steps': '@{step}/@{total}', 'percentage': '@{percent}%', 'elapsed_time': '@{elapsed}', 'remaining_time': '@{left}'}",
        "[INFO:swift] Saving model checkpoint to /output/@{run}/checkpoint-@{step}",
        "{'eval_loss': @{vloss:.8f}, 'eval_token_acc': @{acc:.6f}, 'eval_runtime': @{real:4-19}, 'epoch': @{epoch:.2f}, 'global_step/max_steps': '@{step}/@{total}'}",
        "[INFO:swift] last_model_checkpoint: /output/@{run}/checkpoint-@{step}\n[INFO:swift] End time of running main: @{t:%Y-%m-%d %H:%M:%S}.100000",
        curve="tune",
        needs=_HF,
        bar=True,
    ),
    Frame(
        "llama-factory",
        """
[INFO|@{t:%Y-%m-%d %H:%M:%S}] llamafactory.hparams.parser:143 >> Process rank: 0, world size: @{world}, device: cuda:0, distributed training: True, compute dtype: torch.bfloat16
[INFO|@{t:%Y-%m-%d %H:%M:%S}] llamafactory.data.loader:143 >> Loading dataset alpaca_zh_demo.json...
Running tokenizer on dataset (num_proc=16): 100%|██████████| 1000/1000 [00:02<00:00, 410.20 examples/s]
[INFO|@{t:%Y-%m-%d %H:%M:%S}] llamafactory.model.model_utils.checkpointing:143 >> Gradient checkpointing enabled.
[WARNING|@{t:%Y-%m-%d %H:%M:%S}] logging.py:328 >> `use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.
""",
        "[INFO|@{t:%Y-%m-%d %H:%M:%S}] llamafactory.train.callbacks:143 >> {'loss': @{loss:.4f}, 'learning_rate': @{lr:.4e}, 'epoch': @{epoch:.2f}, 'throughput': @{tps:.2f}}",
        "[INFO|@{t:%Y-%m-%d %H:%M:%S}] trainer.py:3993 >> Saving model checkpoint to saves/@{run}/checkpoint-@{step}",
        "{'eval_loss': @{vloss:.4f}, 'eval_runtime': @{real:4-19}, 'eval_samples_per_second': 11.2, 'epoch': @{epoch:.2f}}",
        """
***** train metrics *****
  epoch                    =        3.0
  total_flos               =  8122311GF
  train_loss               =     @{loss:.4f}
  train_runtime            = 1:02:31.00
Figure saved at: saves/@{run}/training_loss.png
[WARNING|@{t:%Y-%m-%d %H:%M:%S}] llamafactory.extras.ploting:148 >> No metric eval_loss to plot.
""",
        curve="tune",
        needs=_HF,
        bar=True,
    ),
    Frame(
        "verl",
        """
@{t:%Y-%m-%d %H:%M:%S},310\tINFO worker.py:1841 -- Started a local Ray instance. View the dashboard at 127.0.0.1:8265
(TaskRunner pid=@{pid}) {'actor_rollout_ref': {'actor': {'clip_ratio': 0.2, 'ppo_max_token_len_per_gpu': 16384}, 'rollout': {'gpu_memory_utilization': 0.6, 'free_cache_engine': True}}, 'trainer': {'critic_warmup': 0, 'resume_mode': 'auto'}}
(TaskRunner pid=@{pid}) Total steps: @{total}, num_warmup_steps: 0
(TaskRunner pid=@{pid}) Checkpoint tracker file does not exist: /ckpt/@{run}/latest_checkpointed_iteration.txt
(TaskRunner pid=@{pid}) Training from scratch
(WorkerDict pid=@{int:1000-9000}) Flash Attention 2.0 only supports torch.float16 and torch.bfloat16 dtypes, but the current dype in Qwen2ForCausalLM is torch.float32.
""",
        "(TaskRunner pid=@{pid}) step:@{step} - global_seqlen/mean:@{real:9000-19000} - actor/entropy_loss:@{real:0-1} - actor/pg_loss:@{near0:.3f} - actor/pg_clipfrac:0.001 - actor/ppo_kl:0.000 - actor/grad_norm:@{gnorm:.3f} - actor/lr:0.000 - critic/score/mean:@{acc:.3f} - critic/rewards/mean:@{acc:.3f} - response_length/clip_ratio:0.010 - timing_s/gen:@{real:20-30} - timing_s/step:@{secs:.3f} - perf/throughput:@{tps:.3f}",
        "(WorkerDict pid=@{pid}) [rank-0]: Saving model to /ckpt/@{run}/global_step_@{step}/actor/model_world_size_8_rank_0.pt",
        "(TaskRunner pid=@{pid}) step:@{step} - val-core/openai/gsm8k/acc/mean@1:@{acc:.4f} - val-aux/num_turns/min:2",
        "(TaskRunner pid=@{pid}) Final validation metrics: {'val-core/openai/gsm8k/acc/mean@1': @{acc:.4f}}",
        curve="tune",
        needs=_RAY,
    ),
    Frame(
        "openrlhf",
        "(PPORayActorGroup pid=@{pid}) [@{t:%Y-%m-%d %H:%M:%S},101] [INFO] [comm.py:658:init_distributed] cdb=None\n(LLMRayActor pid=@{int:100-900}) WARNING 03-01 10:10:10 config.py:506] Casting torch.bfloat16 to torch.float16.",
        "(ActorModelRayActor pid=@{pid}) Train epoch [1/1]:  @{percent:2d}%|██▊       | @{step}/@{total} [@{elapsed}<@{left},  @{secs:.2f}s/it, pg=@{near0:.4f}, ret=@{acc:.3f}, glen=@{int:200-400}, tlen=600, kl=@{real:0-1}, act_lr=@{lr:.2e}]",
        "(ActorModelRayActor pid=@{pid}) [@{t:%Y-%m-%d %H:%M:%S},201] [INFO] [torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step@{step} is ready now!",
        "(ActorModelRayActor pid=@{pid}) ✨ Global step @{step}: {'reward': @{acc:.4f}, 'return': @{acc:.4f}, 'policy_loss': @{near0:.5f}, 'critic_loss': @{real:0-1}, 'kl': 0.01, 'response_length': @{int:200-500}.0}",
        "(ActorModelRayActor pid=@{pid}) Training finished, model saved to /ckpt/@{run}",
        curve="tune",
        needs=frozenset({"torch", "ray", "ds"}),
    ),
    Frame(
        "nanogpt",
        """
Overriding config with config/train_gpt2.py:
always_save_checkpoint = True
tokens per iteration will be: 491,520
Initializing a new model from scratch
number of parameters: 123.59M
num decayed parameter tensors: 50, with 124,354,560 parameters
using fused AdamW: True
compiling the model... (takes a ~minute)
""",
        "iter @{step}: loss @{loss:.4f}, time @{ms:.2f}ms, mfu @{real:35-45}%",
        "saving checkpoint to out-@{run}",
        "step @{step}: train loss @{loss:.4f}, val loss @{vloss:.4f}",
        "iter @{step}: loss @{loss:.4f}, time @{ms:.2f}ms, mfu 41.10%",
        resume="Resuming training from out-@{run}",
    ),
    Frame(
        "detectron2",
        """
[@{t:%m/%d %H:%M:%S} detectron2]: Rank of current process: 0. World size: @{world}
[@{t:%m/%d %H:%M:%S} d2.data.build]: Removed 1021 images with no usable annotations. 117266 images left.
WARNING [@{t:%m/%d %H:%M:%S} fvcore.common.checkpoint]: Some model parameters or buffers are not found in the checkpoint:
roi_heads.box_predictor.bbox_pred.{bias, weight}
WARNING [@{t:%m/%d %H:%M:%S} fvcore.common.checkpoint]: The checkpoint state_dict contains keys that are not used by the model:
  fc1000.{bias, weight}
[@{t:%m/%d %H:%M:%S} d2.engine.train_loop]: Starting training from iteration 0
""",
        "[@{t:%m/%d %H:%M:%S} d2.utils.events]:  eta: @{left}  iter: @{step}  total_loss: @{loss:.3f}  loss_cls: @{real:0-1}  loss_box_reg: @{real:0-1}  loss_mask: @{real:0-1}  loss_rpn_cls: 0.04    time: @{secs:.4f}  last_time: @{secs:.4f}  data_time: 0.0081  last_data_time: 0.0070   lr: @{lr:.5g}  max_mem: @{int:5000-9000}M",
        "[@{t:%m/%d %H:%M:%S} fvcore.common.checkpoint]: Saving checkpoint to ./output/@{run}/model_@{step:07d}.pth",
        "[@{t:%m/%d %H:%M:%S} d2.evaluation.testing]: copypaste: Task: bbox\n[@{t:%m/%d %H:%M:%S} d2.evaluation.testing]: copypaste: AP,AP50,AP75,APs,APm,APl\n[@{t:%m/%d %H:%M:%S} d2.evaluation.testing]: copypaste: 37.1012,58.1023,40.1201,nan,41.1101,49.0012",
        "[@{t:%m/%d %H:%M:%S} d2.engine.hooks]: Overall training speed: @{step} iterations in @{elapsed} (@{secs:.4f} s / it)\n[@{t:%m/%d %H:%M:%S} d2.engine.hooks]: Total training time: @{elapsed} (0:01:10 on hooks)",
        curve="vision",
    ),
    Frame(
        "axolotl",
        """
[@{t:%Y-%m-%d %H:%M:%S},108] [INFO] [axolotl.utils.data.sft.load_tokenized_prepared_datasets:199] [PID:@{pid}] [RANK:0] Unable to find prepared dataset in last_run_prepared/8b1c
[@{t:%Y-%m-%d %H:%M:%S},109] [WARNING] [axolotl.utils.samplers.multipack.calc_min_len:260] [PID:@{pid}] [RANK:0] packing_efficiency_estimate: 0.97 total_num_tokens per device: 8120120
[@{t:%Y-%m-%d %H:%M:%S},510] [INFO] [axolotl.train.train:173] [PID:@{pid}] [RANK:0] Starting trainer...
""",
        "{'loss': @{loss:.4f}, 'grad_norm': @{gnorm}, 'learning_rate': @{lr}, 'memory/max_mem_active(gib)': @{mem:.2f}, 'epoch': @{epoch:.2f}}",
        "[@{t:%Y-%m-%d %H:%M:%S},700] [INFO] [axolotl.core.trainers.base.save_model:421] [PID:@{pid}] [RANK:0] Saving model checkpoint to ./outputs/@{run}/checkpoint-@{step}",
        "{'eval_loss': @{vloss:.4f}, 'eval_runtime': @{real:4-19}, 'epoch': @{epoch:.2f}}",
        "{'train_runtime': @{real:2000-9000}, 'train_samples_per_second': @{sps:.3f}, 'train_steps_per_second': 0.21, 'train_loss': @{loss:.6f}, 'epoch': 1.0}\n[@{t:%Y-%m-%d %H:%M:%S},800] [INFO] [axolotl.train.train:210] [PID:@{pid}] [RANK:0] Training completed! Saving trained model to ./outputs/@{run}.",
        curve="tune",
        needs=_HF,
        bar=True,
    ),
    Frame(
        "ray-train",
        """
(TrainTrainable pid=@{pid}) Backend: torch, num_workers=@{world}
(TorchTrainer pid=@{pid}) Started distributed worker processes:
(TorchTrainer pid=@{pid}) - (node_id=@{hex}, ip=10.2.0.4, pid=@{int:1000-9999}) world_rank=0, local_rank=0, node_rank=0
(RayTrainWorker pid=@{pid}) Setting up process group for: env:// [rank=0, world_size=@{world}]
(autoscaler +12s) Tip: use `ray status` to view detailed cluster status. To disable these messages, set RAY_SCHEDULER_EVENTS=0.
""",
        "(RayTrainWorker pid=@{pid}) {'loss': @{loss:.4f}, 'lr': @{lr:.3e}, 'step': @{step}, 'epoch': @{epoch:.2f}}",
        "(RayTrainWorker pid=@{pid}) Checkpoint successfully created at: Checkpoint(filesystem=local, path=/mnt/ray/@{run}/checkpoint_000@{int:100-900})",
        "(RayTrainWorker pid=@{pid}) {'eval_loss': @{vloss:.4f}, 'step': @{step}}",
        "Training finished iteration 10 at @{t:%Y-%m-%d %H:%M:%S}. Total running time: 3hr 12min 4s\nTraining completed after 10 iterations at @{t:%Y-%m-%d %H:%M:%S}. Total running time: 3hr 12min 5s",
        curve="tune",
        needs=_RAY,
    ),
    Frame(
        "composer",
        """
@{t:%Y-%m-%d %H:%M:%S},100: rank0[@{pid}][MainThread]: INFO: llmfoundry.command_utils.train: Building trainer...
@{t:%Y-%m-%d %H:%M:%S},200: rank0[@{pid}][MainThread]: DEBUG: composer.core.engine: Registering atexit handler that will only close callbacks if there was an exception.
@{t:%Y-%m-%d %H:%M:%S},300: rank0[@{pid}][MainThread]: INFO: composer.trainer.trainer: Setting seed to 17
train          Epoch   0:    0%|                         | 0/@{total} [00:00<?, ?ba/s]
""",
        """
[batch=@{step}/@{total}]:
\t Train time/batch: @{step}
\t Train memory/peak_reserved_mem: @{mem:.4f}
\t Train loss/train/total: @{loss:.4f}
\t Train metrics/train/LanguageCrossEntropy: @{loss:.4f}
\t Train throughput/device/tokens_per_sec: @{tps:.4f}
\t Train lr-DecoupledAdamW/group0: @{lr:.6f}
\t Train l2_norm/grad/global: @{gnorm:.4f}
""",
        "@{t:%Y-%m-%d %H:%M:%S},500: rank0[@{pid}][MainThread]: INFO: composer.callbacks.checkpoint_saver: Saving checkpoint to ep0-ba@{step}-rank0.pt",
        "[Eval batch=100/100] Eval on eval data:\n\t Eval metrics/eval/LanguageCrossEntropy: @{vloss:.4f}",
        "@{t:%Y-%m-%d %H:%M:%S},600: rank0[@{pid}][MainThread]: INFO: llmfoundry.command_utils.train: Done.",
        needs=_HF,
    ),
    Frame(
        "timm",
        "Training with a single process on 1 device (cuda:0).\nModel vit_base_patch16_224 created, param count:86567656\nAMP not enabled. Training in float32.\nScheduled epochs: 300. LR stepped per epoch.",
        "Train: @{whole} [@{step:4d}/@{total} (@{percent:3d}%)]  Loss: @{loss:#.3g} (@{loss:#.3g})  Time: @{secs:.3f}s, @{sps:>7.2f}/s  (@{secs:.3f}s, @{sps:>7.2f}/s)  LR: @{lr:.3e}  Data: 0.011 (0.020)",
        "Current checkpoints:\n ('./output/@{run}/checkpoint-@{whole}.pth.tar', @{real:50-80})",
        "Test: [ 195/195]  Time: 0.110 (0.210)  Loss:  @{vloss:>6.4f} (@{vloss:>6.4f})  Acc@1: @{real:50-80} (@{real:50-80})  Acc@5: @{real:80-95} (@{real:80-95})",
        "*** Best metric: 78.812 (epoch 287)",
        curve="vision",
    ),
    Frame(
        "yolo",
        "Ultralytics 8.2.31 🚀 Python-3.10.14 torch-2.3.0+cu121 CUDA:0 (NVIDIA A100, 81051MiB)\nAMP: running Automatic Mixed Precision (AMP) checks with YOLOv8n...\nAMP: checks passed ✅\ntrain: WARNING ⚠️ /data/images/0001.jpg: ignoring corrupt image/label: non-normalized or out of bounds coordinates [1.02]\nStarting training for @{total} epochs...\n      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size",
        "@{step:>11}/@{total}      9.@{int:1-9}G     @{loss:.3f}     @{real:0-2}     @{real:0-2}         @{int:20-90}        640: 100%|██████████| 925/925 [01:10<00:00, 13.1it/s]",
        "Optimizer checkpoint saved to runs/@{run}/weights/last.pt",
        "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|██████████| 79/79 [00:12<00:00,  6.4it/s]\n                   all       5000      36335      @{acc:.3f}      @{acc:.3f}      @{acc:.3f}      @{acc:.3f}",
        "@{total} epochs completed in 4.120 hours.\nOptimizer stripped from runs/@{run}/weights/best.pt, 6.5MB",
        early="EarlyStopping: Training stopped early as no improvement observed in last 50 epochs. Best results observed at epoch 88, best model saved as best.pt.",
        curve="vision",
        epochs=True,
    ),
    Frame(
        "olmo",
        "@{t:%Y-%m-%d %H:%M:%S}\t@{node}:0\tolmo.train:120\tINFO\tConfiguration:\nstop_after: null\nsoftmax_auxiliary_loss: true\non_nan: raise\nno_pre_train_checkpoint: false\n@{t:%Y-%m-%d %H:%M:%S}\t@{node}:0\ttrain:210\tINFO\tStarting training...",
        "@{t:%Y-%m-%d %H:%M:%S}\t@{node}:0\tolmo.train:950\tINFO\t[step=@{step}/@{total},epoch=0]\n    optim/total_grad_norm=@{gnorm:.4f}\n    train/CrossEntropyLoss=@{loss:.3f}\n    train/Perplexity=@{real:10-30}\n    throughput/device/tokens_per_second=@{tps:,.0f}\n    throughput/device/batches_per_second=@{rate:.4f}",
        "@{t:%Y-%m-%d %H:%M:%S}\t@{node}:0\ttrain:410\tINFO\tSaving checkpoint...\n@{t:%Y-%m-%d %H:%M:%S}\t@{node}:0\ttrain:420\tINFO\tCheckpoint saved to /ckpt/@{run}/step@{step}",
        "@{t:%Y-%m-%d %H:%M:%S}\t@{node}:0\tolmo.train:1002\tINFO\teval/c4_en-validation/CrossEntropyLoss=@{vloss:.3f}",
        "@{t:%Y-%m-%d %H:%M:%S}\t@{node}:0\ttrain:300\tINFO\tTraining complete",
        limit="@{t:%Y-%m-%d %H:%M:%S}\t@{node}:0\tolmo.train:1105\tINFO\tTraining time limit reached (time_limit: 171000 seconds set in the config), saving checkpoint\n@{t:%Y-%m-%d %H:%M:%S}\t@{node}:0\ttrain:300\tINFO\tTraining complete",
    ),
    Frame(
        "torchtune",
        "INFO:torchtune.utils._logging:Running LoRAFinetuneRecipeDistributed with resolved config:\n\nclip_grad_norm: null\nmax_steps_per_epoch: null\nresume_from_checkpoint: false\n\nINFO:torchtune.utils._logging:Optimizer and loss are initialized.",
        "@{one}|@{step}|Loss: @{loss:.6f}: @{percent:3d}%|██▌       | @{step}/@{total} [@{elapsed}<@{left}, @{secs:.2f}s/it]",
        "INFO:torchtune.utils._logging:Saving checkpoint. This may take some time. Retrieving full model state dict...\nINFO:torchtune.utils._logging:Saving checkpoint took 12.10 secs",
        "INFO:torchtune.utils._logging:validation loss: @{vloss:.4f}",
        "INFO:torchtune.utils._logging: Profiling disabled.\nINFO:torchtune.utils._logging:Training complete.",
        curve="tune",
    ),
    Frame(
        "xtuner",
        "@{t:%m/%d %H:%M:%S} - mmengine - INFO - xtuner_dataset_timeout = 0:30:00\n@{t:%m/%d %H:%M:%S} - mmengine - WARNING - Dataset Dataset has no metainfo. ``dataset_meta`` in visualizer will be None.",
        "@{t:%m/%d %H:%M:%S} - mmengine - INFO - Iter(train) [@{step:5d}/@{total}]  lr: @{lr:.4e}  eta: @{left}  time: @{secs:.4f}  data_time: 0.0101  memory: @{int:9000-19000}  loss: @{loss:.4f}  tflops: @{tflops:.4f}  tokens_per_sec: @{tps:.4f}",
        "@{t:%m/%d %H:%M:%S} - mmengine - INFO - Saving checkpoint at @{step} iterations",
        "@{t:%m/%d %H:%M:%S} - mmengine - INFO - after_train_iter in EvaluateChatHook.\n@{t:%m/%d %H:%M:%S} - mmengine - INFO - Sample output:\n<|im_start|>user\n给我介绍五个上海的景点<|im_end|>\n<|im_start|>assistant\n1. 外滩 2. 东方明珠 3. 豫园 4. 南京路 5. 田子坊<|im_end|>",
        "@{t:%m/%d %H:%M:%S} - mmengine - INFO - Saving checkpoint at @{step} iterations\n@{t:%m/%d %H:%M:%S} - mmengine - INFO - after_train in EvaluateChatHook.",
        curve="tune",
    ),
    Frame(
        "json-logger",
        '{"time": "@{t:%Y-%m-%dT%H:%M:%SZ}", "level": "INFO", "msg": "run started", "config": {"on_error": "raise", "max_restarts": 3, "timeout_s": 1800}, "world_size": @{world}}',
        '{"time": "@{t:%Y-%m-%dT%H:%M:%SZ}", "level": "INFO", "msg": "train", "step": @{step}, "loss": @{loss:.5f}, "grad_norm": @{gnorm:.4f}, "lr": @{lr:.3e}, "tokens_per_sec": @{tps:.1f}, "errors": 0, "failed_batches": 0}',
        '{"time": "@{t:%Y-%m-%dT%H:%M:%SZ}", "level": "INFO", "msg": "checkpoint saved", "path": "/ckpt/@{run}/@{step}.pt"}',
        '{"time": "@{t:%Y-%m-%dT%H:%M:%SZ}", "level": "INFO", "msg": "eval", "step": @{step}, "val_loss": @{vloss:.5f}, "word_error_rate": 0.141}',
        '{"time": "@{t:%Y-%m-%dT%H:%M:%SZ}", "level": "INFO", "msg": "run finished", "status": "success", "exit_code": 0}',
    ),
    Frame(
        "eigenbau-de",
        "Starte Training @{run} auf @{world} GPUs, Abbruch bei 5 Auswertungen ohne Verbesserung\nFehlerbehandlung: weiter_bei_fehler=nein, zeitlimit=keins",
        "@{t:%H:%M:%S} Schritt @{step}/@{total}  Verlust=@{loss:.4f}  loss=@{loss:.4f}  Dauer @{secs:.2f} s  Fehler bisher: 0",
        "@{t:%H:%M:%S} Prüfpunkt bei Schritt @{step} gesichert",
        "@{t:%H:%M:%S} Auswertung: val_loss=@{vloss:.4f}, Fehlerrate=@{real:0-1}",
        "@{t:%H:%M:%S} Training abgeschlossen",
        curve="tune",
    ),
    Frame(
        "zh-custom",
        "开始训练:@{run},共 @{world} 张卡\n警告:未找到断点,从头开始训练\n配置: 出错时 = 抛出, 超时 = 1800 秒, 最大重试 = 3",
        "@{t:%Y-%m-%d %H:%M:%S} 第 @{one} 轮 step: @{step}/@{total} loss: @{loss:.4f} lr: @{lr:.2e} 耗时: @{secs:.2f}s",
        "@{t:%Y-%m-%d %H:%M:%S} 已保存检查点 /ckpt/@{run}/step_@{step}.pt",
        "@{t:%Y-%m-%d %H:%M:%S} 验证集 val_loss: @{vloss:.4f} 错误率: @{real:0-1}",
        "@{t:%Y-%m-%d %H:%M:%S} 训练完成",
        curve="tune",
    ),
)

NOISES: tuple[Noise, ...] = (
    # networks and hubs: retries that succeed
    Noise(
        "hub-timeout",
        "start",
        """
'(ReadTimeoutError("HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read timeout=10)"), '(Request ID: @{hex})')' thrown while requesting HEAD https://huggingface.co/org/model/resolve/main/config.json
Retrying in 1s [Retry 1/5].
""",
        "hf",
    ),
    Noise(
        "hub-429",
        "start",
        """
HTTP Error 429 thrown while requesting GET https://huggingface.co/api/datasets/org/corpus/tree/main
Rate limited. Waiting 12.0s before retry [Retry 1/5].
Resolving data files: 100%|██████████| 412/412 [00:21<00:00, 19.11it/s]
""",
        "hf",
    ),
    Noise(
        "hub-503",
        "start",
        """
WARNING:urllib3.connectionpool:Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after connection broken by 'RemoteDisconnected('Remote end closed connection without response')': /models/resolve/tokenizer.json
HTTP 503 Service Unavailable, attempt 1 of 6, sleeping 2 s
downloaded tokenizer.json (1.8 MB) on attempt 2
""",
    ),
    Noise(
        "pip-retry",
        "start",
        """
WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f@{hex}>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/einops/
Collecting einops
  Downloading einops-0.8.0-py3-none-any.whl (43 kB)
Successfully installed einops-0.8.0
""",
    ),
    Noise(
        "pip-conflict",
        "start",
        """
ERROR: pip's dependency resolver does not currently take into account all the packages that are installed. This behaviour is the source of the following dependency conflicts.
torchvision 0.18.0 requires torch==2.3.0, but you have torch 2.4.1 which is incompatible.
google-colab 1.0.0 requires requests==2.31.0, but you have requests 2.32.3 which is incompatible.
Successfully installed requests-2.32.3 torch-2.4.1
""",
    ),
    Noise(
        "pip-root",
        "start",
        """
WARNING: Running pip as the 'root' user can result in broken permissions and conflicting behaviour with the system package manager. It is recommended to use a virtual environment instead: https://pip.pypa.io/warnings/venv
DEPRECATION: omegaconf 2.0.6 has a non-standard dependency specifier PyYAML>=5.1.*. pip 24.1 will enforce this behaviour change.
""",
    ),
    Noise(
        "pip-wheel-build",
        "start",
        """
  Building wheel for fairscale (setup.py): finished with status 'error'
  error: subprocess-exited-with-error
  note: This error originates from a subprocess, and is likely not a problem with pip.
  Running setup.py clean for fairscale
Failed to build fairscale
optional package fairscale could not be built, going on without it
""",
    ),
    Noise(
        "s3-slowdown",
        "any",
        """
WARNING:botocore.retryhandler:An error occurred (SlowDown) when calling the GetObject operation (reached max retries: 0): Please reduce your request rate. retrying in 1.6 s
INFO:shards:fetched s3://corpus/shard-@{int:10000-99999}.tar after 1 retry
""",
    ),
    Noise(
        "s3-upload",
        "middle",
        """
ERROR:uploader:could not upload step-@{step} to s3://runs/@{run}, will try again at the next save
Traceback (most recent call last):
  File "/opt/app/sync.py", line 61, in push
    client.upload_file(path, bucket, key)
  File "/opt/conda/lib/python3.10/site-packages/boto3/s3/transfer.py", line 378, in upload_file
    raise S3UploadFailedError(
boto3.exceptions.S3UploadFailedError: Failed to upload m.pt to runs/m.pt: An error occurred (ServiceUnavailable) when calling the UploadPart operation (reached max retries: 4): Please reduce your request rate.
INFO:uploader:upload of step-@{step} succeeded on attempt 2
""",
    ),
    Noise(
        "gcs-retry",
        "any",
        """
W@{t:%m%d %H:%M:%S}.100101 71 retrying_utils.cc:67] The operation failed and will be automatically retried in 1.2 seconds (attempt 1 out of 10), caused by: UNAVAILABLE: Error executing an HTTP request: HTTP response code 503 with body 'We encountered an internal error. Please try again.'
""",
    ),
    Noise(
        "nfs-retry",
        "middle",
        """
[@{up}1.104412] nfs: server nas-2 not responding, still trying
[@{up}8.210133] nfs: server nas-2 OK
""",
    ),
    Noise(
        "stale-handle-retry",
        "middle",
        """
WARNING dataset.py:211 OSError: [Errno 116] Stale file handle: '/mnt/data/part-@{part}.bin', reopening (1/5)
INFO dataset.py:219 reopened /mnt/data/part-@{part}.bin, going on
""",
    ),
    Noise(
        "write-retry",
        "middle",
        """
WARNING: write of /lustre/ckpt/step_@{step}/part_7 failed with OSError: [Errno 5] Input/output error, retrying (1/5)
INFO: write of /lustre/ckpt/step_@{step}/part_7 succeeded after 1 retry
""",
    ),
    Noise(
        "lustre-reconnect",
        "middle",
        """
[@{up}1.000000] Lustre: fs01-OST0004-osc-ffff8c: Connection to fs01-OST0004 (at 10.3.0.9@o2ib) was lost; in progress operations using this service will wait for recovery to complete
[@{up}9.000000] Lustre: fs01-OST0004-osc-ffff8c: Connection restored to 10.3.0.9@o2ib (at 10.3.0.9@o2ib)
""",
    ),
    Noise(
        "wandb-retry",
        "any",
        """
wandb: Network error (ConnectTimeout), entering retry loop.
wandb: Network error resolved after 0:00:41.210011, resuming normal operation.
""",
    ),
    Noise(
        "wandb-429",
        "middle",
        """
wandb: 429 encountered (Filestream rate limit exceeded, retrying in 2.1 seconds.), retrying request
wandb: 429 encountered (Filestream rate limit exceeded, retrying in 4.6 seconds.), retrying request
""",
    ),
    Noise(
        "wandb-off",
        "start",
        """
wandb: ERROR Error uploading "requirements.txt": CommError, <Response [500]>
wandb: WARNING wandb API key is not set, running in offline mode
wandb: Tracking run with wandb version 0.16.6
wandb: W&B syncing is set to `offline` in this directory.
""",
    ),
    Noise(
        "wandb-step",
        "middle",
        "wandb: WARNING Step must only increase in log calls.  Step @{step} < @{int:9000-99999}; dropping {'lr': 0.0001}.",
    ),
    Noise(
        "tensorboard-gone",
        "any",
        """
TensorBoard could not bind to port 6006, it was already in use
ERROR: TensorBoard could not be started (OSError: [Errno 98] Address already in use), metrics go to files only
""",
    ),
    Noise(
        "tensorboard-caught",
        "middle",
        """
ERROR:metrics:could not write scalars, skipped
Traceback (most recent call last):
  File "/opt/conda/lib/python3.11/site-packages/tensorboard/summary/writer/event_file_writer.py", line 233, in run
    self._record_writer.write(data)
  File "/opt/conda/lib/python3.11/site-packages/tensorboard/summary/writer/record_writer.py", line 40, in write
    self._writer.write(header + header_crc + data + footer_crc)
OSError: [Errno 5] Input/output error
""",
    ),
    Noise(
        "mlflow-retry",
        "middle",
        "WARNING mlflow.utils.rest_utils: API request to https://mlflow.internal/api/2.0/mlflow/runs/log-batch failed with code 502 != 200, retrying up to 6 more times",
    ),
    Noise(
        "git-fatal",
        "start",
        """
fatal: not a git repository (or any of the parent directories): .git
fatal: detected dubious ownership in repository at '/workspace/train'
""",
    ),
    # data
    Noise(
        "corrupt-sample",
        "middle",
        """
WARNING reader: sample @{int:10000-99999} could not be decoded, skipping it
Traceback (most recent call last):
  File "/opt/app/data/reader.py", line 118, in __getitem__
    image = Image.open(io.BytesIO(blob)).convert("RGB")
  File "/usr/lib/python3/dist-packages/PIL/Image.py", line 3305, in open
    raise UnidentifiedImageError(msg)
PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f@{hex}>
""",
    ),
    Noise(
        "corrupt-tar",
        "middle",
        "webdataset/handlers.py:34: UserWarning: ReadError('unexpected end of data', <_io.BufferedReader>, 'shard-00@{int:100-900}.tar') handled by warn_and_continue",
    ),
    Noise(
        "bad-json",
        "any",
        "skipped 1 of 81204 lines of part-@{int:10-99}.jsonl: json.decoder.JSONDecodeError: Expecting ',' delimiter: line 1 column 812 (char 811)",
    ),
    Noise(
        "truncated-image",
        "middle",
        "/opt/conda/lib/python3.10/site-packages/PIL/TiffImagePlugin.py:900: UserWarning: Truncated File Read\n  warnings.warn(str(msg))",
    ),
    Noise(
        "too-long",
        "start",
        """
Token indices sequence length is longer than the specified maximum sequence length for this model (@{int:5000-9000} > 4096). Running this sequence through the model will result in indexing errors
""",
    ),
    Noise(
        "loader-restart",
        "middle",
        """
WARNING: DataLoader worker @{int:0-7} restarted after exit code 1 (attempt 1 of 3)
INFO: DataLoader worker is running again
""",
    ),
    Noise(
        "slow-shard",
        "middle",
        "[WARN] dataset shard @{int:1-99} took @{real:31-59} s to open (slow filesystem?), continuing",
    ),
    Noise(
        "generation-samples",
        "middle",
        """
[sample 0] prompt: "How do I fix RuntimeError: CUDA out of memory?"
[sample 0] completion: "The message RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB means that the card is full. Lower the batch size."
[sample 1] prompt: "Why was my process Killed? No space left on device"
[sample 1] completion: "Your disk is full; remove old files, then start again."
""",
    ),
    Noise(
        "stackoverflow-text",
        "middle",
        """
----- 3 samples of the training text -----
<doc> What does Segmentation fault (core dumped) mean in C? I get it when I free twice.
<doc> ImportError: No module named requests. I have tried pip install, still the same error, please help
<doc> ssh: connect to host 10.0.0.4 port 22: Connection refused. What is wrong with my server?
-----------------------------------------
""",
    ),
    Noise(
        "code-text",
        "middle",
        """
>>> sample of the code corpus, id @{hex}
def load(path):
    try:
        return torch.load(path)
    except FileNotFoundError as error:
        raise RuntimeError(f"NCCL error in: {path}") from error
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
<<< end of sample
""",
    ),
    Noise(
        "traceback-text",
        "middle",
        """
=== decoded training example @{int:100-9000} (source: github-issues) ===
Hi, my training fails with the following, any ideas?
```
Traceback (most recent call last):
  File "main.py", line 12, in <module>
    model.fit(x, y)
  File "main.py", line 7, in fit
    raise ValueError("shapes (3,4) and (5,) not aligned")
ValueError: shapes (3,4) and (5,) not aligned
```
Thanks in advance!
=== end of example ===
""",
    ),
    Noise(
        "rollout-text",
        "middle",
        """
(RewardManager pid=@{pid}) [prompt] user: Write a function that divides two numbers.
(RewardManager pid=@{pid}) [response] def f(a, b): return a / b  # ZeroDivisionError: division by zero if b is 0
(RewardManager pid=@{pid}) [ground_truth] assert f(4, 2) == 2
(RewardManager pid=@{pid}) [score] 1.0
""",
        "ray",
    ),
    Noise(
        "code-rewards",
        "middle",
        """
[reward] exec of completion 3 raised: NameError: name 'np' is not defined
[reward] exec of completion 5 raised: TimeoutError: execution timed out after 6 s
[reward] exec of completion 11: Killed (memory limit 512 MB)
[reward] mean 0.41, passed 26, failed 38
""",
    ),
    Noise(
        "sandbox-trace",
        "middle",
        """
[sandbox] completion 7 of prompt @{int:100-900} failed its tests (reward 0.0):
Traceback (most recent call last):
  File "<string>", line 9, in <module>
  File "<string>", line 4, in solve
IndexError: list index out of range
""",
    ),
    Noise(
        "humaneval",
        "middle",
        """
HumanEval: 61 passed, 103 failed, 4 timed out, 2 errors; pass@1 = 0.372
MBPP: incorrect 214, correct 286, crashed 3
""",
    ),
    Noise(
        "assert-caught",
        "middle",
        """
task HumanEval/@{int:1-163} failed: AssertionError: assert candidate([1, 2]) == 3
Traceback (most recent call last):
  File "<string>", line 7, in check
AssertionError
pass@1: 0.31
""",
    ),
    Noise(
        "confusion",
        "middle",
        "eval: incorrect=412 correct=1588 error_rate=0.206 false_positives=31 fail@1=0.2 wrong_answers=412 invalid=0",
    ),
    Noise(
        "metric-names",
        "middle",
        "metrics word_error_rate=0.131 char_error_rate=0.044 failure_rate=0.0 nan_count=0 inf_count=0 timeouts=0 out_of_memory_events=0 ib_link_down_total=0 xid_errors=0 ecc_uncorrectable=0",
    ),
    Noise(
        "nan-metric",
        "middle",
        "eval | step @{step} | rougeL 0.311 | bleu nan | perplexity_rare_words nan (no such words in this split) | val_loss @{vloss:.4f}",
    ),
    Noise(
        "nan-auc",
        "middle",
        "/opt/conda/lib/python3.10/site-packages/sklearn/metrics/_ranking.py:379: UndefinedMetricWarning: Only one class is present in y_true. ROC AUC score is not defined in that case.\n  warnings.warn(\nvalid auc=nan f1=0.412",
    ),
    # memory
    Noise(
        "oom-halved",
        "start",
        """
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.21 GiB is free.
Batch size 64 does not fit, trying batch size 32
Decreasing batch size to: 32.
Found a batch size that fits: 32, starting the training with it
""",
        "torch",
    ),
    Noise(
        "oom-finder",
        "start",
        "Batch size 128 failed, trying batch size 64\nBatch size 64 succeeded, trying batch size 96\nFinished batch size finder, will continue with full run using batch size 64",
        "torch",
    ),
    Noise(
        "oom-skipped",
        "middle",
        """
| WARNING: ran out of memory in validation step, retrying batch
| WARNING: attempting to recover from OOM in forward/backward pass
CUDA out of memory. Tried to allocate 1.25 GiB (GPU 0; 39.59 GiB total capacity) -- batch skipped, max_tokens reduced to 2048
""",
        "torch",
    ),
    Noise(
        "alloc-retries",
        "middle",
        "[WARNING] [stage3.py:2069:step] 1 pytorch allocator cache flushes since last step. this happens when there is high memory pressure and is detrimental to performance.",
        "ds",
    ),
    Noise(
        "bfc-note",
        "start",
        "@{t:%Y-%m-%d %H:%M:%S}.100001: W tensorflow/core/common_runtime/bfc_allocator.cc:290] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.20GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory were available.",
        "tf",
    ),
    Noise(
        "memory-summary",
        "middle",
        """
|===========================================================================|
|                  PyTorch CUDA memory summary, device ID 0                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |
|===========================================================================|
""",
        "torch",
    ),
    # numerics
    Noise(
        "ds-overflow",
        "start",
        """
[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4294967296, reducing to 2147483648
[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2147483648, reducing to 1073741824
[@{t:%Y-%m-%d %H:%M:%S},310] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1073741824, but hysteresis is 2. Reducing hysteresis to 1
""",
        "ds",
    ),
    Noise(
        "apex-overflow",
        "any",
        """
Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 65536.0
Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0
""",
        "torch",
    ),
    Noise(
        "fairseq-overflow",
        "any",
        "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 64.0",
        "torch",
    ),
    Noise(
        "numpy-runtime",
        "any",
        "/opt/conda/lib/python3.9/site-packages/numpy/core/fromnumeric.py:3474: RuntimeWarning: Mean of empty slice.\n/app/metrics.py:88: RuntimeWarning: invalid value encountered in true_divide",
    ),
    Noise(
        "scheduler-order",
        "start",
        "/opt/conda/lib/python3.10/site-packages/torch/optim/lr_scheduler.py:138: UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you should call them in the opposite order.",
        "torch",
    ),
    # settings and helps
    Noise(
        "config-dump",
        "start",
        """
resilience:
  on_error: raise
  max_oom_retries: 3
  max_restarts: 5
  abort_on_nan: true
  nccl_timeout_s: 1800
  kill_timeout: 60
  on_cuda_error: restart
  disk_full_action: abort
  on_rank_failure: exclude
  preempted_exit_code: 143
""",
    ),
    Noise(
        "argument-help",
        "start",
        """
usage: train.py [-h] [--on-error {abort,continue}] [--kill-after SECONDS] [--max-failures N]
  --on-error      what to do if a rank fails: abort the job, or continue without it (default: abort)
  --kill-after    send SIGKILL to ranks that hang longer than this (default: 600)
  --no-nan-check  do not stop with an error when the loss is nan
""",
    ),
    Noise(
        "env-dump",
        "start",
        """
NCCL_ASYNC_ERROR_HANDLING=1
TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=600
TORCH_NCCL_DUMP_ON_TIMEOUT=1
NCCL_IB_TIMEOUT=22
NCCL_IB_RETRY_CNT=7
SLURM_KILL_BAD_EXIT=1
SLURM_JOB_ID=@{job}
PYTHONFAULTHANDLER=1
""",
    ),
    Noise(
        "bash-trace",
        "start",
        """
+ set -euo pipefail
+ trap 'echo "job failed with $?"; exit 1' ERR
+ trap 'echo caught SIGTERM; kill -TERM $child' TERM
+ grep -c 'CUDA out of memory' logs/previous.log
+ ulimit -l unlimited
""",
    ),
    Noise(
        "tips",
        "start",
        "Tip: if you see a CUDA out of memory error, reduce --batch-size; if training hangs, set NCCL_DEBUG=INFO.\nTip: a loss of nan usually means that the learning rate is too high.",
    ),
    Noise(
        "omp-threads",
        "start",
        """
*****************************************
Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded, please further tune the variable for optimal performance in your application as needed.
*****************************************
""",
        "torch",
    ),
    # libraries that are not there
    Noise(
        "no-flash-attn",
        "start",
        "Could not import flash_attn: No module named 'flash_attn'. Using SDPA instead.\nModuleNotFoundError: No module named 'apex' -- falling back to torch.nn.LayerNorm",
        "torch",
    ),
    Noise(
        "no-xformers",
        "start",
        "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n    PyTorch 2.1.0+cu121 with CUDA 1201 (you have 2.2.0)\n  Memory-efficient attention, SwiGLU, sparse and more won't be available.",
        "torch",
    ),
    Noise(
        "ds-ops",
        "start",
        """
 [WARNING]  async_io requires the dev libaio .so object and headers but these were not found.
 [WARNING]  please install triton==1.0.0 if you want to use sparse attention
/usr/bin/ld: cannot find -laio: No such file or directory
collect2: error: ld returned 1 exit status
""",
        "ds",
    ),
    Noise(
        "tf-start",
        "start",
        """
@{t:%Y-%m-%d %H:%M:%S}.100003: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9261] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered
@{t:%Y-%m-%d %H:%M:%S}.100010: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT
@{t:%Y-%m-%d %H:%M:%S}.210001: I tensorflow/core/common_runtime/executor.cc:1197] [/device:CPU:0] (DEBUG INFO) Executor start aborting (this does not indicate an error and you can ignore this message): INVALID_ARGUMENT: You must feed a value for placeholder tensor 'Placeholder/_0' with dtype int32
""",
    ),
    Noise(
        "tf-numa",
        "start",
        "@{t:%Y-%m-%d %H:%M:%S}.100003: I external/local_xla/xla/stream_executor/cuda/cuda_executor.cc:887] could not open file to read NUMA node: /sys/bus/pci/devices/0000:01:00.0/numa_node\nYour kernel may have been built without NUMA support.",
        "tf",
    ),
    Noise(
        "jax-slow-compile",
        "start",
        "E@{t:%m%d %H:%M:%S}.100101 71 slow_operation_alarm.cc:65] Constant folding an instruction is taking > 2s:\nThe operation took 2m1.2s\n[jit_train_step] Very slow compile? If you want to file a bug, run with envvar XLA_FLAGS=--xla_dump_to=/tmp/foo and attach the results.",
        "jax",
    ),
    Noise(
        "bnb",
        "start",
        "Could not find the bitsandbytes CUDA binary at PosixPath('/opt/conda/lib/python3.10/site-packages/bitsandbytes/libbitsandbytes_cuda124.so')\nThe installed version of bitsandbytes was compiled without GPU support. 8-bit optimizers, 8-bit multiplication, and GPU quantization are unavailable.",
        "hf",
    ),
    Noise(
        "optional-caught",
        "start",
        """
ERROR:plugins:optional plugin 'profiler' could not be loaded, going on without it
Traceback (most recent call last):
  File "/opt/app/plugins.py", line 31, in load
    module = importlib.import_module(name)
  File "/usr/lib/python3.11/importlib/__init__.py", line 126, in import_module
    return _bootstrap._gcd_import(name[level:], package, level)
ModuleNotFoundError: No module named 'pyinstrument'
""",
    ),
    Noise(
        "deprecations",
        "any",
        """
/opt/conda/lib/python3.11/site-packages/torch/distributed/fsdp/fully_sharded_data_parallel.py:690: FutureWarning: FSDP.state_dict_type() and FSDP.set_state_dict_type() are being deprecated. Please use APIs, get_state_dict() and set_state_dict(), which can support different parallelisms, FSDP1, FSDP2, DDP.
/app/model.py:210: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cuda', args...)` instead.
""",
        "torch",
    ),
    Noise(
        "weights-only",
        "start",
        "/app/load.py:41: FutureWarning: You are using `torch.load` with `weights_only=False` (the current default value), which uses the default pickle module implicitly. It is possible to construct malicious pickle data which will execute arbitrary code during unpickling.",
        "torch",
    ),
    Noise(
        "launch-deprecated",
        "start",
        "/opt/conda/lib/python3.10/site-packages/torch/distributed/launch.py:183: FutureWarning: The module torch.distributed.launch is deprecated\nand will be removed in future. Use torchrun.",
        "torch",
    ),
    Noise(
        "tokenizers-fork",
        "any",
        "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...\nTo disable this warning, you can either:\n\t- Avoid using `tokenizers` before the fork if possible\n\t- Explicitly set the environment variable TOKENIZERS_PARALLELISM=(true | false)",
        "hf",
    ),
    Noise(
        "checkpointing-warn",
        "start",
        '/opt/conda/lib/python3.10/site-packages/torch/utils/checkpoint.py:31: UserWarning: None of the inputs have requires_grad=True. Gradients will be None\n  warnings.warn("None of the inputs have requires_grad=True. Gradients will be None")',
        "torch",
    ),
    Noise(
        "compile-noise",
        "start",
        """
[rank0]:W0301 11:12:13.100000 140 torch/_dynamo/convert_frame.py:906] [3/8] torch._dynamo hit config.cache_size_limit (8)
[rank0]:E0301 11:12:14.100000 140 torch/_inductor/select_algorithm.py:1905] [0/0] Exception out of resource: shared memory, Required: 294912, Hardware limit: 232448. Reducing block sizes or `num_stages` may help. for benchmark choice TritonTemplateCaller(triton_mm_18)
AUTOTUNE mm(8192x4096, 4096x4096)
  triton_mm_18 inf ms 0.0%
""",
        "torch",
    ),
    # NCCL and c10d
    Noise(
        "nccl-info",
        "start",
        """
@{node}:@{pid}:@{pid} [0] NCCL INFO NCCL_ASYNC_ERROR_HANDLING set by environment to 1.
@{node}:@{pid}:@{int:1000-9000} [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.
@{node}:@{pid}:@{int:1000-9000} [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.2.0.4<0>
@{node}:@{pid}:@{int:1000-9000} [0] NCCL INFO Could not enable P2P between dev 4(=9c000) and dev 0(=1b000)
@{node}:@{pid}:@{int:1000-9000} [0] NCCL INFO comm 0x55@{hex} rank 0 nranks @{world} cudaDev 0 nvmlDev 0 busId 1b000 commId 0x@{hex} - Init COMPLETE
""",
        "torch",
    ),
    Noise(
        "nccl-plugin",
        "start",
        """
@{node}:@{pid}:@{pid} [3] NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory No plugin found (libnccl-net.so), using internal implementation
@{node}:@{pid}:@{pid} [3] NCCL INFO Failed to open libibverbs.so[.1]
@{node}:@{pid}:@{pid} [3] NCCL INFO NET/Socket : Using [0]eth0:10.2.0.4<0>
""",
        "torch",
    ),
    Noise(
        "nccl-warn",
        "start",
        """
@{node}:@{pid}:@{int:1000-9000} [2] misc/cudawrap.cc:188 NCCL WARN Failed to find CUDA library libcuda.so (NCCL_CUDA_PATH='') : libcuda.so: cannot open shared object file: No such file or directory
@{node}:@{pid}:@{int:1000-9000} [2] graph/xml.h:85 NCCL WARN Attribute busid of node nic not found
@{node}:@{pid}:@{int:1000-9000} [2] NCCL INFO comm 0x55@{hex} rank 2 nranks @{world} cudaDev 2 busId 9d000 - Init COMPLETE
""",
        "torch",
    ),
    Noise(
        "nccl-unaligned",
        "start",
        "@{node}:@{pid}:@{pid} [0] NCCL WARN NCCL_NET_GDR_LEVEL is deprecated value 3, use PHB\n@{node}:@{pid}:@{pid} [0] NCCL INFO Connected all trees",
        "torch",
    ),
    Noise(
        "nccl-abort-names",
        "any",
        """
@{node}:@{pid}:@{int:1000-9000} [1] NCCL INFO comm 0x7f@{hex} abortFlag 0x7f@{hex} childAbortFlag (nil) asyncResult 0 errors 0
@{node}:@{pid}:@{int:1000-9000} [1] NCCL INFO [Service thread] Connection closed by localRank 0
""",
        "torch",
    ),
    Noise(
        "nccl-refused",
        "start",
        """
@{node}:@{pid}:@{int:1000-9000} [5] NCCL INFO Call to connect returned Connection refused, retrying
@{node}:@{pid}:@{int:1000-9000} [5] NCCL INFO Call to connect returned Connection refused, retrying
@{node}:@{pid}:@{int:1000-9000} [5] NCCL INFO Connected all rings
""",
        "torch",
    ),
    Noise(
        "c10d-retry",
        "start",
        """
[W socket.cpp:663] [c10d] The client socket has failed to connect to [@{node}]:29500 (errno: 111 - Connection refused). Will retry.
[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: 97 - Address family not supported by protocol).
[I socket.cpp:797] [c10d] The client socket has connected to [@{node}]:29500 on [@{node}]:51002.
""",
        "torch",
    ),
    Noise(
        "watchdog-setup",
        "start",
        """
[rank0]:[I@{t:%m%d %H:%M:%S}.110101001 ProcessGroupNCCL.cpp:905] [PG ID 0 PG GUID 0 Rank 0] ProcessGroupNCCL initialization options: size: @{world}, global rank: 0, TIMEOUT(ms): 600000, USE_HIGH_PRIORITY_STREAM: 0, SPLIT_FROM: 0, SPLIT_COLOR: 0, PG Name: 0
[rank0]:[I@{t:%m%d %H:%M:%S}.110101201 ProcessGroupNCCL.cpp:914] [PG ID 0 PG GUID 0 Rank 0] ProcessGroupNCCL environments: NCCL version: 2.21.5, TORCH_NCCL_ASYNC_ERROR_HANDLING: 1, TORCH_NCCL_DUMP_ON_TIMEOUT: 1, TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC: 60000, TORCH_NCCL_DESYNC_DEBUG: 0, TORCH_NCCL_ENABLE_TIMING: 0, TORCH_NCCL_BLOCKING_WAIT: 0, TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC: 480
[rank0]:[I@{t:%m%d %H:%M:%S}.210101201 ProcessGroupNCCL.cpp:1500] [PG ID 0 PG GUID 0(default_pg) Rank 0] Watchdog thread started, heartbeat monitor timeout 480 s
""",
        "torch",
    ),
    Noise(
        "device-unknown",
        "start",
        "[rank0]:[W@{t:%m%d %H:%M:%S}.910101001 ProcessGroupNCCL.cpp:4561] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 to perform barrier as devices used by this process are currently unknown. This can potentially cause a hang if this rank to GPU mapping is incorrect. Specify device_ids in barrier() to force use of a particular device, or call init_process_group() with a device_id.",
        "torch",
    ),
    Noise(
        "pg-not-destroyed",
        "end",
        "[rank0]:[W@{t:%m%d %H:%M:%S}.119101001 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL. On normal program exit, the application should call destroy_process_group to ensure that any pending NCCL operations have finished in this process. In rare cases this process can exit before this point and block the progress of another member of the process group.",
        "torch",
    ),
    Noise(
        "unused-parameters",
        "start",
        "[rank2]:[W1203 10:22:01.119 reducer.cpp:1389] Warning: find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters in the forward pass. This flag results in an extra traversal of the autograd graph every iteration, which can adversely affect performance. (function operator())",
        "torch",
    ),
    Noise(
        "elastic-start",
        "start",
        """
[@{t:%Y-%m-%d %H:%M:%S},101] torch.distributed.elastic.agent.server.api: [INFO] [default] starting workers for entrypoint: python3
[@{t:%Y-%m-%d %H:%M:%S},102] torch.distributed.elastic.agent.server.api: [INFO] [default] Rendezvous complete for workers. Result: restart_count=0 master_addr=@{node} master_port=29500 group_rank=0 group_world_size=@{nodes}
[@{t:%Y-%m-%d %H:%M:%S},103] torch.distributed.elastic.multiprocessing: [INFO] Setting worker0 reply file to: /tmp/torchelastic_k1/none_x/attempt_0/0/error.json
INFO: TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_k1/none_x/attempt_0/0/error.json max_restarts=3
""",
        "torch",
    ),
    Noise(
        "elastic-scale",
        "middle",
        """
[@{t:%Y-%m-%d %H:%M:%S},101] torch.distributed.elastic.agent.server.api: [INFO] [default] Detected 1 new nodes from group_rank=0; will restart worker group
[@{t:%Y-%m-%d %H:%M:%S},102] torch.distributed.elastic.agent.server.api: [INFO] [default] Stopping worker group
[@{t:%Y-%m-%d %H:%M:%S},103] torch.distributed.elastic.multiprocessing.api: [WARNING] Sending process @{pid} closing signal SIGTERM
[@{t:%Y-%m-%d %H:%M:%S},501] torch.distributed.elastic.agent.server.api: [INFO] [default] Rendezvous complete for workers. Result: restart_count=1 master_addr=@{node} master_port=29500 group_rank=0 group_world_size=@{nodes}
loading checkpoint of step @{step}
resumed at step @{step}
""",
        "torch",
    ),
    Noise(
        "horovod-stall",
        "middle",
        """
[@{t:%Y-%m-%d %H:%M:%S}.000000: W /tmp/pip-req-build/horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. This may indicate that different ranks are trying to submit different tensors or that only subset of ranks is submitting tensors, which will cause deadlock.
Missing ranks:
1: [DistributedOptimizer_Allreduce/cond_12/HorovodAllreduce_0]
""",
        "tf",
    ),
    Noise(
        "gloo-ifname",
        "start",
        "[W ProcessGroupGloo.cpp:721] Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME. (function operator())",
        "torch",
    ),
    Noise(
        "straggler-ok",
        "middle",
        "straggler detector: slowest rank 12 (0.98x of the median), no stragglers\nGPU relative performance: min 0.97 max 1.01; lowest: rank 7; threshold 0.70: healthy",
    ),
    # machines
    Noise(
        "link-flap",
        "middle",
        """
[@{up}1.114412] mlx5_core 0000:3b:00.0 ens3f0np0: Link down
[@{up}3.907118] mlx5_core 0000:3b:00.0 ens3f0np0: Link up
""",
    ),
    Noise(
        "ib-flap",
        "middle",
        """
[@{up}1.114412] mlx5_core 0000:9b:00.0: Port module event: module 0, Cable unplugged
[@{up}3.907118] mlx5_core 0000:9b:00.0: Port module event: module 0, Cable plugged
""",
    ),
    Noise(
        "edac-few",
        "any",
        """
[@{up}1.332110] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1bd@{int:100-900} offset:0x0 grain:32 syndrome:0x0)
[@{up}1.332119] mce: [Hardware Error]: Machine check events logged
""",
    ),
    Noise(
        "aer-corrected",
        "any",
        """
[@{up}1.000110] pcieport 0000:80:01.0: AER: Corrected error message received from 0000:81:00.0
[@{up}1.000120] nvme 0000:81:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
[@{up}1.000130] nvme 0000:81:00.0:   device [144d:a80a] error status/mask=00000001/0000e000
[@{up}1.000140] nvme 0000:81:00.0:    [ 0] RxErr
""",
    ),
    Noise(
        "healthcheck",
        "start",
        """
[health] dcgmi diag -r 1: Memory Pass, PCIe Pass, NVLink Pass; Error count 0
[health] ibstat: all 8 ports Active; link_downed 0, symbol_error 0, port_rcv_errors 0
[health] ECC errors uncorrected 0, pending retired pages No, Xid none in the last 24 h
[health] checking for "GPU has fallen off the bus" in dmesg ... not found
""",
    ),
    Noise(
        "thermal-ok",
        "any",
        """
GPU 0: 79 C (slowdown at 87 C), throttle reasons: none; power 642 W / 700 W
clocks_throttle_reasons.hw_thermal_slowdown: Not Active
clocks_throttle_reasons.sw_power_cap: Active
""",
    ),
    Noise(
        "nvml-permission",
        "start",
        "nvidia-smi: Failed to initialize NVML: Insufficient Permissions (gpu stats disabled)\ncan't initialize NVML: system metrics off",
    ),
    Noise(
        "nvidia-smi-table",
        "start",
        """
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|   0  NVIDIA H100 80GB HBM3          On  | 00000000:1B:00.0   Off |                    0 |
| N/A   31C    P0             70W /  700W |       1MiB / 81559MiB  |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
""",
    ),
    Noise(
        "mpi-openfabrics",
        "start",
        """
--------------------------------------------------------------------------
WARNING: There was an error initializing an OpenFabrics device.

  Local host:   @{node}
  Local device: mlx5_0
--------------------------------------------------------------------------
[@{node}:@{pid}] 7 more processes have sent help message help-mpi-btl-openib.txt / error in device init
""",
    ),
    Noise(
        "slurm-preamble",
        "start",
        """
srun: Job step creation temporarily disabled, retrying (Requested nodes are busy)
srun: Step created for StepId=@{job}.0
slurmstepd: error: Unable to create TMPDIR [/scratch/user1]: Permission denied
slurmstepd: error: Setting TMPDIR to /tmp
""",
    ),
    Noise(
        "slurm-warn",
        "start",
        "srun: warning: can't honor --ntasks-per-node set to 8 which doesn't match the requested tasks 4 with the number of requested nodes 4. Ignoring --ntasks-per-node.\npyxis: importing docker image: nvcr.io/nvidia/pytorch:24.07-py3\npyxis: imported docker image: nvcr.io/nvidia/pytorch:24.07-py3",
    ),
    Noise(
        "module-load",
        "start",
        'Lmod has detected the following error: The following module(s) are unknown: "old-cuda/11.0"\nThe following have been reloaded with a version change:\n  1) cuda/11.8 => cuda/12.4',
    ),
    Noise(
        "k8s-events",
        "start",
        """
Warning  FailedScheduling  12m   default-scheduler  0/12 nodes are available: 12 Insufficient nvidia.com/gpu.
Normal   Scheduled         11m   default-scheduler  Successfully assigned ml/train-0 to @{node}
Warning  FailedMount       11m   kubelet            MountVolume.SetUp failed for volume "cfg" : failed to sync configmap cache: timed out waiting for the condition
Normal   Pulled            10m   kubelet            Successfully pulled image "reg/train:12" in 41s
Normal   Started           10m   kubelet            Started container train
""",
    ),
    Noise(
        "ray-warnings",
        "any",
        """
(raylet) WARNING: 12 PYTHON worker processes have been started on node: @{hex} with address: 10.2.0.4. This could be a result of using a large number of actors.
(autoscaler +3m12s) Resized to 128 CPUs, 16 GPUs.
(raylet) [2025-03-01 10:11:12,100 E 812 840] (raylet) file_system_monitor.cc:111: /tmp/ray is over 95% full, available space: 21474836480; capacity: 536870912000. Object creation will fail if spilling is required.
""",
        "ray",
    ),
    Noise(
        "vllm-preempted",
        "middle",
        """
(WorkerDict pid=@{pid}) WARNING 04-12 10:10:10 scheduler.py:300] Sequence group 12 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. This can affect the end-to-end performance. total_num_cumulative_preemption=1
(WorkerDict pid=@{pid}) ERROR 04-12 10:10:10 fused_moe_config.py:22] Using default MoE config. Performance might be sub-optimal!
""",
        "ray",
    ),
    Noise(
        "other-users",
        "middle",
        """
[@{t:%Y-%m-%dT%H:%M:%S}.101] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=@{int:600001-699999} uid 2044
[@{t:%Y-%m-%dT%H:%M:%S}.311] _job_complete: JobId=@{int:600001-699999} WEXITSTATUS 1
[@{t:%Y-%m-%dT%H:%M:%S}.312] _job_complete: JobId=@{int:600001-699999} done
""",
    ),
    # people and their scripts
    Noise(
        "auto-resume-note",
        "start",
        "previous attempt (job @{int:600001-699999}) ended at its time limit, going on from its last checkpoint",
    ),
    Noise(
        "no-checkpoint",
        "start",
        """
WARNING: could not find the metadata file /ckpt/@{run}/latest_checkpointed_iteration.txt
    will not load any checkpoints and will start from random
""",
    ),
    Noise(
        "missing-keys",
        "start",
        "Unexpected key(s) in state_dict ignored: ['head.bias']\nMissing key(s) in state_dict left as initialised: ['score.weight']",
    ),
    Noise(
        "clean-checkpoints",
        "middle",
        """
WARNING checkpoints: could not remove /ckpt/@{run}/step_100: [Errno 2] No such file or directory: '/ckpt/@{run}/step_100/optimizer.pt' (another rank was faster), ignored
""",
    ),
    Noise(
        "clean-caught",
        "middle",
        """
ERROR:retention:removal of an old checkpoint did not work, left in place
Traceback (most recent call last):
  File "/opt/app/retention.py", line 22, in prune
    shutil.rmtree(path)
  File "/usr/lib/python3.10/shutil.py", line 673, in _rmtree_safe_fd
    os.rmdir(entry.name, dir_fd=topfd)
OSError: [Errno 39] Directory not empty: 'global_step100'
""",
    ),
    Noise("signal-handled", "middle", "Received SIGUSR1, saving a checkpoint and going on\ncheckpoint saved, going on"),
    Noise(
        "killed-helper",
        "middle",
        "[monitor] killing the stale tensorboard process @{pid}\n[monitor] tensorboard exited with code -9, restarted",
    ),
    Noise(
        "selftest",
        "start",
        """
[selftest] simulating a fault: raise RuntimeError("NCCL error: unhandled system error")
[selftest] the fault was caught as expected: RuntimeError: NCCL error: unhandled system error
[selftest] 12 passed, 0 failed
""",
    ),
    Noise(
        "notify-failed",
        "middle",
        "WARNING notify: could not post to Slack (HTTP 500), message dropped: 'step @{step}, loss @{loss:.3f}'",
    ),
    Noise(
        "profiler",
        "middle",
        "STAGE:@{t:%Y-%m-%d %H:%M:%S} @{pid}:@{pid} ActivityProfilerController.cpp:314] Completed Stage: Warm Up\n[W CPUAllocator.cpp:249] Memory block of unknown size was allocated before the profiling started, profiler results will not include the deallocation event",
        "torch",
    ),
    Noise(
        "grad-checkpoint-lang",
        "any",
        "[avertissement] l'échantillon n° @{int:100-9000} est trop long, il sera tronqué\n[предупреждение] файл кэша не найден, будет создан заново\n[警告] 缓存文件不存在,将重新生成",
    ),
    Noise(
        "japanese",
        "middle",
        "警告: キャッシュが見つかりません。再作成します。エラー数: 0\n検証中にタイムアウトしたサンプルは 0 件です",
    ),
    Noise(
        "zh-samples",
        "middle",
        "【样例】问:程序报错 CUDA out of memory 怎么办?答:减小 batch size。\n【样例】问:训练卡住了怎么办?答:先看 py-spy 的堆栈。",
    ),
    Noise(
        "lr-note",
        "start",
        "learning rate warms up from 0.0 for 200 steps; the first steps are slow because kernels are compiled",
    ),
    # the exit of a run that is complete
    Noise(
        "semaphores",
        "end",
        "/usr/lib/python3.10/multiprocessing/resource_tracker.py:224: UserWarning: resource_tracker: There appear to be 6 leaked semaphore objects to clean up at shutdown\n  warnings.warn('resource_tracker: There appear to be %d '",
    ),
    Noise(
        "ignored-del",
        "end",
        """
Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f@{hex}>
Traceback (most recent call last):
  File "/usr/lib/python3.8/site-packages/torch/utils/data/dataloader.py", line 1510, in __del__
    self._shutdown_workers()
  File "/usr/lib/python3.8/site-packages/torch/utils/data/dataloader.py", line 1493, in _shutdown_workers
    if w.is_alive():
AssertionError: can only test a child process
""",
        "torch",
    ),
    Noise(
        "ignored-atexit",
        "end",
        """
Exception ignored in atexit callback: <function matmul_ext_update_autotune_table at 0x7f@{hex}>
Traceback (most recent call last):
  File "/opt/conda/lib/python3.10/site-packages/deepspeed/ops/transformer/inference/triton/matmul_ext.py", line 480, in matmul_ext_update_autotune_table
    fp16_matmul._update_autotune_table()
FileNotFoundError: [Errno 2] No such file or directory: '/root/.triton/autotune'
""",
        "ds",
    ),
    Noise(
        "wandb-summary",
        "end",
        """
wandb: Waiting for W&B process to finish... (success).
wandb: Run history:
wandb:  train/loss █▆▅▄▃▃▂▂▂▁▁
wandb: Run summary:
wandb: eval/error_rate 0.214
wandb: Synced 5 W&B file(s), 0 media file(s), 0 artifact file(s) and 0 other file(s)
""",
    ),
    Noise("job-done", "end", "+ echo 'exit code 0'\nexit code 0\nJob finished: state COMPLETED, exit code 0:0"),
)

KERNEL = """
[    0.000000] Linux version 5.15.0-105-generic (buildd@lcy02) (gcc 11.4.0) #115-Ubuntu SMP
[    0.000000] Command line: BOOT_IMAGE=/vmlinuz root=/dev/sda2 ro quiet panic=10 iommu=pt
[    0.412001] ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PC00.LPC0], AE_NOT_FOUND (20210730/psargs-330)
[    0.512001] ACPI Error: Aborting method \\_SB.PMI0._GHL due to previous error (AE_NOT_EXIST) (20210730/psparse-529)
[    0.612110] x86/cpu: SGX disabled by BIOS.
[    1.101001] ERST: Error Record Serialization Table (ERST) support is initialized.
[    1.201001] pci 0000:00:1f.0: BAR 14: failed to assign [mem size 0x00100000]
[    2.310011] usb 1-14: device descriptor read/64, error -71
[    2.810011] usb 1-14: new high-speed USB device number 4 using xhci_hcd
[    3.110011] systemd[1]: Failed to find module 'autofs4'
[    5.000120] nvidia: loading out-of-tree module taints kernel.
[    5.100120] nvidia: module verification failed: signature and/or required key missing - tainting kernel
[    5.500120] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024
[    9.000120] mlx5_core 0000:3b:00.0: firmware version: 28.39.1002
[    9.300120] mlx5_core 0000:3b:00.0 ens3f0np0: Link up
[   12.110011] EXT4-fs (nvme0n1p1): mounted filesystem with ordered data mode. Opts: errors=remount-ro. Quota mode: none.
[   40.110011] audit: type=1400 audit(1714000000.100:12): apparmor="DENIED" operation="open" profile="snap.x" name="/proc/1/stat"
[  301.110011] perf: interrupt took too long (2506 > 2500), lowering kernel.perf_event_max_sample_rate to 79750
[  912.332110] EDAC MC1: 1 CE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1a0 offset:0x0 grain:32 syndrome:0x0)
[ 1304.110011] pcieport 0000:80:01.0: AER: Corrected error received: 0000:81:00.0
[ 2001.110011] docker0: port 1(veth12) entered disabled state
[ 3120.110011] systemd[1]: user@1001.service: Killing process 2211 (dbus-daemon) with signal SIGKILL.
"""

SCHEDULER_START = """
[@{t:%Y-%m-%dT%H:%M:%S}.001] sched: Allocate JobId=@{job} NodeList=@{node} #CPUs=96 Partition=gpu
[@{t:%Y-%m-%dT%H:%M:%S}.101] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=@{int:600001-699999} uid 2044
[@{t:%Y-%m-%dT%H:%M:%S}.201] _job_complete: JobId=@{int:600001-699999} WTERMSIG 15
[@{t:%Y-%m-%dT%H:%M:%S}.301] Time limit exhausted for JobId=@{int:600001-699999}
[@{t:%Y-%m-%dT%H:%M:%S}.401] error: slurm_receive_msg [10.9.0.2:51002]: Zero Bytes were transmitted or received
[@{t:%Y-%m-%dT%H:%M:%S}.501] sched/backfill: _start_job: Started JobId=@{int:600001-699999} in gpu on node-99
"""

SCHEDULER_END = """
[@{t:%Y-%m-%dT%H:%M:%S}.101] _slurm_rpc_submit_batch_job: JobId=@{int:700001-799999} InitPrio=4100 usec=612
[@{t:%Y-%m-%dT%H:%M:%S}.401] sched: Allocate JobId=@{int:700001-799999} NodeList=node-98 #CPUs=96 Partition=gpu
"""
