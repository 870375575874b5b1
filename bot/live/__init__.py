"""A job while it runs: followed logs, polled metrics, probe cycles and the votes on a hang."""
