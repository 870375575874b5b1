"""How training programs print a run: what each role says at the start, at a step, an evaluation, a checkpoint and the end.

Forms of the lines of Megatron-LM, DeepSpeed, transformers, accelerate, torchtitan, NeMo, ms-swift, MindSpeed and CANN follow
their public sources; custom loops are made up. Texts of `steps` are Python formats, all others templates of `words`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Say:
    """One thing that is printed.

    `who`: first, last, each, local0, tp0 (first rank of a tensor group); `channel`: log, raw, nccl, cann, warn; `every`:
    records between; `verbose`: only where the job is.
    """

    who: str
    channel: str
    level: str
    module: str
    text: str
    every: int = 1
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class Style:
    """A program's way of printing. `form` is that of its logger (words.logged), `reporter` the role that prints the loss."""

    name: str
    form: str
    reporter: str
    boot: tuple[Say, ...]
    load: tuple[Say, ...]
    steps: tuple[Say, ...]
    evaluation: tuple[Say, ...]
    saving: tuple[Say, ...]
    end: tuple[Say, ...]
    accelerator: str = "cuda"
    pipelines: bool = False
    by_rank: float = 0.2
    bar: bool = False
    log_every: tuple[int, ...] = (1, 1, 5, 10)
    prefixes: tuple[str, ...] = ("", "", "[rank{rank}]: ", "{rank}: ")
    script: str = "train.py"


def _says(*rows: tuple[object, ...]) -> tuple[Say, ...]:
    return tuple(Say(*row) for row in rows)  # type: ignore[arg-type]


_NCCL = _says(
    ("local0", "nccl", "info", "", "Bootstrap : Using @{nic}:@{ip}<0>"),
    ("each", "nccl", "info", "", "NET/Plugin: No plugin found (libnccl-net.so), using internal net plugin.", 1, True),
    ("first", "nccl", "info", "", "NCCL version @{v_nccl}+cuda12.4"),
    ("each", "nccl", "info", "", "NET/IB : Using [0]@{hca}:1/@{of:IB|RoCE} [1]mlx5_1:1/@{of:IB|RoCE} [RO]; OOB @{nic}:@{ip}<0>", 1, True),
    ("each", "nccl", "info", "", "Using network IB", 1, True),
    ("each", "nccl", "info", "", "ncclCommInitRankConfig comm 0x@{hex:12} rank @{rank} nranks @{world} cudaDev @{local} nvmlDev @{local} busId @{busid} commId 0x@{hex:16} - Init START", 1, True),
    ("each", "nccl", "info", "", "Channel 0@{int:0-7}/0 : @{rank}[@{local}] -> @{next}[@{nextlocal}] [send] via NET/IB/@{int:0-7}/GDRDMA", 1, True),
    ("each", "nccl", "info", "", "Connected all rings", 1, True),
    ("each", "nccl", "info", "", "ncclCommInitRankConfig comm 0x@{hex:12} rank @{rank} nranks @{world} cudaDev @{local} nvmlDev @{local} busId @{busid} commId 0x@{hex:16} - Init COMPLETE"),
)  # fmt: skip
_OMP = _says(
    ("local0", "raw", "warning", "", "*****************************************"),
    ("local0", "raw", "warning", "", "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded, please further tune the variable for optimal performance in your application as needed. "),
    ("local0", "raw", "warning", "", "*****************************************"),
)  # fmt: skip
_CANN = _says(
    ("each", "cann", "info", "HCCL", "[topo_info_detect.cc:@{int:80-400}][@{pid}]init success, rank[@{rank}], devicePhyId[@{local}], hostIp[@{ip}]", 1, True),
    ("each", "cann", "info", "HCCL", "[hccl_comm.cc:112][@{pid}]HcclCommInitClusterInfo success, take time [@{int:2000-90000}]us, rankNum[@{world}], rank[@{rank}]"),
    ("local0", "cann", "warning", "TDT", "[log.cpp:@{int:90-190}][@{pid}]tdt client is not ready, wait and retry, times @{int:1-3}"),
    ("each", "cann", "debug", "RUNTIME", "[device.cc:@{int:200-900}][@{pid}]device @{local} stream pool size 1024, used @{int:4-40}", 1, True),
)  # fmt: skip

