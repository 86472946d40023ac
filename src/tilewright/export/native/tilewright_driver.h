/* The driver's functions, and what the library knows of a context. */
#ifndef TILEWRIGHT_DRIVER_H
#define TILEWRIGHT_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "tilewright_internal.h"

#ifdef __STDC_NO_ATOMICS__
#error "this library needs C11 atomics"
#endif

/* Of cuda.h, from here on; its handles are pointers. */
typedef unsigned long long tilewright_memory;

typedef struct {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    tw_stream stream;
    const void *attributes;
    unsigned attribute_count;
} tilewright_config; /* CUlaunchConfig */

typedef struct {
    unsigned id, pad;
    unsigned value[16];
} tilewright_attribute; /* CUlaunchAttribute */

typedef struct {
    int (*context_id)(void *context, unsigned long long *id);
    int (*context_device)(int *device);
    int (*context_synchronize)(void);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*device_name)(char *name, int length, int device);
    int (*load)(void **module, const void *image);
    int (*unload)(void *module);
    int (*function)(void **function, void *module, const char *name);
    int (*set_attribute)(void *function, int attribute, int value);
    int (*launch)(const tilewright_config *config, void *function, void **arguments, void **extra);
    int (*error_string)(int result, const char **text);
    int (*allocate)(tilewright_memory *memory, size_t bytes);
    int (*free)(tilewright_memory memory);
    int (*clear)(tilewright_memory memory, unsigned char value, size_t bytes, tw_stream stream);
    int (*stream_create)(tw_stream *stream, unsigned flags);
    int (*stream_destroy)(tw_stream stream);
    int (*stream_synchronize)(tw_stream stream);
    int (*stream_id)(tw_stream stream, unsigned long long *id);
    int (*capture)(tw_stream stream, int *status, unsigned long long *id, void **graph,
                   const void ***dependencies, size_t *count);
    int (*exchange_mode)(int *mode);
    /* Null in drivers that know no tensor maps. */
    int (*encode_tiled)(void *map, int type, unsigned rank, void *first, const uint64_t *sizes,
                        const uint64_t *strides, const unsigned *box, const unsigned *steps,
                        int interleave, int swizzle, int promotion, int fill);
} tilewright_driver_calls;

extern tilewright_driver_calls tilewright_driver;

enum { TILEWRIGHT_CUDA_SUCCESS = 0 };

/* The library's status for a CUresult. */
tw_status tilewright_status_of(int result);

/* Of a code in a context: its functions, and the module that they are in. */
typedef struct {
    _Atomic(void *) function; /* null where it is not loaded */
    void *second, *module;
} tilewright_loaded;

typedef struct tilewright_workspace tilewright_workspace;

typedef struct tilewright_context {
    unsigned long long id;
    struct tilewright_context *next;
    tilewright_place place;
    int begins_early; /* whether a launch may begin before the one before it has ended */
    pthread_mutex_t workspace_lock;
    tilewright_workspace *workspaces; /* under that lock, the one used last first */
    tilewright_loaded loaded[];
} tilewright_context;

/* The current context; made known to the library if it is new. */
tw_status tilewright_current(tilewright_context **here);

/* A code's functions in the current context, loaded if they are not. */
tw_status tilewright_function(tilewright_context *here, int code, void **function, void **second);

/* Where a launch of so many blocks on a stream finds its workspace.  The caller holds the
 * context's workspace_lock until everything that uses the workspace is enqueued. */
tw_status tilewright_workspace_of(tilewright_context *here, tw_stream stream, int64_t blocks,
                                  unsigned part_bytes, tilewright_memory *address);

/* Free all workspaces of the current context; nothing may run in it. */
tw_status tilewright_forget_workspaces(tilewright_context *here);

#endif
