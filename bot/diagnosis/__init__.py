"""From a bundle to a report: parallel reading, plug-ins, comparison with successful runs, and line numbers of quotes."""
