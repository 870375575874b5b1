"""Tests of kb.hangs."""
