/* Tables of plans: hashed, the least recently used entry makes room.  Callers hold a lock. */
#include "table.h"

#include <stdlib.h>
#include <string.h>

/* Some hundred layouts are alive in any program we know of; entries and their plans take 2 KB in
 * the mean, so that all of them stay below 16 MB. */
enum { MOST_ENTRIES = 4096 };

static const unsigned char *key_of(const tilewright_node *it)
{
    return (const unsigned char *)(it + 1);
}

static tilewright_node **bucket_of(tilewright_table *it, const unsigned char *key)
{
    /* FNV-1a's constants, a word at a time; the high bits are the well mixed ones. */
    uint64_t hash = 14695981039346656037u, word;
    for (size_t at = 0; at < it->key_bytes; at += sizeof word) {
        memcpy(&word, key + at, sizeof word);
        hash = (hash ^ word) * 1099511628211u;
        hash ^= hash >> 29;
    }
    return &it->buckets[(hash >> 32) % TILEWRIGHT_BUCKETS];
}

static void unlink_node(tilewright_table *it, tilewright_node *one)
{
    *(one->newer ? &one->newer->older : &it->newest) = one->older;
    *(one->older ? &one->older->newer : &it->oldest) = one->newer;
}

static void make_newest(tilewright_table *it, tilewright_node *one)
{
    one->newer = NULL;
    one->older = it->newest;
    *(it->newest ? &it->newest->newer : &it->oldest) = one;
    it->newest = one;
}

void *tilewright_table_find(tilewright_table *it, const void *key)
{
    tilewright_node *one = it->newest;
    if (one != NULL && memcmp(key_of(one), key, it->key_bytes) == 0) /* as most often */
        return one;
    one = *bucket_of(it, key);
    while (one != NULL && memcmp(key_of(one), key, it->key_bytes) != 0)
        one = one->next;
    if (one != NULL) {
        unlink_node(it, one);
        make_newest(it, one);
    }
    return one;
}

void *tilewright_table_take(tilewright_table *it)
{
    tilewright_node *const one = it->oldest;
    if (one == NULL)
        return NULL;
    tilewright_node **at = bucket_of(it, key_of(one));
    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
    unlink_node(it, one);
    --it->count;
    return one;
}

void *tilewright_table_add(tilewright_table *it, const void *key, void **removed)
{
    tilewright_node *const one = calloc(1, it->entry_bytes);
    *removed = NULL;
    if (one == NULL)
        return NULL;
    if (it->count >= MOST_ENTRIES)
        *removed = tilewright_table_take(it);
    memcpy(one + 1, key, it->key_bytes);
    tilewright_node **const at = bucket_of(it, key);
    one->next = *at;
    *at = one;
    make_newest(it, one);
    ++it->count;
    return one;
}
