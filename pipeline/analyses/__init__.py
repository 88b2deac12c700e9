"""Functions DataFrame -> DataFrame over records and tables; each is held to what `history` answers."""
