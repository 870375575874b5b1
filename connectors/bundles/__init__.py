"""Evidence bundles: folders with the logs, metrics and descriptions of one job."""