MEGATRON = Style(
    "megatron", "megatron", "last",
    boot=_OMP + _says(
        ("first", "raw", "info", "", "using world size: @{world}, data-parallel size: @{dp}, context-parallel size: 1, tensor-model-parallel size: @{tp}, pipeline-model-parallel size: @{pp}"),
        ("first", "raw", "info", "", "------------------------ arguments ------------------------"),
        ("first", "raw", "info", "", "  attention_dropout ............................... 0.0"),
        ("first", "raw", "info", "", "  global_batch_size ............................... @{batch}"),
        ("first", "raw", "info", "", "  hidden_size ..................................... @{hidden}"),
        ("first", "raw", "info", "", "  load ............................................ @{ckpt}"),
        ("first", "raw", "info", "", "  num_layers ...................................... @{layers}"),
        ("first", "raw", "info", "", "  world_size ...................................... @{world}"),
        ("first", "raw", "info", "", "-------------------- end of arguments ---------------------"),
        ("first", "raw", "info", "", "> building GPT2BPETokenizer tokenizer ..."),
        ("first", "raw", "info", "", " > padded vocab (size: 50257) with @{int:47-943} dummy tokens (new size: @{int:50304-51200})"),
        ("first", "raw", "info", "", "> initializing torch distributed ..."),
    ) + _NCCL + _says(
        ("first", "raw", "info", "", "> initialized tensor model parallel with size @{tp}"),
        ("first", "raw", "info", "", "> initialized pipeline model parallel with size @{pp}"),
        ("first", "raw", "info", "", "> compiling and loading fused kernels ..."),
        ("local0", "warn", "warning", "torch/utils/cpp_extension.py:2059", "UserWarning: TORCH_CUDA_ARCH_LIST is not set, all archs for visible cards are included for compilation."),
        ("first", "raw", "info", "", ">>> done with compiling and loading fused kernels. Compilation time: @{real:1-40} seconds"),
        ("tp0", "raw", "info", "", " > number of parameters on (tensor, pipeline) model parallel rank (0, @{stage}): @{int:300000000-1700000000}"),
    ),
    load=_says(
        ("first", "raw", "info", "", "> building train, validation, and test datasets for GPT ..."),
        ("first", "raw", "info", "", " > loading indexed mapping from @{data}/index_@{hex:8}_doc_idx.npy"),
        ("tp0", "raw", "debug", "", " > dp rank @{dprank}: shard list of @{int:80-90} files, first document @{int:1000-900000}", 1, True),
        ("first", "raw", "info", "", " loading release checkpoint from @{ckpt}"),
        ("first", "raw", "info", "", "  successfully loaded checkpoint from @{ckpt} [ t 0, p 0 ] at iteration @{first}"),
        ("last", "raw", "info", "", "(min, max) time across ranks (ms):\n    model-and-optimizer-setup ......................: (@{real:2000-2100}, @{real:2100-2900})\n    train/valid/test-data-iterators-setup ..........: (@{real:300-400}, @{real:500-900})"),
        ("first", "raw", "info", "", "[before the start of training step] datetime: @{plain} "),
    ),
    steps=_says(
        ("last", "raw", "info", "", " [{stamp}] iteration {step:8d}/{total:8d} | consumed samples: {samples:12d} | elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): {tflops:.1f} | learning rate: {lr:.6E} | global batch size: {batch:5d} | lm loss: {loss:.6E} | loss scale: {scale:.1f} | grad norm: {gnorm:.3f} | number of skipped iterations: {skipped:3d} | number of nan iterations: {nan:3d} |"),
        ("each", "raw", "info", "", "[Rank {rank}] (after {step} iterations) memory (MB) | allocated: {mem:.2f} | max allocated: {maxmem:.2f} | reserved: {reserved:.1f} | max reserved: {reserved:.1f}", 60),
        ("tp0", "raw", "debug", "", "timers rank {rank} iter {step}: forward-backward {mine:.1f} batch-generator {data:.2f} optimizer {opt:.2f}", 6, True),
        ("last", "raw", "info", "", "(min, max) time across ranks (ms):\n    forward-backward ...............................: ({low:.2f}, {high:.2f})\n    grads-reduce-scatter ...........................: ({opt:.2f}, {opt2:.2f})\n    optimizer ......................................: ({opt:.2f}, {opt2:.2f})", 12),
    ),
    evaluation=_says(
        ("last", "raw", "info", "", "(min, max) time across ranks (ms):\n    evaluate .......................................: (@{real:2000-3000}, @{real:3000-3200})"),
        ("last", "raw", "info", "", "-----------------------------------------------------------------------------------------------------------------\n validation loss at iteration @{step} | lm loss value: @{vloss}E+00 | lm loss PPL: @{real:4-30}E+00 | \n-----------------------------------------------------------------------------------------------------------------"),
    ),
    saving=_says(
        ("first", "raw", "info", "", "saving checkpoint at iteration @{step} to @{ckpt} in torch_dist format"),
        ("local0", "log", "debug", "megatron.dist_checkpointing.filesystem", "rank @{rank}: wrote @{int:2-12} buckets, @{real:2-20} GB, in @{real:3-20} s", 1, True),
        ("first", "raw", "info", "", "  successfully saved checkpoint from iteration @{step} to @{ckpt} [ t 1/@{tp}, p 1/@{pp} ]"),
        ("last", "raw", "info", "", "(min, max) time across ranks (ms):\n    save-checkpoint ................................: (@{real:9000-9100}, @{real:9100-9600})"),
    ),
    end=_says(
        ("first", "raw", "info", "", "[after training is done] datetime: @{plain} "),
        ("last", "raw", "info", "", "exiting program at iteration @{step}"),
    ),
    pipelines=True, prefixes=("", "", "{rank}: ", "[default{local}]:"), script="pretrain_gpt.py",
)  # fmt: skip

