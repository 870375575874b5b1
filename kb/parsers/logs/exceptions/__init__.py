"""Python exceptions: tracebacks in every common format, and exception lines without a traceback.

A traceback's lines belong to one voice: the same bytes before them, or the same rank, process or node in their prefix.
Lines of others in between are skipped. If ranks write into one stream without prefixes, their lines cannot be
distinguished; then the first exception line counts and each frame is kept once.
"""
