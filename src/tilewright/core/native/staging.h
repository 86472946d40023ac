/* Lines of a matrix between pageable memory and a device, through pinned buffers. */
#ifndef TILEWRIGHT_STAGING_H
#define TILEWRIGHT_STAGING_H

#include "core.h"

/* What copies in one direction on one stream.  Functions are the driver's; statuses CUresult. */
typedef struct {
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*to_device)(uint64_t device, const void *host, size_t bytes, void *stream);
    int (*to_host)(void *host, uint64_t device, size_t bytes, void *stream);
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