DEEPSPEED = Style(
    "deepspeed", "deepspeed", "first",
    boot=_says(
        ("local0", "log", "info", "launcher.launch", "nnodes=@{nodes}, num_local_procs=@{per_node}, node_rank=@{node}"),
        ("each", "log", "info", "accelerator.real_accelerator", "Setting ds_accelerator to cuda (auto detect)"),
        ("each", "log", "info", "deepspeed.comm.comm", "cdb=None"),
        ("first", "log", "info", "deepspeed.comm.comm", "Initializing TorchBackend in DeepSpeed with backend nccl"),
    ) + _NCCL + _says(
        ("each", "raw", "info", "", "Installed CUDA version 12.4 does not match the version torch was compiled with 12.1 but since the APIs are compatible, accepting this combination"),
        ("each", "raw", "info", "", "Loading extension module fused_adam..."),
        ("each", "raw", "info", "", "Time to load fused_adam op: @{real:0-30} seconds"),
        ("first", "log", "info", "deepspeed.utils.logging", "[Rank 0] DeepSpeed Final Optimizer = DeepSpeedZeroOptimizer_Stage@{of:1|2|3}"),
        ("each", "raw", "info", "", "Rank: @{rank} partition count [@{dp}] and sizes[(@{int:10000000-90000000}, False)] "),
    ),
    load=_says(
        ("first", "log", "info", "deepspeed.runtime.engine", "[Rank 0] DeepSpeed Basic Optimizer = FusedAdam"),
        ("each", "log", "warning", "deepspeed.runtime.engine", "Unable to find latest file at @{ckpt}/latest, if trying to load latest checkpoint please ensure this file exists or pass an explicit checkpoint tag when loading a checkpoint."),
        ("local0", "raw", "info", "", "[data] node @{node} tokenised cache found at @{data}/cache-@{hex:10}.arrow"),
        ("first", "raw", "info", "", "***** Running training: @{total} steps, micro batch @{int:1-8}, world @{world} *****"),
    ),
    steps=_says(
        ("first", "log", "info", "deepspeed.utils.logging", "[Rank 0] step={step}, skipped={skippedsum}, lr=[{lr:.6g}, {lr:.6g}], mom=[(0.9, 0.95), (0.9, 0.95)]"),
        ("first", "log", "info", "deepspeed.utils.timer", "epoch=0/micro_step={micro}/global_step={step}, RunningAvgSamplesPerSec={avgsps:.2f}, CurrSamplesPerSec={sps:.2f}, MemAllocated={memgb:.2f}GB, MaxMemAllocated={maxgb:.2f}GB"),
        ("first", "raw", "info", "", "steps: {step} loss: {loss:.4f} iter time (s): {sec:.3f} samples/sec: {sps:.3f}"),
        ("each", "log", "info", "deepspeed.utils.logging", "rank={rank} time (ms) | fwd: {fwd:.2f} | bwd: {bwd:.2f} | bwd_allreduce: {opt:.2f} | step: {opt2:.2f}", 10),
        ("local0", "log", "debug", "train.data", "node {node} prefetch depth {depth}, wait {data:.2f} ms", 8, True),
    ),
    evaluation=_says(
        ("first", "raw", "info", "", "***** Evaluating perplexity, step @{step} *****"),
        ("each", "log", "info", "deepspeed.utils.logging", "rank=@{rank} eval shard done, batches=@{int:20-40}", 1, True),
        ("first", "raw", "info", "", "ppl: @{real:5-20}, loss: @{vloss}"),
    ),
    saving=_says(
        ("first", "log", "info", "deepspeed.utils.logging", "[Torch] Checkpoint global_step@{step} is about to be saved!"),
        ("each", "log", "info", "deepspeed.runtime.checkpoint_engine", "[Torch] Saving @{ckpt}/global_step@{step}/bf16_zero_pp_rank_@{rank}_mp_rank_00_optim_states.pt..."),
        ("each", "log", "info", "deepspeed.runtime.checkpoint_engine", "[Torch] Saved @{ckpt}/global_step@{step}/bf16_zero_pp_rank_@{rank}_mp_rank_00_optim_states.pt."),
        ("each", "log", "info", "deepspeed.runtime.engine", "zero checkpoint saved @{ckpt}/global_step@{step}/bf16_zero_pp_rank_@{rank}_mp_rank_00_optim_states.pt"),
        ("each", "log", "info", "deepspeed.runtime.checkpoint_engine", "[Torch] Checkpoint global_step@{step} is ready now!"),
    ),
    end=_says(
        ("local0", "log", "info", "launcher.launch", "Process @{pid} exits successfully."),
        ("first", "raw", "info", "", "training finished, last step @{step}"),
    ),
    prefixes=("", "{host}: ", "[rank{rank}]: "), script="main.py",
)  # fmt: skip

