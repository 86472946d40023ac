/* Plans of another accuracy than IEEE arithmetic's, which `tilewright run` lays out.
 *
 *     TILEWRIGHT_CUBLAS_ACCURACY   "fp32", "fp64" or both, with a comma between
 *     TILEWRIGHT_CUBLAS_PLANS      the socket where a process lays plans out (export/plans.py)
 *
 * A new layout is asked for once, in 17 numbers of 8 bytes:
 *
 *     multiprocessors, precision, op_a, op_b, m, n, k, lda, ldb, ldc, begins_a, begins_b, is_real,
 *     batch, step_a, step_b, step_c
 *
 * The answer is the size of what follows, and that, in rows of numbers of 8 bytes:
 *
 *     launches, places, maps, patches, codes, zero bytes, scratch bytes, repeats    no launches: IEEE
 *     codes       file, 256 bytes | function, 248 | one behind it, 248 | dynamic shared memory
 *     launches    tilewright_launch; the function is twice a code's number, plus 1: the one behind it
 *     places      16 bytes each | their maps, of 4 bytes, whole rows | patches, 16 bytes each
 *     maps        type, rank, swizzle, address, sizes [5], strides [4], sides of a box [5]
 *
 * Where nobody answers, IEEE arithmetic serves.
 */
#include "tilewright_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { FILE_BYTES = 256, SYMBOL_BYTES = 248, MAP_BYTES = 128, RANKS = 5, PROMOTION_L2_128B = 2 };

/* No plan is larger; who answers later is gone.  NVRTC takes seconds for what does not ship. */
enum { MOST_BYTES = 1 << 22, SECONDS = 60 };

typedef struct {
    uint64_t launches, places, maps, patches, codes, zero_bytes, scratch_bytes, repeats;
} heading;

typedef struct {
    char file[FILE_BYTES], symbol[SYMBOL_BYTES], second[SYMBOL_BYTES];
    uint64_t shared_bytes;
} code_row;

typedef struct {
    uint64_t type, rank, swizzle, address, sizes[RANKS], strides[RANKS - 1], box[RANKS];
} map_row;

/* Kernels that are loaded, of all contexts. */
typedef struct known {
    struct known *next;
    unsigned long long context;
    char file[FILE_BYTES], symbol[SYMBOL_BYTES];
    tilewright_loaded loaded;
} known;

static known *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *where;

/* ---- The socket ---------------------------------------------------------------------- */

/* Send or receive all bytes, whatever signals come: one ends a wait that has a limit. */
static int transfer(int to, void *data, size_t bytes, int writes)
{
    char *at = data;
    while (bytes > 0) {
        const ssize_t done = writes ? send(to, at, bytes, MSG_NOSIGNAL) : recv(to, at, bytes, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return 0;
        at += done;
        bytes -= (size_t)done;
    }
    return 1;
}

/* What is answered, to be freed; null for nothing. */
static void *ask(int64_t *request, size_t request_bytes, uint64_t *bytes)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval most = {SECONDS, 0};
    const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    void *answer = NULL;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", where);
    if (made < 0)
        return NULL;
    setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    if (connect(made, (const struct sockaddr *)&address, sizeof address) == 0 &&
        transfer(made, request, request_bytes, 1) && transfer(made, bytes, sizeof *bytes, 0) &&
        *bytes >= sizeof(heading) && *bytes <= MOST_BYTES && (answer = malloc(*bytes)) != NULL &&
        !transfer(made, answer, *bytes, 0)) {
        free(answer);
        answer = NULL;
    }
    close(made);
    return answer;
}

/* ---- Kernels -------------------------------------------------------------------------- */

static void *read_file(const char *path)
{
    FILE *const from = fopen(path, "rb");
    void *text = NULL;
    if (from == NULL)
        return NULL;
    if (fseek(from, 0, SEEK_END) == 0) {
        const long size = ftell(from);
        rewind(from);
        if (size > 0 && (text = malloc((size_t)size)) != NULL &&
            fread(text, 1, (size_t)size, from) != (size_t)size) {
            free(text);
            text = NULL;
        }
    }
    fclose(from);
    return text;
}

/* The functions of a code in the current context, loaded if they are not. */
static tw_status functions_of(const tilewright_context *here, const code_row *code,
                              tilewright_loaded *loaded)
{
    known *it = all;
    while (it != NULL && (it->context != here->id || strcmp(it->file, code->file) != 0 ||
                          strcmp(it->symbol, code->symbol) != 0))
        it = it->next;
    if (it != NULL) {
        *loaded = it->loaded;
        return TW_OK;
    }
    void *const image = read_file(code->file);
    it = calloc(1, sizeof *it);
    if (image == NULL || it == NULL) {
        free(image);
        free(it);
        return TW_NO_MEMORY;
    }
    const tilewright_code asked = {.image = image,
                                   .symbol = code->symbol,
                                   .second = code->second[0] ? code->second : NULL,
                                   .shared_bytes = (unsigned)code->shared_bytes};
    const tw_status status = tilewright_load(&asked, &it->loaded);
    free(image);
    if (status) {
        free(it);
        return status;
    }
    it->context = here->id;
    memcpy(it->file, code->file, sizeof it->file);
    memcpy(it->symbol, code->symbol, sizeof it->symbol);
    it->next = all;
    all = it;
    *loaded = it->loaded;
    return TW_OK;
}

