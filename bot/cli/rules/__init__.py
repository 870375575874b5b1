"""What the `signalbox rules` commands do; their options are in bot.cli.commands.rules."""
