/* Lines of a matrix between pageable memory and a device, through pinned buffers.
 *
 *     host     | width |  ...  | width |  ...          `step` bytes from a line to the next
 *     buffer   | width | width |                       one behind the other, but for alignment
 *     device   | width | ... | width | ...             `pitch` bytes
 *
 * A piece is as many lines as a buffer holds, or a part of a line that is longer.  Threads take one
 * piece after another.  Each has two buffers, so that it copies one while the device copies the
 * other:
 *
 *     to the device    fill 0 | enqueue 0 | fill 1 | enqueue 1 | wait for 0, fill 0 | ...
 *     to the host      enqueue 0 | enqueue 1 | wait for 0, empty 0 | enqueue 0 | wait for 1 ...
 */
#include "staging.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { MOST_THREADS = 64, ALIGNMENT = 64, HOST = 1, DEVICE = 2 }; /* CU_MEMORYTYPE_* */

typedef struct work {
    const tilewright_staging *with;
    const tilewright_lines *what;
    uint64_t lines_of_piece, pieces_of_line, pieces, pitch; /* of lines in buffers */
    atomic_uint_fast64_t next;
    atomic_int status; /* the first that is not 0 */
    int to_device;
    uint64_t workers, taken, ended; /* under the pool's lock; the caller is the first */
    struct work *behind;
} work;

typedef struct {
    uint64_t line, lines, offset, width;
} piece;

/* ---- Copies by the processor ------------------------------------------------------------ */

/* Copy a line past the caches: a store that goes through them reads what it overwrites first, and
 * neither side is read again soon. */
static void copy_line(unsigned char *to, const unsigned char *from, size_t width)
{
#if defined(__SSE2__)
    const size_t head = (size_t)(-(uintptr_t)to & 15);
    if (width >= head + 64) {
        memcpy(to, from, head);
        to += head, from += head, width -= head;
        for (; width >= 64; to += 64, from += 64, width -= 64) {
            const __m128i *const x = (const __m128i *)from;
            __m128i *const y = (__m128i *)to;
            const __m128i a = _mm_loadu_si128(x), b = _mm_loadu_si128(x + 1);
            const __m128i c = _mm_loadu_si128(x + 2), d = _mm_loadu_si128(x + 3);
            _mm_stream_si128(y, a);
            _mm_stream_si128(y + 1, b);
            _mm_stream_si128(y + 2, c);
            _mm_stream_si128(y + 3, d);
        }
    }
#endif
    memcpy(to, from, width);
}

static void copy_piece(const work *it, const piece *one, unsigned char *buffer)
{
    const tilewright_lines *const what = it->what;
    unsigned char *const host = what->host + one->offset;
    for (uint64_t line = 0; line < one->lines; ++line) {
        unsigned char *const there = host + (int64_t)(one->line + line) * what->step;
        unsigned char *const here = buffer + line * it->pitch;
        if (it->to_device)
            copy_line(here, there, one->width);
        else
            copy_line(there, here, one->width);
    }
#if defined(__SSE2__)
    _mm_sfence(); /* the device and other threads see what was written past the caches */
#endif
}

/* ---- A thread's pieces ------------------------------------------------------------------ */

static int is_taken(work *it, piece *one)
{
    const tilewright_lines *const what = it->what;
    const uint64_t number = atomic_fetch_add(&it->next, 1);
    if (number >= it->pieces || atomic_load(&it->status) != 0)
        return 0;
    one->line = number / it->pieces_of_line * it->lines_of_piece;
    one->lines = what->lines - one->line;
    if (one->lines > it->lines_of_piece)
        one->lines = it->lines_of_piece;
    one->offset = number % it->pieces_of_line * it->with->buffer_bytes;
    one->width = what->width - one->offset;
    if (it->pieces_of_line > 1 && one->width > it->with->buffer_bytes)
        one->width = it->with->buffer_bytes;
    return 1;
}

/* Let the device copy a piece between a buffer and its memory. */
static int enqueue(const work *it, const piece *one, unsigned char *buffer, void *event)
{
    const tilewright_staging *const with = it->with;
    const uint64_t address = it->what->device + one->line * it->what->pitch + one->offset;
    const int is_line = one->lines == 1; /* the driver takes no pitch of 2^31 and more */
    const tilewright_side device = {.kind = DEVICE,
                                    .device = address,
                                    .pitch = is_line ? one->width : it->what->pitch};
    const tilewright_side host = {
        .kind = HOST, .host = buffer, .pitch = is_line ? one->width : it->pitch};
    const tilewright_plane plane = {.from = it->to_device ? host : device,
                                    .to = it->to_device ? device : host,
                                    .width = one->width,
                                    .lines = one->lines};
    const int status = with->copy(&plane, with->stream);
    return status != 0 ? status : with->record(event, with->stream);
}

static int bring(work *it, uint64_t number)
{
    const tilewright_staging *const with = it->with;
    piece one;
    int status = 0;
    for (unsigned turn = 0; status == 0 && is_taken(it, &one); turn ^= 1) {
        const uint64_t at = 2 * number + turn;
        unsigned char *const buffer = with->buffers + at * with->buffer_bytes;
        status = with->wait(with->events[at]);
        if (status == 0) {
            copy_piece(it, &one, buffer);
            status = enqueue(it, &one, buffer, with->events[at]);
        }
    }
    return status;
}

