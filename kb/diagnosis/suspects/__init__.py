"""Who is at fault once the fault is known: nodes, ranks and GPUs, the likeliest first, or the job as a whole.

Evidence differs in weight. What a node's kernel or a check on it says goes before a process's own error; that goes before
what peers, launchers and schedulers say of another; and a rank that merely waits is no suspect: one that does not wait is.
"""
