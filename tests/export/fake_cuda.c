/* A driver without a device, for tests: it remembers launches, and computes them on the host.
 *
 * "Device" memory is the host's.  Built as libcuda.so.1, it stands in for NVIDIA's.  A launch
 * is computed by the plainest loop there is if FAKE_CUDA_COMPUTES is in the environment; what to
 * compute stands in the kernel's name, tw_sgemm_nt_...
 */
#include <complex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS = 16 };

typedef struct {
    char name[64];
    const void *image;
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    uint64_t arguments[ARGUMENTS]; /* as many low bytes as the kernel reads */
} launch;

typedef struct {
    const void *image;
} module;

typedef struct {
    char name[64];
    const void *image;
    int dynamic_shared_bytes;
} function;

/* What tests look at and set.  Context 0 is none. */
launch fake_last;
_Thread_local unsigned long long fake_context = 1;
int fake_launches, fake_loads, fake_unloads, fake_load_result, fake_launch_result;

int cuCtxGetId(void *context, unsigned long long *id)
{
    (void)context;
    *id = fake_context;
    return fake_context ? 0 : 201;
}

int cuModuleLoadData(void **made, const void *image)
{
    module *const it = malloc(sizeof *it);
    ++fake_loads;
    it->image = image;
    *made = it;
    return fake_load_result;
}

int cuModuleUnload(void *it)
{
    ++fake_unloads;
    free(it);
    return 0;
}

int cuModuleGetFunction(void **made, void *from, const char *name)
{
    function *const it = calloc(1, sizeof *it);
    snprintf(it->name, sizeof it->name, "%s", name);
    it->image = ((module *)from)->image;
    *made = it;
    return 0;
}

int cuFuncSetAttribute(void *it, int attribute, int value)
{
    if (attribute != 8)
        return 1;
    ((function *)it)->dynamic_shared_bytes = value;
    return 0;
}

int cuGetErrorString(int result, const char **text)
{
    *text = result == 719 ? "unspecified launch failure" : NULL;
    return *text ? 0 : 1;
}

static double complex at(const uint64_t *memory, int kind, int64_t place)
{
    const void *const first = (const void *)(uintptr_t)*memory;
    switch (kind) {
    case 's': return ((const float *)first)[place];
    case 'd': return ((const double *)first)[place];
    case 'c': return ((const float complex *)first)[place];
    default: return ((const double complex *)first)[place];
    }
}

static void put(uint64_t memory, int kind, int64_t place, double complex value)
{
    void *const first = (void *)(uintptr_t)memory;
    switch (kind) {
    case 's': ((float *)first)[place] = (float)creal(value); break;
    case 'd': ((double *)first)[place] = creal(value); break;
    case 'c': ((float complex *)first)[place] = (float complex)value; break;
    default: ((double complex *)first)[place] = value;
    }
}

static double real_at(const uint64_t *x, int kind)
{
    float single;
    double wide;
    memcpy(&single, x, sizeof single);
    memcpy(&wide, x, sizeof wide);
    return kind == 's' || kind == 'c' ? (double)single : wide;
}

static double complex operand(const uint64_t *x, int kind, int op, int64_t row, int64_t column)
{
    const int64_t ld = (int64_t)x[2];
    const double complex value = at(x, kind, (int64_t)x[1] + (op == 'n' ? row + column * ld
                                                                       : column + row * ld));
    return op == 'c' ? conj(value) : value;
}

static void compute(const launch *it)
{
    const uint64_t *const x = it->arguments;
    const int kind = it->name[3], op_a = it->name[9], op_b = it->name[10];
    const double complex alpha = real_at(x + 3, kind) + I * real_at(x + 4, kind);
    const double complex beta = real_at(x + 11, kind) + I * real_at(x + 12, kind);
    for (int64_t j = 0; j < (int64_t)x[1]; ++j)
        for (int64_t i = 0; i < (int64_t)x[0]; ++i) {
            const int64_t place = (int64_t)x[14] + i + j * (int64_t)x[15];
            double complex sum = 0;
            for (int64_t l = 0; l < (int64_t)x[2]; ++l)
                sum += operand(x + 5, kind, op_a, i, l) * operand(x + 8, kind, op_b, l, j);
            sum *= alpha;
            if (beta != 0)
                sum += beta * at(x + 13, kind, place);
            put(x[13], kind, place, sum);
        }
}

int cuLaunchKernel(void *of, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,
                   void **arguments, void **extra)
{
    const function *const it = of;
    /* Threads may launch at once; only one's launch need be remembered, but whole. */
    launch now = {.image = it->image,
                  .grid = {grid_x, grid_y, grid_z},
                  .block = {block_x, block_y, block_z},
                  .shared_bytes = shared_bytes,
                  .stream = stream};
    __atomic_add_fetch(&fake_launches, 1, __ATOMIC_RELAXED);
    if (extra != NULL || shared_bytes != (unsigned)it->dynamic_shared_bytes)
        return 1;
    memcpy(now.name, it->name, sizeof now.name);
    const int is_single = now.name[3] == 's' || now.name[3] == 'c';
    for (int i = 0; i < ARGUMENTS; ++i) {
        const int is_real = i == 3 || i == 4 || i == 11 || i == 12;
        memcpy(&now.arguments[i], arguments[i], is_real && is_single ? 4 : 8);
    }
    if (getenv("FAKE_CUDA_COMPUTES"))
        compute(&now);
    if (!getenv("FAKE_CUDA_FORGETS"))
        fake_last = now;
    return fake_launch_result;
}

/* ---- What a program calls itself ----------------------------------------- */

int cuInit(unsigned flags) { return (int)flags; }

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    *context = &fake_last;
    return 0;
}

int cuCtxSetCurrent(void *context) { return context == NULL; }

int cuCtxSynchronize(void) { return 0; }

int cuStreamCreate(void **stream, unsigned flags)
{
    *stream = &fake_last;
    return flags != 1;
}

int cuModuleLoad(void **made, const char *file)
{
    FILE *const opened = fopen(file, "rb");
    if (opened == NULL)
        return 301;
    fclose(opened);
    return cuModuleLoadData(made, file);
}

int cuMemAlloc_v2(unsigned long long *memory, size_t bytes)
{
    *memory = (uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *memory == 0;
}

int cuMemFree_v2(unsigned long long memory)
{
    free((void *)(uintptr_t)memory);
    return 0;
}

int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes)
{
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}

int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes)
{
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return 0;
}
