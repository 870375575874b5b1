"""Parses Flight Recorder dumps (pickle or JSON, NCCL or gloo) into one rank's `CollectiveTrace`.

A dump is untrusted input. Its parsing time cannot be bounded here (a nested tuple as a key takes exponential time to
hash), so untrusted pickles are read in a child process with limits (bot.diagnosis.flight_recorder_pool).
"""