HF = Style(
    "hf", "hf", "first",
    boot=_OMP + _NCCL + _says(
        ("each", "raw", "warning", "", "@{accented} - WARNING - __main__ - Process rank: @{rank}, device: cuda:@{local}, n_gpu: 1, distributed training: True, 16-bits training: False"),
        ("first", "log", "info", "transformers.configuration_utils", "loading configuration file @{root}/models/@{model}/config.json"),
        ("first", "log", "info", "transformers.tokenization_utils_base", "loading file tokenizer.json"),
        ("first", "log", "warning", "transformers.tokenization_utils_base", "Special tokens have been added in the vocabulary, make sure the associated word embeddings are fine-tuned or trained."),
        ("first", "log", "info", "transformers.modeling_utils", "loading weights file @{root}/models/@{model}/model.safetensors.index.json"),
        ("each", "raw", "info", "", "\rLoading checkpoint shards:   0%|          | 0/4 [00:00<?, ?it/s]\rLoading checkpoint shards:  50%|█████     | 2/4 [00:0@{int:1-9}<00:0@{int:1-9}, 1.@{int:10-99}s/it]\rLoading checkpoint shards: 100%|██████████| 4/4 [00:1@{int:1-9}<00:00, 1.@{int:10-99}s/it]"),
    ),
    load=_says(
        ("first", "log", "info", "transformers.modeling_utils", "All model checkpoint weights were used when initializing LlamaForCausalLM."),
        ("each", "warn", "warning", "transformers/training_args.py:1568", "FutureWarning: `evaluation_strategy` is deprecated and will be removed in version 4.46 of 🤗 Transformers. Use `eval_strategy` instead"),
        ("local0", "raw", "info", "", "\rRunning tokenizer on dataset (num_proc=16):   0%|          | 0/52002 [00:00<?, ? examples/s]\rRunning tokenizer on dataset (num_proc=16): 100%|██████████| 52002/52002 [00:@{int:10-59}<00:00, @{int:900-4000}.12 examples/s]"),
        ("first", "log", "info", "transformers.trainer", "***** Running training *****"),
        ("first", "log", "info", "transformers.trainer", "  Total optimization steps = @{total}"),
        ("first", "log", "info", "transformers.trainer", "  Number of trainable parameters = @{int:1000000000-9000000000}"),
    ),
    steps=_says(
        ("first", "raw", "info", "", "{bar}{{'loss': {loss:.4f}, 'grad_norm': {gnorm:.4f}, 'learning_rate': {lr:.6g}, 'epoch': {epoch:.2f}}}"),
        ("each", "raw", "debug", "", "[timing] rank={rank} step={step} fwd_bwd={mine:.0f}ms data={data:.1f}ms", 15, True),
    ),
    evaluation=_says(
        ("first", "log", "info", "transformers.trainer", "***** Running Evaluation *****"),
        ("first", "log", "info", "transformers.trainer", "  Num examples = @{int:500-5000}"),
        ("first", "raw", "info", "", "\r  0%|          | 0/64 [00:00<?, ?it/s]\r 50%|█████     | 32/64 [00:0@{int:1-9}<00:0@{int:1-9}, 7.21it/s]\r100%|██████████| 64/64 [00:1@{int:1-9}<00:00, 7.30it/s]{'eval_loss': @{vloss}, 'eval_runtime': @{real:10-20}, 'eval_samples_per_second': @{real:30-90}, 'epoch': @{epoch}}"),
    ),
    saving=_says(
        ("first", "log", "info", "transformers.trainer", "Saving model checkpoint to @{ckpt}/checkpoint-@{step}"),
        ("first", "log", "info", "transformers.configuration_utils", "Configuration saved in @{ckpt}/checkpoint-@{step}/config.json"),
        ("first", "log", "info", "transformers.modeling_utils", "The model is bigger than the maximum size per checkpoint (5GB) and is going to be split in @{int:3-30} checkpoint shards. You can find where each parameters has been saved in the index located at @{ckpt}/checkpoint-@{step}/model.safetensors.index.json."),
        ("local0", "raw", "info", "", "[fsdp] node @{node} sharded optimizer state written to @{ckpt}/checkpoint-@{step}/optimizer_0", 1, True),
        ("first", "log", "info", "transformers.tokenization_utils_base", "tokenizer config file saved in @{ckpt}/checkpoint-@{step}/tokenizer_config.json"),
    ),
    end=_says(
        ("first", "log", "info", "transformers.trainer", "\n\nTraining completed. Do not forget to share your model on huggingface.co/models =)\n\n"),
        ("first", "raw", "info", "", "{'train_runtime': @{real:2000-90000}, 'train_samples_per_second': @{real:20-90}, 'train_loss': @{vloss}, 'epoch': @{epoch}}"),
    ),
    bar=True, script="run_clm.py",
)  # fmt: skip

