"""Evidence from the nodes of a job, over a remote shell and from collected journals."""
