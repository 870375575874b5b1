"""Flight Recorder dumps: bytes in, one rank's `CollectiveTrace` out, whatever wrote them (pickle or JSON, NCCL or gloo).

A dump is a file of somebody's job and may be hostile. What cannot be bounded here is time (a tuple of tuples of tuples as
a key takes forever to hash): untrusted pickles are read in a child process with limits
(bot.diagnosis.flight_recorder_pool).
"""
