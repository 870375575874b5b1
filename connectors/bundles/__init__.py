"""The evidence bundle: a folder that holds the logs, metrics and descriptions of one job."""
