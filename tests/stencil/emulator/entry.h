/* The door for ctypes: one launch, with pointers to the kernel's own arguments; what is
 * behind them (a workspace) is for kernels that take more. */
namespace emulated {
template <class... Given, size_t... I>
void call(void (*kernel)(Given...), void **arguments, std::index_sequence<I...>)
{
    kernel(*(std::remove_reference_t<Given> *)arguments[I]...);
}

template <class... Given> void call(void (*kernel)(Given...), void **arguments)
{
    call(kernel, arguments, std::index_sequence_for<Given...>{});
}
}  // namespace emulated

extern "C" const char *emulate(const emulated::launch *l, void **arguments)
{
    return emulated::run(*l, [](void **given) { emulated::call(gemm, given); }, arguments);
}

#ifdef SECOND
extern "C" const char *emulate_second(const emulated::launch *l, void **arguments)
{
    return emulated::run(*l, [](void **given) { emulated::call(SECOND, given); }, arguments);
}
#endif
