"""What every connector shares: the contract, HTTP with limits, budgets of bytes and time, secrets, commands, decompression."""
