"""Shared by all connectors: the contract, a bounded HTTP client, budgets, secrets, commands and decompression."""
