/* Prelude of single-precision complex elements. */
#define REAL float
#define REAL2 float2
#define REAL_BYTES 4
#include "prelude/complex.h"