ACCELERATE = Style(
    "accelerate", "accelerate", "first",
    boot=_NCCL + _says(
        ("each", "log", "info", "__main__", "Distributed environment: DistributedType.FSDP  Backend: nccl\nNum processes: @{world}\nProcess index: @{rank}\nLocal process index: @{local}\nDevice: cuda:@{local}\n\nMixed precision type: bf16\n"),
        ("first", "warn", "warning", "accelerate/utils/fsdp_utils.py:110", "FutureWarning: You are using `torch.load` with `weights_only=False` (the current default value), which uses the default pickle module implicitly."),
    ),
    load=_says(
        ("first", "log", "info", "__main__", "***** Running training *****"),
        ("first", "log", "info", "__main__", "  Total optimization steps = @{total}"),
        ("local0", "log", "info", "datasets.builder", "Found cached dataset @{v_corpus} (@{data}/0.0.0/@{hex:16})"),
    ),
    steps=_says(
        ("first", "log", "info", "__main__", "step={step}, step_loss={loss:.4f}, lr={lr:.3e}, grad_norm={gnorm:.3f}"),
        ("each", "log", "debug", "__main__", "rank {rank} | step {step} | tokens {tok} | {mine:.1f} ms", 12, True),
    ),
    evaluation=_says(
        ("first", "log", "info", "__main__", "Running validation at step @{step}"),
        ("first", "log", "info", "__main__", "epoch @{epoch}: perplexity: @{real:5-20} eval_loss: @{vloss}"),
    ),
    saving=_says(
        ("each", "log", "info", "accelerate.accelerator", "Saving current state to @{ckpt}/step_@{step}"),
        ("each", "log", "info", "accelerate.accelerator", "Saving FSDP model"),
        ("each", "log", "info", "accelerate.checkpointing", "Random states saved in @{ckpt}/step_@{step}/random_states_@{rank}.pkl"),
        ("first", "log", "info", "accelerate.checkpointing", "Optimizer state saved in @{ckpt}/step_@{step}/optimizer_0"),
    ),
    end=_says(("first", "log", "info", "__main__", "Training finished after @{step} steps")),
    script="finetune.py",
)  # fmt: skip

TITAN = Style(
    "titan", "titan", "each",
    boot=_says(
        ("each", "log", "info", "titan", "Starting job: @{job}"),
        ("each", "log", "warning", "titan", "ENV[TORCH_NCCL_ASYNC_ERROR_HANDLING] = 1 will be overridden to 3 based on job config"),
    ) + _NCCL + _says(
        ("each", "log", "info", "titan", "Building 2-D device mesh with ['dp_shard', 'tp'], [@{dp}, @{tp}]"),
        ("each", "log", "info", "titan", "CUDA capacity: NVIDIA H100 80GB HBM3 with 79.10GiB memory"),
        ("each", "log", "info", "titan", "Applied selective activation checkpointing to the model"),
    ),
    load=_says(
        ("each", "log", "info", "titan", "Preparing @{v_corpus} dataset from @{data}"),
        ("each", "log", "info", "titan", "CUDA memory usage for model: @{real:4-9}GiB(@{real:5-11}%)"),
        ("each", "log", "info", "titan", "Checkpointing active. Checkpoints will be loaded from and saved to @{ckpt}"),
        ("each", "log", "info", "titan", "Training starts at step @{firstplus}, with local batch size 1, global batch size @{batch}, sequence length 8192, total steps @{total} (warmup 200)"),
    ),
    steps=_says(
        ("local0", "log", "info", "titan", "step: {step}  loss: {loss:8.5f}  grad_norm: {gnorm:7.4f}  memory: {memgb:.2f}GiB({mempct:.2f}%)  tps: {tps}  tflops: {tflops:.2f}  mfu: {mfu:.2f}%"),
        ("each", "log", "debug", "titan", "rank {rank} step {step} iter {mine:.1f} ms, data {data:.2f} ms", 14, True),
    ),
    evaluation=_says(
        ("local0", "log", "info", "titan", "validate step: @{step}  loss: @{vloss}  memory: @{real:40-60}GiB(@{real:50-70}%)  tps: @{int:9000-12000}"),
    ),
    saving=_says(
        ("each", "log", "info", "titan", "Saving the checkpoint (or staging if async is enabled)."),
        ("each", "log", "info", "titan", "Finished saving the checkpoint (or staging if async is enabled) in @{real:1-30} seconds."),
    ),
    end=_says(
        ("first", "log", "info", "titan", "Sleeping 2 seconds for other ranks to complete"),
        ("each", "log", "info", "titan", "Training completed"),
        ("each", "log", "info", "titan", "Process group destroyed"),
    ),
    pipelines=True, by_rank=0.5, prefixes=("[rank{rank}]:", "[rank{rank}]:", "{rank}: "), script="torchtitan/train.py",
)  # fmt: skip

