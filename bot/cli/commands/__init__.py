"""The declarations of the command line: name, options and help of each command. Every start imports all of it, so it is light."""
