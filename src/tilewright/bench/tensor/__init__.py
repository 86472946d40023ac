"""Products on matrix units, measured: cases and candidates, one problem's calls, errors."""
