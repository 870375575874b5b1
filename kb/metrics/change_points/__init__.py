"""Change points in a run's own measurements: step time, throughput, loss, gradient norm, memory, learning rate.

Steps known to include an evaluation or a checkpoint, first steps, single slow steps and short spells are not changes.
The noise is learned from the series itself. NaN and missing values never count as 0: they are skipped, or reported if
they are the finding (a loss). Windows count steps, not logged lines.
"""
