"""Python exceptions: tracebacks of every common print form, and last lines that stand alone.

A traceback's lines are those of one voice: the same bytes before them, or the same rank, process or node in their
prefix. Lines of others in between are skipped. Where ranks write into one stream without prefixes their lines cannot
be told apart; then the first exception line counts and each frame is kept once.
"""
