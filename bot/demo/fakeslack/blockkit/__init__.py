"""Block Kit as Slack validates it: messages, composition objects, elements, rich text."""