NEMO = Style(
    "nemo", "nemo", "first",
    boot=_says(
        ("each", "log", "warning", "nemo_logging", "@{site}/lightning_fabric/plugins/environments/slurm.py:204: The `srun` command is available on your system but is not used."),
        ("first", "log", "info", "exp_manager", "Experiments will be logged at @{root}/@{job}"),
        ("first", "log", "warning", "exp_manager", "There were no checkpoints found in checkpoint_dir or no checkpoint folder at checkpoint_dir :@{ckpt}. Training from scratch."),
        ("each", "raw", "info", "", "Initializing distributed: GLOBAL_RANK: @{rank}, MEMBER: @{rankplus}/@{world}"),
    ) + _NCCL + _says(
        ("first", "raw", "info", "", "----------------------------------------------------------------------------------------------------\ndistributed_backend=nccl\nAll distributed processes registered. Starting with @{world} processes\n----------------------------------------------------------------------------------------------------"),
        ("each", "log", "info", "megatron_init", "Rank @{rank} has data parallel rank: @{dprank}"),
        ("each", "raw", "info", "", "LOCAL_RANK: @{local} - CUDA_VISIBLE_DEVICES: [0,1,2,3,4,5,6,7]"),
    ),
    load=_says(
        ("first", "log", "info", "data_module", "Building GPT train datasets from @{data}"),
        ("first", "raw", "info", "", "\n  | Name  | Type       | Params | Mode \n---------------------------------------------\n0 | module | GPTModel  | @{real:1-9} B  | train\n---------------------------------------------"),
        ("first", "raw", "info", "", "\rSanity Checking DataLoader 0:   0%|          | 0/2 [00:00<?, ?it/s]\rSanity Checking DataLoader 0: 100%|██████████| 2/2 [00:0@{int:1-9}<00:00,  0.61it/s]"),
    ),
    steps=_says(
        ("first", "raw", "info", "", "Training epoch 0, iteration {step}/{total} | lr: {lr:.4g} | global_batch_size: {batch} | global_step: {step} | reduced_train_loss: {loss:.4f} | train_step_timing in s: {sec:.3f} | consumed_samples: {samples}"),
        ("local0", "log", "debug", "timing_callback", "node {node} step {step} fwd_bwd {mine:.0f} ms dataload {data:.1f} ms", 6, True),
    ),
    evaluation=_says(
        ("first", "raw", "info", "", "Validation: iteration 1/32"),
        ("first", "raw", "info", "", "Validation: iteration 32/32"),
        ("first", "log", "info", "callbacks", "val_loss: @{vloss} (best @{vloss})"),
    ),
    saving=_says(
        ("first", "log", "info", "model_checkpoint", "Global Checkpoint save : Rank: 0 : Iteration: @{step} : Start time: @{int:1783000000-1793000000}.@{int:100-999}s : Save duration: @{real:0-9}s"),
        ("each", "log", "info", "fully_parallel", "Rank @{rank} wrote its shards of @{ckpt}/step=@{step} in @{real:1-30}s", 1, True),
        ("first", "log", "info", "model_checkpoint", "Async checkpoint save for step @{step} (@{ckpt}/model--step=@{step}-last) finalized successfully."),
    ),
    end=_says(("first", "raw", "info", "", "`Trainer.fit` stopped: `max_steps=@{total}` reached.")),
    pipelines=True, prefixes=("", "{rank}: ", "[default{local}]:"), script="megatron_gpt_pretraining.py",
)  # fmt: skip

