/* The functions of stencil/asynchronous/barriers.cuh, for a CPU. */
#pragma once
#include "hopper_words.h"

#define GRID_CONSTANT

inline void begin_barrier(shared_at at, int arrivals) { emulated::begin_barrier(at, arrivals); }
inline void publish_barriers() {}
inline void expect_bytes(shared_at at, int bytes) { emulated::arrive(emulated::rank_now(), at, bytes); }
inline void wait_for(shared_at at, unsigned int parity) { emulated::wait_for_parity(at, parity); }
