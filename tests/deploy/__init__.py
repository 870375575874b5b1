"""Tests of what is deployed beside Signalbox: the collectors of logs."""
