/* Workspaces: device memory that blocks of a launch leave parts of their sums in.
 *
 *     | number, 128 bytes | a word for each block | to 16384 bytes | a part for each block |
 *
 * Number and words are zero before a launch, and the kernel leaves them zero; parts may hold
 * anything.  Launches on a stream follow one another, so they share a workspace; those of different
 * streams may run at once and have one each.  Streams are told apart by the driver's number for
 * them, which is never given twice, nor at all while a stream is captured: asking for it then
 * spoils the capture.  Launches that are captured into a graph may run whenever the graph does:
 * each capture has workspaces of its own, which are kept until tw_unload, because nobody says when
 * a graph is forgotten; also one that became too small, which earlier launches of the graph have.
 */
#include "tilewright_driver.h"

#include <stdlib.h>

enum { NUMBER_BYTES = 128, WORD_BYTES = 4, PARTS_AT = 16384 };

/* Streams that work at the same time; a program that makes one for each call must not collect
 * memory for all of them. */
enum { MOST_STREAMS = 32 };

enum { CAPTURE_MODE_RELAXED = 2, STREAM_NON_BLOCKING = 1 };

struct tilewright_workspace {
    tilewright_workspace *next;
    tilewright_memory address;
    size_t size;
    /* A stream's number; or the stream itself, and what it is captured into. */
    unsigned long long number, capture;
};

/* Allocate while a stream of this thread may be captured; words are zero. */
static int allocate(tilewright_memory *address, size_t size)
{
    int mode = CAPTURE_MODE_RELAXED, result;
    tw_stream stream;
    result = tilewright_driver.exchange_mode(&mode);
    if (result != TILEWRIGHT_CUDA_SUCCESS)
        return result;
    result = tilewright_driver.allocate(address, size);
    if (result == TILEWRIGHT_CUDA_SUCCESS) {
        result = tilewright_driver.stream_create(&stream, STREAM_NON_BLOCKING);
        if (result == TILEWRIGHT_CUDA_SUCCESS) {
            result = tilewright_driver.clear(*address, 0, PARTS_AT, stream);
            if (result == TILEWRIGHT_CUDA_SUCCESS)
                result = tilewright_driver.stream_synchronize(stream);
            tilewright_driver.stream_destroy(stream);
        }
        if (result != TILEWRIGHT_CUDA_SUCCESS)
            tilewright_driver.free(*address);
    }
    tilewright_driver.exchange_mode(&mode);
    return result;
}

/* Free memory when nothing uses it any more. */
static int give_back(tilewright_memory address)
{
    int mode = CAPTURE_MODE_RELAXED;
    int result = tilewright_driver.exchange_mode(&mode);
    if (result != TILEWRIGHT_CUDA_SUCCESS)
        return result;
    result = tilewright_driver.context_synchronize();
    if (result == TILEWRIGHT_CUDA_SUCCESS)
        result = tilewright_driver.free(address);
    tilewright_driver.exchange_mode(&mode);
    return result;
}

/* Fill in which stream it is, and whether it is captured. */
static int look_at_stream(tw_stream stream, tilewright_workspace *it)
{
    int capturing = 0;
    unsigned long long capture = 0;
    const int result = tilewright_driver.capture(stream, &capturing, &capture, NULL, NULL, NULL);
    if (result != TILEWRIGHT_CUDA_SUCCESS)
        return result;
    it->number = (unsigned long long)(uintptr_t)stream;
    it->capture = capturing ? capture : 0;
    return capturing ? result : tilewright_driver.stream_id(stream, &it->number);
}

/* Take a stream's workspace out of the list; null where it has none that is large enough. */
static tilewright_workspace *take(tilewright_context *here, const tilewright_workspace *like)
{
    tilewright_workspace **at = &here->workspaces;
    while (*at != NULL && ((*at)->number != like->number || (*at)->capture != like->capture ||
                           ((*at)->capture && (*at)->size < like->size)))
        at = &(*at)->next;
    tilewright_workspace *const found = *at;
    if (found != NULL)
        *at = found->next;
    return found;
}

/* Free the workspace of the stream that was not used for the longest time, if there are many. */
static int forget_oldest(tilewright_context *here)
{
    tilewright_workspace **oldest = NULL;
    int streams = 0;
    for (tilewright_workspace **at = &here->workspaces; *at != NULL; at = &(*at)->next)
        if ((*at)->capture == 0) {
            oldest = at;
            ++streams;
        }
    if (streams < MOST_STREAMS)
        return TILEWRIGHT_CUDA_SUCCESS;
    tilewright_workspace *const it = *oldest;
    const int result = give_back(it->address);
    if (result == TILEWRIGHT_CUDA_SUCCESS) {
        *oldest = it->next;
        free(it);
    }
    return result;
}

tw_status tilewright_workspace_of(tilewright_context *here, tw_stream stream, int64_t blocks,
                                  unsigned part_bytes, tilewright_memory *address)
{
    tilewright_workspace like = {.size = PARTS_AT + (size_t)blocks * part_bytes};
    int result = look_at_stream(stream, &like);
    if (result != TILEWRIGHT_CUDA_SUCCESS)
        return tilewright_status_of(result);
    tilewright_workspace *it = take(here, &like);
    if (it != NULL && it->size < like.size) { /* launches that have it may still run */
        result = give_back(it->address);
        it->size = 0;
        if (result == TILEWRIGHT_CUDA_SUCCESS)
            result = allocate(&it->address, like.size);
    } else if (it == NULL) {
        result = forget_oldest(here);
        it = malloc(sizeof *it);
        if (it == NULL)
            return TW_NO_MEMORY;
        if (result == TILEWRIGHT_CUDA_SUCCESS)
            result = allocate(&like.address, like.size);
        *it = like;
        it->size = 0;
    }
    if (result != TILEWRIGHT_CUDA_SUCCESS) {
        free(it);
        return tilewright_status_of(result);
    }
    if (it->size < like.size)
        it->size = like.size;
    it->next = here->workspaces;
    here->workspaces = it;
    *address = it->address;
    return TW_OK;
}

tw_status tilewright_forget_workspaces(tilewright_context *here)
{
    tw_status status = TW_OK;
    pthread_mutex_lock(&here->workspace_lock);
    while (here->workspaces != NULL) {
        tilewright_workspace *const it = here->workspaces;
        const int result = give_back(it->address);
        if (result != TILEWRIGHT_CUDA_SUCCESS && status == TW_OK)
            status = tilewright_status_of(result);
        here->workspaces = it->next;
        free(it);
    }
    pthread_mutex_unlock(&here->workspace_lock);
    return status;
}
