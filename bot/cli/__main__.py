"""`python -m bot.cli`: the command where no script is installed."""

from bot.cli.main import main

main()
