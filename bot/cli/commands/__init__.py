"""What the command line declares: names, options and help of each command. Light, since every start imports all of it."""