/* ---- Plans ---------------------------------------------------------------------------- */

/* Put functions in the places of their numbers. */
static tw_status put_functions(tilewright_context *here, const heading *of, const code_row *codes,
                               tilewright_launch *launches)
{
    for (uint64_t i = 0; i < of->launches; ++i) {
        const uintptr_t number = (uintptr_t)launches[i].function;
        tilewright_loaded loaded;
        if (number / 2 >= of->codes)
            return TW_NO_KERNEL;
        const tw_status status = functions_of(here, &codes[number / 2], &loaded);
        if (status)
            return status;
        launches[i].function = number % 2 ? loaded.second : loaded.function;
    }
    return TW_OK;
}

static tw_status encode(const map_row *rows, uint64_t count, unsigned char *maps)
{
    static const unsigned steps[RANKS] = {1, 1, 1, 1, 1};
    for (uint64_t i = 0; i < count; ++i) {
        const map_row *const it = &rows[i];
        unsigned box[RANKS];
        for (int side = 0; side < RANKS; ++side)
            box[side] = (unsigned)it->box[side];
        if (tilewright_driver.encode_map == NULL)
            return TW_NO_DRIVER;
        const int result = tilewright_driver.encode_map(
            maps + i * MAP_BYTES, (int)it->type, (unsigned)it->rank, (void *)(uintptr_t)it->address,
            it->sizes, it->strides, box, steps, 0, (int)it->swizzle, PROMOTION_L2_128B, 0);
        if (result)
            return tilewright_status_of(result);
    }
    return TW_OK;
}

/* Whether no number of rows is so large that their bytes overflow. */
static int counts_are_right(const heading *of, uint64_t bytes)
{
    return of->launches > 0 && of->launches <= bytes && of->places <= bytes && of->maps <= bytes &&
           of->patches <= bytes && of->codes <= bytes;
}

/* Make a plan of an answer. */
static tw_status make(tilewright_context *here, const tilewright_product *it, unsigned char *answer,
                      uint64_t bytes, tilewright_plan **plan)
{
    const heading *const of = (const void *)answer;
    if (!counts_are_right(of, bytes))
        return TW_NO_KERNEL;
    code_row *const codes = (void *)(answer + sizeof *of);
    tilewright_launch *const launches = (void *)(codes + of->codes);
    unsigned char *const places = (void *)(launches + of->launches);
    const int *const map_of = (const void *)(places + of->places * 16);
    const tilewright_patch *const patches = (const void *)(map_of + (of->places + 1) / 2 * 2);
    const map_row *const rows = (const void *)(patches + of->patches);
    if ((uint64_t)((const unsigned char *)(rows + of->maps) - answer) != bytes)
        return TW_NO_KERNEL;
    /* The driver wants them at multiples of 64 bytes. */
    unsigned char *const maps = aligned_alloc(64, (size_t)(of->maps + 1) * MAP_BYTES);
    if (maps == NULL)
        return TW_NO_MEMORY;
    tw_status status = put_functions(here, of, codes, launches);
    if (status == TW_OK)
        status = encode(rows, of->maps, maps);
    if (status == TW_OK) {
        *plan = tilewright_plan_new(here->handle, launches, (unsigned)of->launches, places, map_of,
                                    (unsigned)of->places, maps, (unsigned)of->maps, patches,
                                    (unsigned)of->patches, of->zero_bytes, of->scratch_bytes);
        const int64_t size = tilewright_element_bytes(it->precision);
        const tilewright_repeat repeat = {it->batch, it->step_a * size, it->step_b * size,
                                          it->step_c * size};
        if (*plan == NULL || (of->repeats && !tilewright_plan_repeat(*plan, &repeat, 1))) {
            tilewright_plan_free(*plan);
            *plan = NULL;
            status = TW_NO_MEMORY;
        }
    }
    free(maps);
    return status;
}

static tw_status lay(tilewright_context *here, const tilewright_product *it, tilewright_plan **plan)
{
    int64_t request[] = {here->place.multiprocessors, it->precision, it->op_a, it->op_b, it->m, it->n,
                         it->k, it->lda, it->ldb, it->ldc, it->begins_a, it->begins_b, it->is_real,
                         it->batch, it->step_a, it->step_b, it->step_c};
    uint64_t bytes;
    pthread_mutex_lock(&lock);
    unsigned char *const answer = ask(request, sizeof request, &bytes);
    const tw_status status = answer == NULL ? TW_NO_KERNEL : make(here, it, answer, bytes, plan);
    free(answer);
    pthread_mutex_unlock(&lock);
    return status;
}

__attribute__((constructor)) static void begin(void)
{
    const char *const accuracy = getenv("TILEWRIGHT_CUBLAS_ACCURACY");
    where = getenv("TILEWRIGHT_CUBLAS_PLANS");
    if (where == NULL || accuracy == NULL)
        return;
    for (int i = 0; i < TILEWRIGHT_PRECISIONS; ++i)
        if (strstr(accuracy, tilewright_is_double(i) ? "fp64" : "fp32") != NULL)
            tilewright_emulation[i] = lay;
}
