"""What every caller shares, in C: choosing a kernel."""
