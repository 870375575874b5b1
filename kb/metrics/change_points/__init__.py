"""Change points on what a run measures of itself: step time, throughput, loss, gradient norm, memory, learning rate.

A step that is known to hold an evaluation or a checkpoint, first steps, single steps that hang back and short spells are
no change. The noise is learned from the series itself. Values that are NaN or missing never count as 0: they are skipped,
and where they themselves are the finding (a loss) they are reported as such. Windows count steps, not logged lines.
"""
