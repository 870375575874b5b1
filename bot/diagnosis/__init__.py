"""From a bundle to a report: reading in processes, plug-ins, comparison with good runs, and line numbers of quotes."""
