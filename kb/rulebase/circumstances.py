"""The circumstances of a run and of a finding that texts can depend on: name → values; an empty tuple means any text.

kb.facts.circumstances and kb.diagnosis.circumstances determine them. One that is unknown has no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from kb.model import Phase, Stage

OF_RUN: Mapping[str, tuple[str, ...]] = {
    "processes": ("one", "several"),
    "nodes": ("one", "several"),
    "device": ("nvidia", "amd", "npu", "tpu", "neuron", "gaudi", "xpu", "apple", "cpu"),
    "precision": ("fp16",),
    "scheduler": ("slurm", "kubernetes"),
    "language": ("python", "native"),
    "job": (),
    "steps": ("none", "some"),
    "recorder": ("on",),  # the flight recorder, which dumps on a timeout
    "checkpoint": ("some",),
    "machine": ("cloud",),  # nodes with the names that clouds give: nobody reaches their management controllers
    "system": ("windows",),
    "kernel": ("seen",),  # a kernel log is at hand
    "ray": ("old",),  # older than 2.0
    "nccl": ("old",),  # older than 2.18
    "torch": ("old",),  # older than 2.0
    "segments": ("on", "none"),  # expandable segments of PyTorch's allocator; none where release or system lacks them
    "detail": ("on",),  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    "blocking": ("on",),  # kernels are launched one after the other: CUDA_LAUNCH_BLOCKING=1 and its like
    "verbose": ("on",),  # NCCL_DEBUG=INFO, or more
    "recompute": ("on",),  # activations are computed again in the backward pass
    "micro_batch": ("one",),  # of one sample
    "batch_setting": (),  # the size of the micro batch that the logs state, such as "micro_batch_size 4"
    "length_setting": (),  # the length of sequences, likewise
    "elastic": ("yes",),  # the launcher's own rendezvous sets MASTER_ADDR and MASTER_PORT
    "work": ("inference",),  # an evaluation, generation or service, without any training
    "stood": (),  # for how long the run provably took no step before its scheduler ended it, such as "4 h"
}
OF_FINDING: Mapping[str, tuple[str, ...]] = {
    "peers": ("yes",),
    "reporters": ("one", "several"),  # the ranks whose lines the finding consists of
    "neighbours": (),  # the ranks on the node of a single suspected rank that are not suspects, such as "ranks 1-3"
    "suspect": (),  # the ranks that are accused, such as "rank 2"
    "stage": get_args(Stage),
    "phase": get_args(Phase),
    "first_step": ("before",),
    "guard": ("yes",),  # the innermost frame only checks a condition and raises an AssertionError
    "frame": (),  # the innermost of the run's own code, of its exception
    "at": (),  # that frame and, if it only calls what raised the exception, the innermost of whatever code
    "numbers": ("bad",),  # most lines before its traceback report values that are not finite
    "waits": (),  # the different collectives in which its ranks wait, such as "rank 0 in ALLGATHER (number 12), rank 1 in ..."
    "crash_stack": ("none",),  # of crashes: no log of the job has a stack that a crash printed
    "calls": ("yes",),  # its line called what raised the exception
    "in_library": ("yes",),  # its exception was raised in a library, and no line of the run's own code is near
    "loader": ("main", "worker"),  # the process in whose traceback a data loader fetches
    "sizes": ("yes",),  # its line states the sizes that do not fit
    "raising": (),  # the innermost frame of its exception, of whatever code
    "raised_before": (),  # the exception of a reader or worker that the line speaks of
    "raised_in": (),  # its innermost frame of the run's own code
    "log": (),  # the path of the log with its first line
    "pid": (),
    "to_host": (),  # the other end of a connection
    "to_port": (),
    "path": (),
    "sender_uid": (),  # of the process that sent a signal
    "worker_ip": (),  # of a worker process that the line names
    "worker_pid": (),
    "worker_class": (),
    "own_folder": (),  # the folder above the failing code that has the name of the module that is not found
    "store": ("yes",),  # its traceback opens the store at which the ranks of torch.distributed meet
    "time_limit": (),  # what the log states of the limit and the time used, such as "-W 2000, run time 120010 s"
    "asks": ("package", "file"),  # of a failed import: the file that asks is the module that lacks the name
    "missing": (),
    "missing_too": (),  # another file that a later exception of the same log says is missing
    "temp": ("yes",),  # it lies in a folder with the name of one that programs make for themselves
    "looked_for": (),  # the file that the program missed before it raised this exception while it handled that
    "device_name": (),  # a GPU by its address or number, such as "GPU 0000:1c:00.0" or "GPU 0 as its process counts them"
    "free": (),
    "package": (),  # that is missing or too old
    "installing": (),  # the package at which an installer gave up
    "install_error": (),  # its first error that passes on no other one
    "conflict": (),  # what pip said of the package that does not fit
    "service": (),  # the host of the address that the line names first, such as "huggingface.co"
    "endpoint": ("loopback",),  # the address that the line names first is the node's own, such as 127.0.0.1:8080
    "url": (),  # for which a server answered that it has nothing there (404)
    "repository": (),  # of the model hub, such as "org/model"
    "named": (),  # what that message names, in quotes or as an option or variable, such as "--rdzv_id" or "lr and eps"
    "shapes": (),  # the shapes that it states, such as "4096x1152 and 1024x256"
    "says": (),  # the message of the exception, option parser or assertion, cut
    "absent": (
        "key",
        "attribute",
        "module",
        "none",
        "name",
        "argument",
        "needs",
        "message",
    ),  # what an exception of Python says is not there
    "absent_name": (),  # its name
    "absent_from": (),  # the type, module or function that lacks it, or was not given it
    "connection": ("name", "no_route", "refused", "timed_out", "tls", "broken"),
    "memory": ("capped", "fragmented", "others", "pieces", "full"),  # what the message of a failed allocation shows
    "holder": ("own", "others"),  # who holds it: this process alone, or others on the device as well
    "memory_of": ("host", "gpu"),  # whose memory the line speaks of
    "unused": (),
    "foreign": (),
    "cap": (),
    "loss": ("never_finite", "exploded", "at_times", "broke"),  # of faults of the loss only, as the next four
    "good_at": (),  # a step or epoch, such as "step 56"
    "bad_at": (),
    "nan_at": (),  # the first without a finite loss
    "norm": ("broke", "never_finite"),  # of the gradient norm, where the loss says nothing; with its two steps
    "good_norm": (),
    "bad_norm": (),
    "loss_course": (),  # the values of the loss that show how it broke, such as "0.21 at step 56, nan at step 63"
    "last_loss": (),
    "last_step": (),
}
CIRCUMSTANCES: Mapping[str, tuple[str, ...]] = {**OF_RUN, **OF_FINDING}
