"""Everything that people touch and that remembers: command line, store, reports, and the wiring of the rest."""
