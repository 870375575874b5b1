"""Tests of kb."""
