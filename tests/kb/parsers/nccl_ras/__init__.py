"""Tests of kb.parsers.nccl_ras."""
