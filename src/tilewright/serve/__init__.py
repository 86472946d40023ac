"""gemm(): arrays in, the tuned kernel chosen and launched, arrays out."""
