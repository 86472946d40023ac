/* Words of shared and of device memory by which threads and blocks agree, one idea of PTX a
 * function.  A part of the stencils' ptx.cuh. */

/* A word of shared memory. */
HELPER void write_word(shared_at at, unsigned int v)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
}

HELPER unsigned int read_word(shared_at at)
{
    unsigned int v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}

/* Return the word and count it up; from `last` on it begins anew, so that a launch in which
 * everybody draws once leaves it as it was. */
HELPER unsigned int draw_number(unsigned int *at, unsigned int last)
{
    unsigned int drawn;
    asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(drawn)
                 : "l"(at), "r"(last)
                 : "memory");
    return drawn;
}

/* Say that the block's writes before its last barrier are there. */
HELPER void raise_flag(unsigned int *at)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(1u) : "memory");
}

HELPER void lower_flag(unsigned int *at)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(0u) : "memory");
}

/* Wait until another block has raised a flag: then its writes are seen from here, and behind
 * the next barrier by the whole block. */
HELPER void await_flag(const unsigned int *at)
{
    unsigned int raised;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(raised) : "l"(at) : "memory");
    } while (!raised);
}
