"""What a move to other versions, another toolkit, driver or GPU changes, by what is known; nothing is run."""
