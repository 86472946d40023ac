/* The functions of skinny/ptx.cuh, for a CPU. */

inline elem *shared_memory()
{
    return (elem *)emulated::shared_bytes(emulated::now.current->rank, 0, 1, "a thread names");
}

inline elem *second_shared_memory() { return shared_memory(); }

inline chunk load_chunk(const operand *from)
{
    chunk v{};
    if (emulated::check_readable(from, 16, 16))
        std::memcpy(&v, from, 16);
    return v;
}

inline operand load_element(const operand *from)
{
    operand v{};
    if (emulated::check_readable(from, OPERAND_BYTES, OPERAND_BYTES))
        std::memcpy(&v, from, OPERAND_BYTES);
    return v;
}

inline const operand *step(const operand *from, isize apart) { return from + apart; }

#ifdef ELEMENT
inline elem widened(operand bits)
{
    return ELEMENT == ELEMENT_F16 ? emulated::half_of_bits(bits)
                                  : emulated::float_of_bits((unsigned)bits << 16);
}
#endif

#if defined(OUTPUT) && OUTPUT != OUTPUT_F32
inline output rounded(elem v)
{
    return OUTPUT == OUTPUT_F16 ? emulated::half_bits(v) : emulated::bfloat16_bits(v);
}
#else
inline output rounded(elem v) { return v; }
#endif
