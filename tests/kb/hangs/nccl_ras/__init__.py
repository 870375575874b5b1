"""Tests of kb.hangs.nccl_ras."""
