"""Doubles of forges and the tests of what speaks to them."""
