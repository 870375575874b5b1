"""signalbox.yaml: its schema, its reading and checking, and the connectors that it configures."""
