"""The Slack app: values in, Slack messages and modals out; what it does with clicks and commands."""
