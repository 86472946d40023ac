"""Finding the fastest right kernel, without trust in the candidates."""
