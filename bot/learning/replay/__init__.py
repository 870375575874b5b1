"""Replays of rules: backtests on past incidents, clean logs, scan cost, shadow runs."""
