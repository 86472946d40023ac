/* The functions of skinny/ptx.cuh, for a CPU. */

inline elem *shared_memory()
{
    return (elem *)emulated::shared_bytes(emulated::now.current->rank, 0, 1, "a thread names");
}

inline elem *second_shared_memory() { return shared_memory(); }

inline chunk load_chunk(const elem *from)
{
    chunk v{};
    if (emulated::check_readable(from, 16, 16))
        std::memcpy(&v, from, 16);
    return v;
}

inline elem load_element(const elem *from)
{
    elem v{};
    if (emulated::check_readable(from, ELEM_BYTES, ELEM_BYTES))
        std::memcpy(&v, from, ELEM_BYTES);
    return v;
}

inline const elem *step(const elem *from, isize apart) { return from + apart; }
