"""What a rule would have said: backtest on past incidents, clean logs, scan cost, shadow runs."""
