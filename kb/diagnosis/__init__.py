"""From evidence and rulebook to a report: conditions, findings, their ranking, confidence, verdict, suspects, recovery."""
