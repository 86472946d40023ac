/* Prelude of double-double real elements, fast. */
#define FAST 1
#include "prelude/double_double.h"
