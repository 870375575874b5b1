"""Replays of rules: backtest on past incidents, clean logs, scan cost, shadow runs."""
