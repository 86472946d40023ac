/* Prelude of double-double complex elements, fast. */
#define FAST 1
#include "prelude/double_double_complex.h"
