/* Keeps a stream busy for so many cycles of one multiprocessor, and touches no memory: what is
 * enqueued meanwhile runs behind it without waiting for the host.
 *
 *     stream   | hold ......................... | event | launch | launch | event |
 *     host     | enqueue hold, event, launches ... |
 */
extern "C" __global__ void hold(long long cycles)
{
    const long long begun = clock64();
    while (clock64() - begun < cycles)
        ;
}
