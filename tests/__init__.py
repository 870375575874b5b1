"""Tests of Signalbox."""
