"""The page that shows the demo channel."""
