/* Lines of a matrix between pageable memory and a device, through pinned buffers. */
#ifndef TILEWRIGHT_STAGING_H
#define TILEWRIGHT_STAGING_H

#include "core.h"

/* CUDA_MEMCPY2D of cuda.h: lines between two places, each with a pitch of its own. */
typedef struct {
    size_t x, y;
    int kind; /* CUmemorytype */
    const void *host;
    uint64_t device;
    void *array;
    size_t pitch;
} tilewright_side;

typedef struct {
    tilewright_side from, to;
    size_t width, lines;
} tilewright_plane;

/* What copies in one direction on one stream.  Functions are the driver's; statuses CUresult. */
typedef struct {
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*copy)(const tilewright_plane *plane, void *stream);
    int (*record)(void *event, void *stream);
    int (*wait)(void *event);
    void *context, *stream;
    unsigned char *buffers; /* two for each thread, one behind the other */
    void *const *events;    /* of each buffer's last copy by the device */
    uint64_t buffer_bytes, threads;
} tilewright_staging;

/* Some lines, `step` bytes apart on the host, which may be negative, and `pitch` on the device. */
typedef struct {
    uint64_t device, pitch;
    unsigned char *host;
    int64_t step;
    uint64_t width, lines;
} tilewright_lines;

/* Enqueue all copies to the device; the host's memory has been read when it returns. */
TILEWRIGHT_API int tilewright_stage_to_device(const tilewright_staging *it,
                                              const tilewright_lines *what);

/* Copy to the host, and wait for it. */
TILEWRIGHT_API int tilewright_stage_to_host(const tilewright_staging *it,
                                            const tilewright_lines *what);

#endif
