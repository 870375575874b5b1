"""Tests of what is learned from incidents."""
