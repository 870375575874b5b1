"""Who is at fault once the fault is known: nodes, ranks and GPUs, the likeliest first, or the job as a whole.

Evidence differs in weight. A report of a node's kernel, or of a check on the node, outweighs a process's own error.
That
outweighs what peers, launchers and schedulers say of another. A rank that merely waits is not a suspect; one that does
not
wait is.
"""
