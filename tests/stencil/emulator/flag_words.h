/* The functions of stencil/asynchronous/words.cuh, for a CPU. */
#pragma once
#include "hopper_words.h"

inline void write_word(shared_at at, unsigned v)
{
    std::memcpy(emulated::shared_bytes(emulated::rank_now(), at, 4, "a thread writes"), &v, 4);
}

inline unsigned read_word(shared_at at)
{
    unsigned v;
    std::memcpy(&v, emulated::shared_bytes(emulated::rank_now(), at, 4, "a thread reads"), 4);
    return v;
}

inline unsigned draw_number(unsigned *at, unsigned last)
{
    const unsigned drawn = *at;
    *at = drawn >= last ? 0 : drawn + 1;
    return drawn;
}

inline void raise_flag(unsigned *at) { emulated::release_word(at); }
inline void lower_flag(unsigned *at) { *at = 0; }
inline void await_flag(const unsigned *at) { emulated::acquire_word(at); }
