"""The page on which the demo's channel is shown and used."""
