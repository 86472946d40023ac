/* Prelude of double-precision complex elements. */
#define REAL double
#define REAL2 double2
#define REAL_BYTES 8
#include "prelude/complex.h"
