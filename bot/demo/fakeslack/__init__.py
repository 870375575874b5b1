"""A strict local Slack double: its Web API, its deliveries to an app, and a page that looks and works like a channel."""
