/* Which plan serves a call: a table of what calls must have in common. */
#ifndef TILEWRIGHT_TABLE_H
#define TILEWRIGHT_TABLE_H

#include "core.h"

/* What there is to know of an array besides its address.  Strides in the library's own unit. */
typedef struct {
    int64_t rows, columns, down, across;
    const void *dtype; /* Python's object; the entry keeps it */
    uint64_t begins;   /* its address modulo 16 */
} tilewright_layout;

/* Compared byte by byte: has no padding, and is made zero before it is filled in. */
typedef struct {
    const void *type, *out_dtype; /* Python's objects */
    tilewright_layout a, b, c;
    int64_t device;
    char accuracy[16];
    char trans_a, trans_b, conjugated_a, conjugated_b;
    char new_c, no_alpha, imaginary, padding;
} tilewright_key;

typedef struct tilewright_entry {
    tilewright_key key;
    const tilewright_plan *plan;
    void *plan_owner, *shape, *dtype, *device; /* Python's; the last three of a new C */
    int exchanged;                             /* whether the kernel's A is the caller's b */
    int is_complex;                            /* whether scalars may be */
    int whole;                                 /* whether scalars are integers of 32 bits */
    double most;                               /* finite scalars beyond it are refused */
    uint64_t extent_a, extent_b, extent_c;     /* bytes from the first element to the last's end */
    struct {
        int64_t a, b; /* from them to C: distances at which no element is shared */
    } apart[8];
    unsigned apart_count, next_apart;
    struct tilewright_entry *next, *newer, *older;
} tilewright_entry;

/* The entry of a key, which becomes the one used last; null where there is none. */
tilewright_entry *tilewright_table_find(const tilewright_key *key);

/* A new entry of a key that has none, all zero but the key; null where memory is short.  What it
 * takes the place of, if anything, is `removed` and freed by tilewright_entry_free. */
tilewright_entry *tilewright_table_add(const tilewright_key *key, tilewright_entry **removed);

/* Take one entry out of the table; null when it is empty. */
tilewright_entry *tilewright_table_take(void);

#endif
