"""Regular expressions: compiled when they are first used."""
