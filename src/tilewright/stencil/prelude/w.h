/* Prelude of double-double complex elements, accurate. */
#define FAST 0
#include "prelude/double_double_complex.h"