static int fetch(work *it, uint64_t number)
{
    const tilewright_staging *const with = it->with;
    piece pending[2];
    int is_pending[2] = {0, 0}, status = 0;
    for (unsigned turn = 0; status == 0; turn ^= 1) {
        const uint64_t at = 2 * number + turn;
        unsigned char *const buffer = with->buffers + at * with->buffer_bytes;
        if (is_pending[turn]) {
            status = with->wait(with->events[at]);
            if (status == 0)
                copy_piece(it, &pending[turn], buffer);
            is_pending[turn] = 0;
        }
        if (status == 0 && is_taken(it, &pending[turn])) {
            is_pending[turn] = 1;
            status = enqueue(it, &pending[turn], buffer, with->events[at]);
        } else if (!is_pending[turn ^ 1]) {
            break;
        }
    }
    return status;
}

static void run(work *it, uint64_t number)
{
    void *before;
    int status = it->with->push(it->with->context), none = 0;
    if (status == 0) {
        status = it->to_device ? bring(it, number) : fetch(it, number);
        it->with->pop(&before);
    }
    if (status != 0)
        atomic_compare_exchange_strong(&it->status, &none, status);
}

/* ---- Threads ---------------------------------------------------------------------------- */

/* They stay for the next copy: to start one takes as long as to copy 256 KiB.  Nobody waits for a
 * thread that has not begun: after a fork there are none, and the caller does all. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static work *first;
static uint64_t threads, idle;

static void *serve(void *none)
{
    (void)none;
    pthread_mutex_lock(&lock);
    for (;;) {
        work *it = first;
        while (it != NULL && it->taken == it->workers)
            it = it->behind;
        if (it == NULL) {
            ++idle;
            pthread_cond_wait(&wanted, &lock);
            --idle;
            continue;
        }
        const uint64_t number = it->taken++;
        pthread_mutex_unlock(&lock);
        run(it, number);
        pthread_mutex_lock(&lock);
        if (++it->ended == it->taken)
            pthread_cond_broadcast(&ended);
    }
    return NULL;
}

/* Under the lock: let so many more threads be there as are not idle. */
static void have(uint64_t more)
{
    pthread_attr_t apart;
    if (more <= idle || pthread_attr_init(&apart) != 0)
        return;
    pthread_attr_setdetachstate(&apart, PTHREAD_CREATE_DETACHED);
    for (more -= idle; more > 0 && threads < MOST_THREADS; --more, ++threads) {
        pthread_t made;
        if (pthread_create(&made, &apart, serve, NULL) != 0)
            break;
    }
    pthread_attr_destroy(&apart);
}

static void forget(work *it)
{
    work **at = &first;
    while (*at != it)
        at = &(*at)->behind;
    *at = it->behind;
}

/* How many lines a piece has: what a buffer holds, but so few that every thread has two. */
static uint64_t lines_of_piece(const tilewright_staging *with, uint64_t count, uint64_t pitch)
{
    enum { LEAST_BYTES = 256 << 10 }; /* which takes a core 25 us, as its thread does to start */
    uint64_t most = with->buffer_bytes / pitch;
    uint64_t lines = (count + 2 * with->threads - 1) / (2 * with->threads);
    const uint64_t least = LEAST_BYTES / pitch;
    if (lines < least)
        lines = least;
    if (lines < most)
        most = lines;
    return most > 0 ? most : 1; /* a line fits, and what it is rounded up by does not */
}

/* ---- All of them ------------------------------------------------------------------------ */

static int stage(const tilewright_staging *with, const tilewright_lines *what, int to_device)
{
    work all = {.with = with, .what = what, .to_device = to_device, .taken = 1, .ended = 1};
    if (what->width == 0 || what->lines == 0)
        return 0;
    all.pieces_of_line = (what->width + with->buffer_bytes - 1) / with->buffer_bytes;
    all.pitch = (what->width + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    all.lines_of_piece = all.pieces_of_line > 1 ? 1 : lines_of_piece(with, what->lines, all.pitch);
    all.pieces = (what->lines + all.lines_of_piece - 1) / all.lines_of_piece * all.pieces_of_line;
    all.workers = with->threads < all.pieces ? with->threads : all.pieces;
    pthread_mutex_lock(&lock);
    all.behind = first;
    first = &all;
    have(all.workers - 1);
    pthread_cond_broadcast(&wanted);
    pthread_mutex_unlock(&lock);
    run(&all, 0);
    pthread_mutex_lock(&lock);
    forget(&all); /* who has not begun has no piece left */
    while (all.ended < all.taken)
        pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
    return atomic_load(&all.status);
}

int tilewright_stage_to_device(const tilewright_staging *it, const tilewright_lines *what)
{
    return stage(it, what, 1);
}

int tilewright_stage_to_host(const tilewright_staging *it, const tilewright_lines *what)
{
    return stage(it, what, 0);
}
