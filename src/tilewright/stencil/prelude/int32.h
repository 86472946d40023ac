/* Prelude of sums of integers, modulo 2^32 as in two's complement. */
#define REAL unsigned int
#define REAL_BYTES 4
#include "prelude/real.h"
