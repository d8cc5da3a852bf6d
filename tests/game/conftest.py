"""Its presence puts this folder on the path, so that every test of the game can import
`canned_trials`."""
