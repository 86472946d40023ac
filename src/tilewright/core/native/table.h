/* Tables of plans: what serves calls that have a key in common. */
#ifndef TILEWRIGHT_TABLE_H
#define TILEWRIGHT_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum { TILEWRIGHT_BUCKETS = 8192 };

/* What an entry begins with; its key is right behind. */
typedef struct tilewright_node {
    struct tilewright_node *next, *newer, *older;
} tilewright_node;

/* Keys have `key_bytes`, whole words, and are compared byte by byte; entries `entry_bytes`.  All
 * else is 0 at first. */
typedef struct {
    size_t key_bytes, entry_bytes;
    tilewright_node *buckets[TILEWRIGHT_BUCKETS], *newest, *oldest;
    unsigned count;
} tilewright_table;

/* The entry of a key, which becomes the one used last; null where there is none. */
void *tilewright_table_find(tilewright_table *it, const void *key);

/* A new entry of a key that has none, all zero but the key; null where memory is short.  What it
 * takes the place of, if anything, is `removed`: the caller's, to be freed. */
void *tilewright_table_add(tilewright_table *it, const void *key, void **removed);

/* Take the entry used least recently out of the table; null when that is empty. */
void *tilewright_table_take(tilewright_table *it);

#endif
