/* Prelude of double-precision real elements. */
#define REAL double
#define REAL_BYTES 8
#include "prelude/real.h"
