"""What the recorders of a job's ranks say together: who never joined, who is behind, who disagrees, who only waits."""
