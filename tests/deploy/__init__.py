"""Tests of what is deployed together with Signalbox: the collectors of logs."""
