/* The functions of outer/staged.cuh and prelude/elements.h, for a CPU. */

inline elem *shared_memory()
{
    return (elem *)emulated::shared_bytes(emulated::now.current->rank, 0, 1, "a thread names");
}

inline operand load_element(const operand *from)
{
    operand v{};
    if (emulated::check_readable(from, 2, 2))
        std::memcpy(&v, from, 2);
    return v;
}

inline elem widened(operand bits)
{
    return ELEMENT == ELEMENT_F16 ? emulated::half_of_bits(bits)
                                  : emulated::float_of_bits((unsigned)bits << 16);
}

#if ROUNDED
inline output rounded(elem v)
{
    return OUTPUT == OUTPUT_F16 ? emulated::half_bits(v) : emulated::bfloat16_bits(v);
}
#endif
