"""Files, locks, signals and versions: what every command needs of the machine."""
