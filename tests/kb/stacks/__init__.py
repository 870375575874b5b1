"""Tests of kb.stacks."""
