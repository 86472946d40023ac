/* Prelude of single-precision real elements. */
#define REAL float
#define REAL_BYTES 4
#include "prelude/real.h"
