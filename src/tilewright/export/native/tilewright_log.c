/* Calls counted by kind, and written down when the process ends; of a trace, as they end. */
#include "tilewright_log.h"
#include "table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    tilewright_node node;
    tilewright_kind key;
    const char *kernel;
    int64_t calls, timed;
    double ours_ms, theirs_ms;
} seen;

static tilewright_table kinds = {
    .key_bytes = sizeof(tilewright_kind), .entry_bytes = sizeof(seen)};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *_Atomic folder; /* null: nothing is written, or nothing more */
static FILE *file, *trace;
static atomic_int traces;
static int64_t traced;

/* Of the calling thread: its number, and what is known of the call that it is in. */
static _Thread_local struct {
    int64_t thread, seen;
    double ours_ms, theirs_ms;
} now;

static const char *const libraries[] = {"cublas", "blas"}, *const accuracies[] = {"fp32", "fp64"};

static void hold(void)
{
    pthread_mutex_lock(&lock);
    /* Or the child would write what they hold, too. */
    if (trace != NULL)
        fflush(trace);
    if (file != NULL)
        fflush(file);
}

static void let_go(void) { pthread_mutex_unlock(&lock); }

/* A process that was forked counts its own calls. */
static void forked(void)
{
    seen *it;
    while ((it = tilewright_table_take(&kinds)) != NULL)
        free(it);
    file = trace = NULL;
    traced = 0;
    now.thread = 0;
    let_go();
}

__attribute__((constructor)) static void begin(void)
{
    folder = getenv("TILEWRIGHT_CALLS_LOG");
    if (folder == NULL)
        return;
    const char *const wanted = getenv("TILEWRIGHT_CALLS_TRACE");
    traces = wanted != NULL && *wanted;
    pthread_atfork(hold, let_go, forked);
}

int tilewright_logs(void) { return folder != NULL; }

/* A file of this process's; null where it cannot be. */
static FILE *opened(const char *ending)
{
    char path[4096];
    const int size = snprintf(path, sizeof path, "%s/%ld.%s", folder, (long)getpid(), ending);
    return size > 0 && (size_t)size < sizeof path ? fopen(path, "wb") : NULL;
}

/* Write a kind's line, and free it. */
static void write_down(seen *it)
{
    const tilewright_kind *const key = &it->key;
    if (file == NULL && folder != NULL)
        file = opened("jsonl");
    if (file != NULL)
        fprintf(file,
                "{\"library\": \"%s\", \"precision\": \"%c\", \"trans\": \"%c%c\", "
                "\"size\": [%lld, %lld, %lld], \"batch\": %lld, \"served\": %s, \"kernel\": \"%s\", "
                "\"calls\": %lld, \"timed\": %lld, \"ours_ms\": %.6f, \"theirs_ms\": %.6f}\n",
                libraries[key->library], tilewright_letters[key->letter],
                tilewright_operations[key->op_a], tilewright_operations[key->op_b],
                (long long)key->m, (long long)key->n, (long long)key->k,
                (long long)key->batch, key->served ? "true" : "false",
                it->kernel == NULL ? "" : it->kernel, (long long)it->calls,
                (long long)it->timed, it->ours_ms, it->theirs_ms);
    free(it);
}

static int64_t clock_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t tilewright_begin(void)
{
    if (!atomic_load_explicit(&traces, memory_order_relaxed))
        return 0;
    now.seen = 0;
    now.ours_ms = now.theirs_ms = 0;
    return clock_ns();
}

/* Write a row, or count it; the lock is held. */
static void write_row(const tilewright_row *row)
{
    if (++traced > TILEWRIGHT_TRACED || folder == NULL)
        return;
    if (trace == NULL)
        trace = opened("trace");
    if (trace != NULL)
        fwrite(row, sizeof *row, 1, trace);
}

void tilewright_trace(const char *name, const tilewright_kind *kind, int64_t begun)
{
    if (begun == 0)
        return;
    if (now.thread == 0)
        now.thread = syscall(SYS_gettid);
    tilewright_row row = {.begun = begun, .ended = clock_ns(), .seen = now.seen, .thread = now.thread,
                          .kind = *kind, .ours_ms = now.ours_ms, .theirs_ms = now.theirs_ms};
    memcpy(row.name, name, strnlen(name, sizeof row.name - 1));
    pthread_mutex_lock(&lock);
    write_row(&row);
    pthread_mutex_unlock(&lock);
}

void tilewright_note(const tilewright_kind *key, double ours_ms, double theirs_ms)
{
    void *removed = NULL;
    now.ours_ms = ours_ms;
    now.theirs_ms = theirs_ms;
    now.seen = theirs_ms > 0 ? clock_ns() : 0;
    pthread_mutex_lock(&lock);
    seen *entry = tilewright_table_find(&kinds, key);
    if (entry == NULL && (entry = tilewright_table_add(&kinds, key, &removed)) != NULL &&
        key->served && key->m > 0 && key->n > 0)
        entry->kernel = key->served > 1
                            ? accuracies[tilewright_is_double(key->letter)]
                            : tw_choose(tilewright_letters[key->letter], TW_COL_MAJOR,
                                  tilewright_operations[key->op_a],
                                  tilewright_operations[key->op_b], key->m, key->n, key->k);
    if (removed != NULL)
        write_down(removed);
    if (entry != NULL) {
        /* The first call loads its kernel, which must not count. */
        if (theirs_ms > 0 && entry->calls > 0) {
            ++entry->timed;
            entry->ours_ms += ours_ms;
            entry->theirs_ms += theirs_ms;
        }
        ++entry->calls;
    }
    pthread_mutex_unlock(&lock);
}

__attribute__((destructor)) static void end(void)
{
    seen *it;
    if (folder == NULL)
        return;
    pthread_mutex_lock(&lock);
    while ((it = tilewright_table_take(&kinds)) != NULL)
        write_down(it);
    if (file != NULL)
        fclose(file);
    if (trace != NULL) {
        const tilewright_row rest = {.kind = {.m = traced - TILEWRIGHT_TRACED}};
        if (traced > TILEWRIGHT_TRACED)
            fwrite(&rest, sizeof rest, 1, trace);
        fclose(trace);
    }
    file = trace = NULL;
    folder = NULL;
    traces = 0;
    pthread_mutex_unlock(&lock);
}
