/* The functions of skinny/ptx.cuh and prelude/elements.h, for a CPU. */

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
inline chunk load_chunk_for_two(const operand *from) { return load_chunk(from); }

inline void copy_chunk(operand *to, const operand *from, int elements)
{
    const auto at = (const char *)to - (const char *)shared_memory();
    emulated::start({(unsigned)at, from, elements * OPERAND_BYTES, 16});
}

inline void wait_for_copies()
{
    emulated::now.current->groups.emplace_back();
    emulated::wait_for_all_but(0);
}

/* Rows or columns of an instruction's operand: lane 4 `line` + t has the bytes from 4 t and 4 t + 16
 * on, in the words from `first` on that are `apart`. */
inline void read_line(double *to, const emulated::words_of_lanes &all, int line, int first, int apart)
{
    constexpr emulated::kind kinds[] = {{}, emulated::F16, emulated::BF16, {}, emulated::S8,
                                        emulated::E4M3, emulated::E5M2};
    for (int byte = 0; byte < 32; byte += OPERAND_BYTES) {
        const unsigned &word = all[line * 4 + byte % 16 / 4][first + byte / 16 * apart];
        *to++ = emulated::value_of(kinds[ELEMENT], (const char *)&word + byte % 4);
    }
}

inline void mma(elem *d, word a0, word a1, word a2, word a3, word b0, word b1)
{
    const auto all = emulated::among(32, {a0, a1, a2, a3, b0, b1});
    const int lane = emulated::now.current->id.x % 32;
    double row[2][32], column[2][32];
    for (int e = 0; e < 2; ++e) {
        read_line(row[e], all, lane / 4, e, 2);
        read_line(column[e], all, lane % 4 * 2 + e, 4, 1);
    }
    for (int e = 0; e < 4; ++e)
        for (int step = 0; step < 32 / OPERAND_BYTES; ++step) {
            const double product = row[e / 2][step] * column[e % 2][step];
            d[e] += ELEMENT == ELEMENT_S8 ? (elem)(int)product : (elem)product;
        }
}
#endif

#if ROUNDED
inline elem widened(output bits)
{
    return OUTPUT == OUTPUT_F16 ? emulated::half_of_bits(bits)
                                : emulated::float_of_bits((unsigned)bits << 16);
}

inline output rounded(elem v)
{
    return OUTPUT == OUTPUT_F16 ? emulated::half_bits(v) : emulated::bfloat16_bits(v);
}
#endif
