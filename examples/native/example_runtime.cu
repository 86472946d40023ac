/* Multiply two matrices in a program of the CUDA runtime, on a stream of its own.
 *
 *     tilewright export --device cuda:0 --format c -o kernels
 *     cc -std=c11 -O2 -ffp-contract=off -c kernels/c/[a-z]*.c
 *     nvcc -std=c++17 -Ikernels/c example_runtime.cu *.o -o example_runtime
 *     ./example_runtime 300 200 100
 *
 * Usage: example_runtime M N K [FILE].  C = 2 A B - C in double precision, row-major, between
 * two kernels of the program's own; with FILE the bytes of C are written to it.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#include "tilewright_gemm.h"

static void must(cudaError_t result, const char *doing)
{
    if (result == cudaSuccess)
        return;
    std::fprintf(stderr, "%s failed: %s\n", doing, cudaGetErrorString(result));
    std::exit(1);
}

/* Numbers in [-1, 1) that any program can make again: multiples of 2^-15. */
__host__ __device__ static double number(uint32_t i)
{
    return ((i * 2654435761u) >> 16) / 32768.0 - 1.0;
}

/* Fill an array; what follows on the same stream sees it filled. */
__global__ void fill(double *values, int64_t count, uint32_t from)
{
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < count)
        values[i] = number(from + uint32_t(i));
}

static double *filled(int64_t count, uint32_t from, cudaStream_t stream)
{
    double *made = nullptr;
    must(cudaMalloc(&made, count * sizeof *made), "cudaMalloc");
    fill<<<unsigned((count + 255) / 256), 256, 0, stream>>>(made, count, from);
    must(cudaGetLastError(), "fill");
    return made;
}

/* Whether every element is within the error bound of k + 3 roundings. */
static bool is_right(const std::vector<double> &c, int64_t m, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            const double before = number(uint32_t(3 + i * n + j));
            double sum = -before, size = before < 0 ? -before : before;
            for (int64_t l = 0; l < k; ++l) {
                const double a = number(uint32_t(1 + i * k + l));
                const double product = 2 * a * number(uint32_t(7 + l * n + j));
                sum += product;
                size += product < 0 ? -product : product;
            }
            const double error = c[size_t(i * n + j)] - sum;
            const double most = double(k + 3) * 0x1p-53 * size;
            if (!(error <= most && -error <= most)) {
                std::fprintf(stderr, "element (%lld, %lld) is wrong\n", (long long)i, (long long)j);
                return false;
            }
        }
    return true;
}

int main(int count, char **words)
{
    const int64_t m = count > 3 ? std::atoll(words[1]) : 300;
    const int64_t n = count > 3 ? std::atoll(words[2]) : 200;
    const int64_t k = count > 3 ? std::atoll(words[3]) : 100;
    const double alpha = 2, beta = -1;
    cudaStream_t stream;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");

    double *const a = filled(m * k, 1, stream);
    double *const b = filled(k * n, 7, stream);
    double *const c = filled(m * n, 3, stream);
    const tw_status status = tw_dgemm(TW_ROW_MAJOR, 'N', 'N', m, n, k, &alpha, a, k, b, n, &beta, c,
                                      n, stream);
    if (status != TW_OK) {
        std::fprintf(stderr, "tw_dgemm: %s\n", tw_strerror(status));
        return 1;
    }
    std::vector<double> result(size_t(m * n));
    must(cudaMemcpyAsync(result.data(), c, result.size() * sizeof(double), cudaMemcpyDeviceToHost,
                         stream),
         "cudaMemcpyAsync");
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");

    const bool right = is_right(result, m, n, k);
    std::printf("%s computed DGEMM %lldx%lldx%lld, row-major: %s\n",
                tw_choose('d', TW_ROW_MAJOR, 'N', 'N', m, n, k), (long long)m, (long long)n,
                (long long)k, right ? "right" : "WRONG");
    if (count > 4) {
        std::FILE *const file = std::fopen(words[4], "wb");
        const bool written =
            file && std::fwrite(result.data(), sizeof(double), result.size(), file) == result.size();
        if (!written || std::fclose(file) != 0) {
            std::fprintf(stderr, "cannot write %s\n", words[4]);
            return 1;
        }
    }
    for (double *memory : {a, b, c})
        must(cudaFree(memory), "cudaFree");
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return right ? 0 : 1;
}
