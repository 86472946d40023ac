/* CUDA's words that the passes use besides those of the emulator, for a CPU: blocks run one
 * after the other, and a block's threads one at a time. */
#define __shared__ static
inline int atomicAdd(int *at, int number)
{
    const int before = *at;
    *at += number;
    return before;
}
inline int atomicMax(int *at, int number)
{
    const int before = *at;
    *at = number > before ? number : before;
    return before;
}
