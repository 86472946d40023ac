/* Calls counted by kind, and written down when the process ends. */
#include "tilewright_log.h"
#include "table.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
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
static FILE *file;

static const char *const libraries[] = {"cublas", "blas"}, *const accuracies[] = {"fp32", "fp64"};
const char tilewright_letters[] = "sdcz", tilewright_operations[] = "NTC";

static void hold(void) { pthread_mutex_lock(&lock); }
static void let_go(void) { pthread_mutex_unlock(&lock); }

/* A process that was forked counts its own calls. */
static void forked(void)
{
    seen *it;
    while ((it = tilewright_table_take(&kinds)) != NULL)
        free(it);
    file = NULL;
    let_go();
}

__attribute__((constructor)) static void begin(void)
{
    folder = getenv("TILEWRIGHT_CALLS_LOG");
    if (folder != NULL)
        pthread_atfork(hold, let_go, forked);
}

int tilewright_logs(void) { return folder != NULL; }

/* Write a kind's line, and free it. */
static void write_down(seen *it)
{
    const tilewright_kind *const key = &it->key;
    if (file == NULL && folder != NULL) {
        char path[4096];
        const int size = snprintf(path, sizeof path, "%s/%ld.jsonl", folder, (long)getpid());
        if (size > 0 && (size_t)size < sizeof path)
            file = fopen(path, "w");
    }
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

void tilewright_note(const tilewright_kind *key, double ours_ms, double theirs_ms)
{
    void *removed = NULL;
    pthread_mutex_lock(&lock);
    seen *entry = tilewright_table_find(&kinds, key);
    if (entry == NULL && (entry = tilewright_table_add(&kinds, key, &removed)) != NULL &&
        key->served && key->m > 0 && key->n > 0)
        entry->kernel = tilewright_laid_elsewhere
                            ? accuracies[key->letter & 1]
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
    file = NULL;
    folder = NULL;
    pthread_mutex_unlock(&lock);
}
