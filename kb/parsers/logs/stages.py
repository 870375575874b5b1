"""Lines that mark the start of a stage of a run. Rare lines only: none of these is printed with every iteration."""

from __future__ import annotations

from kb.model import Stage

# Ordered: if two match a line, the first one counts. Each regex is in the safe subset.
STAGES: tuple[tuple[Stage, str], ...] = (
    ("teardown", r"Sending process [0-9]+ closing signal"),
    ("teardown", r"destroy_process_group\(\) was not called|Destroying process group|destroying process group"),
    ("teardown", r"Training completed|exiting program (?:at|after)|\[after training is done\]"),
    ("teardown", r"`Trainer\.fit` stopped:|'train_runtime': |Process [0-9]+ exits successfully"),
    ("teardown", r"worker group successfully finished|Killing subprocess [0-9]"),
    ("saving", r"saving checkpoint (?:at|to|in) |Saving checkpoint (?:at|to|in) "),
    ("saving", r"Saving checkpoint\. This may take|[Ss]aving (?:un)?sharded checkpoint|Saving pre-train checkpoint"),
    ("saving", r"Saving model checkpoint|Saving current state to |Saving the checkpoint|Saving a full checkpoint|Saving models and training states"),
    ("saving", r"\[Torch\] Saving |is about to be saved!|Scheduled async checkpoint save"),
    ("saving", r"Preparing to save checkpoint for epoch|saving model to .* as top [0-9]|Saved model parameters to: "),
    ("evaluating", r"\*\*\*\*\* Running [Ee]valuation|\*\*\*\*\* Running [Pp]rediction"),
    ("evaluating", r"validation loss at iteration|valid loss at iteration|Evaluating iter 0/|Evaluating on [0-9]+ samples"),
    ("evaluating", r"(?:Sanity Checking|Validation) DataLoader [0-9]+: +0%|begin validation on "),
    ("evaluating", r"Running (?:evaluation|validation) only|Running (?:evaluation|validation) loop|\*\*\* Training summary for epoch [0-9]"),
    ("evaluating", r"Evaluating (?:task|group) [A-Za-z]|[Ss]tarting evaluation of |Running evaluation on "),
    ("iterating", r"\*\*\*\*\* Running [Tt]raining|\[before the start of training step\]"),
    ("iterating", r"training \.\.\.|done with setup \.\.\.|Training starts at step|Start(?:ing)? training (?:loop|at|from)"),
    ("iterating", r"Training:? +0%\||Epoch 0:? +0%\||Start running, host:|start training from epoch"),
    ("init", r"Checkpoint loaded in [0-9]|[Ss]uccessfully loaded checkpoint|Loading checkpoint shards: 100%"),
    ("checkpoint_load", r"loading (?:distributed |release )?checkpoint from |[Ll]oading the checkpoint (?:from|at)"),
    ("checkpoint_load", r"is loading checkpoint /|\[Torch\] Loading checkpoint|Restoring states from the checkpoint"),
    ("checkpoint_load", r"Loading checkpoint shards: +0%|Loading model weights|Loading safetensors checkpoint shards: +0%"),
    ("checkpoint_load", r"[Rr]esuming (?:training )?from (?:the )?checkpoint|Resuming training from |Attempting to resume from "),
    ("checkpoint_load", r"loading weights file |Loading states from |[Ll]oads? checkpoint (?:from local path|by local backend)"),
    ("data_load", r"> building train, validation, and test datasets|building GPT2? datasets|> building dataset index"),
    ("data_load", r"Map(?: \(num_proc=[0-9]+\))?: +0%.* examples/s|Running tokenizer on .*: +0%|Tokenizing .*: +0%"),
    ("data_load", r"Generating (?:train|validation|test) split|[Ll]oading dataset|[Ll]oading datasets|loading data \.\.\."),
    ("data_load", r"building the index map|Using custom data configuration|Preparing .* dataloader|Building dataloader"),
    ("init", r"[Ii]nitializing torch distributed|[Ii]nitializing distributed|[Ii]nitialized distributed|> initializing model parallel"),
    ("init", r"Added key: store_based_barrier_key|Initializing TorchBackend in DeepSpeed|distributed_backend=nccl"),
    ("init", r"building [A-Za-z0-9_-]+ model|Init COMPLETE|DeepSpeed info: version|> compiling dataset index builder"),
    ("init", r"\| distributed init \(rank [0-9]+\)|process group initiali[sz]ed|Building [0-9]-?D device mesh|Starting job: "),
    ("launch", r"torch\.distributed\.run:|torch/distributed/run\.py:[0-9]+\]|torch\.distributed\.launch is deprecated"),
    ("launch", r"Setting OMP_NUM_THREADS environment variable|Starting elastic_operator with launch configs"),
    ("launch", r"\[launch\.py:[0-9]+:main\] (?:WORLD INFO|nnodes|global_rank|Setting )|\[runner\.py:[0-9]+:main\] cmd = |[Rr]endezvous'?ing worker group"),
    ("launch", r"srun: [Jj]ob [0-9]+ queued|srun: job [0-9]+ has been allocated|Starting worker group|attempts left; will restart worker group|SLURM_JOB_ID[=:]"),
)  # fmt: skip
