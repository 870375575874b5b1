"""The one contract suite that every connector passes."""
