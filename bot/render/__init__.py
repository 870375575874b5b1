"""A report as text, JSON, Markdown or a picture, without a store or Slack."""