SWIFT = Style(
    "swift", "swift", "first",
    boot=_OMP + _says(
        ("each", "log", "info", "swift", "rank: @{rank}, local_rank: @{local}, world_size: @{world}, local_world_size: @{per_node}"),
        ("each", "log", "info", "swift", "Loading the model using model_dir: @{root}/models/@{model}"),
    ) + _NCCL,
    load=_says(
        ("each", "log", "info", "swift", "Setting torch_dtype: torch.bfloat16"),
        ("local0", "raw", "info", "", "\rMap (num_proc=8):   0%|          | 0/20000 [00:00<?, ? examples/s]\rMap (num_proc=8): 100%|██████████| 20000/20000 [00:@{int:10-50}<00:00, @{int:300-900}.1 examples/s]"),
        ("first", "log", "info", "swift", "Dataset Token Length: @{real:200-900}±@{real:80-300}, min=@{int:9-30}.000000, max=@{int:2000-8000}.000000, size=@{int:9000-90000}"),
        ("first", "log", "info", "swift", "The logging file will be saved in: @{ckpt}/v0/logging.jsonl"),
    ),
    steps=_says(
        ("first", "raw", "info", "", "{bar}{{'loss': {loss:.6f}, 'grad_norm': {gnorm:.4f}, 'learning_rate': {lr:.6g}, 'epoch': {epoch:.2f}, 'global_step/max_steps': '{step}/{total}', 'memory(GiB)': {memgb:.2f}, 'train_speed(s/it)': {sec:.6f}}}"),
        ("each", "log", "debug", "swift", "[rank{rank}] step {step} packed length {seqlen} cost {mine:.0f} ms", 13, True),
    ),
    evaluation=_says(("first", "raw", "info", "", "{'eval_loss': @{vloss}, 'eval_token_acc': 0.@{int:500-900}, 'eval_runtime': @{real:10-90}, 'epoch': @{epoch}, 'global_step/max_steps': '@{step}/@{total}'}")),
    saving=_says(
        ("first", "log", "info", "swift", "Saving model checkpoint to @{ckpt}/v0/checkpoint-@{step}"),
        ("each", "log", "debug", "swift", "[rank@{rank}] optimizer shard flushed", 1, True),
    ),
    end=_says(
        ("first", "log", "info", "swift", "last_model_checkpoint: @{ckpt}/v0/checkpoint-@{step}"),
        ("first", "log", "info", "swift", "End time of running main: @{plain}"),
    ),
    bar=True, script="swift/cli/sft.py",
)  # fmt: skip

MINDSPEED = Style(
    "mindspeed", "mindspeed", "last",
    boot=_says(
        ("each", "warn", "warning", "torch_npu/contrib/transfer_to_npu.py:211", "ImportWarning: \n    *************************************************************************************************************\n    The torch.Tensor.cuda and torch.nn.Module.cuda are replaced with torch.Tensor.npu and torch.nn.Module.npu now..\n    *************************************************************************************************************"),
        ("first", "raw", "info", "", "using world size: @{world}, data-parallel size: @{dp}, tensor-model-parallel size: @{tp}, pipeline-model-parallel size: @{pp} "),
        ("first", "raw", "info", "", "> initializing torch distributed ..."),
    ) + _CANN + _says(
        ("each", "raw", "info", "", "> setting random seeds to 1234 ..."),
        ("tp0", "raw", "info", "", " > number of parameters on (tensor, pipeline) model parallel rank (0, @{stage}): @{int:300000000-1700000000}"),
    ),
    load=_says(
        ("first", "raw", "info", "", "> building train, validation, and test datasets ..."),
        ("each", "raw", "info", "", "time to load dataset index: @{real:0-2} s, rank @{rank}", 1, True),
        ("first", "raw", "info", "", " loading checkpoint from @{ckpt} at iteration @{first}"),
        ("each", "log", "info", "mindspeed.checkpoint", "shard for stage @{stage} loaded in @{real:3-50} s"),
    ),
    steps=_says(
        ("last", "raw", "info", "", " [{stamp}] iteration {step:8d}/{total:8d} | consumed samples: {samples:12d} | elapsed time per iteration (ms): {ms:.1f} | learning rate: {lr:.3E} | global batch size: {batch:5d} | lm loss: {loss:.6E} | loss scale: {scale:.1f} | grad norm: {gnorm:.3f} | actual seqlen: {seqlen:5d} | number of skipped iterations: {skipped:3d} | number of nan iterations: {nan:3d} |"),
        ("each", "log", "info", "mindspeed.profile", "iter {step} compute {mine:.1f} ms, wait {data:.2f} ms, hbm {memgb:.1f} GB", 10),
        ("each", "cann", "debug", "RUNTIME", "[stream.cc:418][{pid}]stream sync, device {local}, task {task}", 25, True),
    ),
    evaluation=_says(
        ("last", "raw", "info", "", "-----------------------------------------------\n validation loss at iteration @{step} | lm loss value: @{vloss}E+00 | lm loss PPL: @{real:4-30}E+00 |\n-----------------------------------------------"),
    ),
    saving=_says(
        ("first", "raw", "info", "", "saving checkpoint at iteration @{step} to @{ckpt}"),
        ("tp0", "log", "info", "mindspeed.checkpoint", "distrib_optim shard of dp rank @{dprank} written, @{real:2-9} GB"),
        ("first", "raw", "info", "", "  successfully saved checkpoint at iteration @{step} to @{ckpt}"),
    ),
    end=_says(("first", "raw", "info", "", "[after training is done] datetime: @{plain}")),
    accelerator="npu", pipelines=True, by_rank=0.4, prefixes=("", "[rank{rank}] "), script="pretrain_gpt.py",
)  # fmt: skip


