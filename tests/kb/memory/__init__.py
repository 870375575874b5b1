"""Tests of kb.memory."""
