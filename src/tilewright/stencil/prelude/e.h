/* Prelude of double-double real elements, accurate. */
#define FAST 0
#include "prelude/double_double.h"