def _custom(name: str, form: str, accelerator: str = "cuda") -> Style:
    return Style(
        name, form, "first",
        boot=_says(
            ("each", "log", "info", "train.setup", "process up, local rank @{local}, pid @{pid}, commit @{v_commit}"),
            ("first", "log", "info", "train.setup", "layout tp=@{tp} pp=@{pp} dp=@{dp}, @{nodes} nodes, rendezvous @{masterip}:@{port}"),
            ("each", "log", "debug", "train.comm", "joined process group as @{rank} of @{world} after @{real:0-20}s", 1, True),
        ) + (_NCCL if accelerator == "cuda" else _CANN) + _says(
            ("local0", "log", "info", "train.host", "node @{host}: @{per_node} devices, @{int:900-2000} GB RAM, /dev/shm @{int:100-900} GB free"),
            ("tp0", "log", "info", "train.model", "stage @{stage}: @{int:4-40} layers, @{real:1-9}B parameters"),
        ),
        load=_says(
            ("tp0", "log", "info", "train.data", "dp rank @{dprank} takes @{int:40-400} of @{int:900-9000} shards under @{data}"),
            ("each", "log", "debug", "train.ckpt", "restore: read @{real:1-9} GB from @{ckpt}/step_@{first}/r@{rank}", 1, True),
            ("first", "log", "info", "train.loop", "starting at step @{first}, @{total} to go to"),
        ),
        steps=_says(
            ("first", "log", "info", "train.loop", "step {step} loss {loss:.4f} gnorm {gnorm:.3f} lr {lr:.3e} tok/s {tok} time {sec:.2f}s"),
            ("each", "log", "info", "train.perf", "step {step}: compute {mine:.0f}ms data {data:.0f}ms comm {opt:.0f}ms mem {memgb:.1f}G", 10),
            ("local0", "log", "debug", "train.data", "queue {depth}/32, last shard part-{shard:05d}", 4, True),
        ),
        evaluation=_says(
            ("first", "log", "info", "train.eval", "evaluation at step @{step}"),
            ("tp0", "log", "debug", "train.eval", "dp rank @{dprank}: @{int:10-40} batches", 1, True),
            ("first", "log", "info", "train.eval", "eval loss @{vloss} over @{int:1000-9000} sequences"),
        ),
        saving=_says(
            ("first", "log", "info", "train.ckpt", "checkpoint step @{step} begins"),
            ("each", "log", "info", "train.ckpt", "shard r@{rank} written (@{real:1-9} GB, @{real:1-30}s)"),
            ("first", "log", "info", "train.ckpt", "checkpoint step @{step} committed to @{ckpt}/step_@{step}"),
        ),
        end=_says(
            ("each", "log", "info", "train.main", "finished at step @{step}, leaving"),
        ),
        accelerator=accelerator, pipelines=True, by_rank=0.35, prefixes=("", "", "{rank}: "), script="src/train.py",
    )  # fmt: skip


STYLES = {
    style.name: style
    for style in (
        MEGATRON, DEEPSPEED, HF, ACCELERATE, TITAN, NEMO, SWIFT, MINDSPEED,
        _custom("custom-plain", "plain"), _custom("custom-loguru", "loguru"), _custom("custom-json", "json"),
        _custom("custom-logfmt", "logfmt"), _custom("custom-bracket", "bracket", "npu"),
    )
}  # fmt: skip
WEIGHTS = {
    "megatron": 22, "deepspeed": 13, "hf": 9, "accelerate": 5, "titan": 9, "nemo": 8, "swift": 6, "mindspeed": 16,
    "custom-plain": 5, "custom-loguru": 3, "custom-json": 3, "custom-logfmt": 2, "custom-bracket": 4,
}  # fmt: skip
