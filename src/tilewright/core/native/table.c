/* The table of plans: hashed, the least recently used entry makes room.  Callers hold Python's lock. */
#include "table.h"

#include <stdlib.h>
#include <string.h>

/* Some hundred layouts are alive in any program we know of; entries and their plans take 2 KB in
 * the mean, so that all of them stay below 16 MB. */
enum { MOST_ENTRIES = 4096, BUCKETS = 8192 };

static tilewright_entry *buckets[BUCKETS];
static tilewright_entry *newest, *oldest;
static unsigned count;

static unsigned bucket_of(const tilewright_key *key)
{
    /* FNV-1a's constants, a word at a time; the high bits are the well mixed ones. */
    uint64_t hash = 14695981039346656037u, word;
    const unsigned char *const bytes = (const unsigned char *)key;
    _Static_assert(sizeof *key % sizeof word == 0, "the key is whole words");
    for (size_t at = 0; at < sizeof *key; at += sizeof word) {
        memcpy(&word, bytes + at, sizeof word);
        hash = (hash ^ word) * 1099511628211u;
        hash ^= hash >> 29;
    }
    return (unsigned)(hash >> 32) % BUCKETS;
}

static void unlink_entry(tilewright_entry *it)
{
    *(it->newer ? &it->newer->older : &newest) = it->older;
    *(it->older ? &it->older->newer : &oldest) = it->newer;
}

static void make_newest(tilewright_entry *it)
{
    it->newer = NULL;
    it->older = newest;
    *(newest ? &newest->newer : &oldest) = it;
    newest = it;
}

tilewright_entry *tilewright_table_find(const tilewright_key *key)
{
    tilewright_entry *it = buckets[bucket_of(key)];
    while (it != NULL && memcmp(&it->key, key, sizeof *key) != 0)
        it = it->next;
    if (it != NULL && it != newest) {
        unlink_entry(it);
        make_newest(it);
    }
    return it;
}

tilewright_entry *tilewright_table_take(void)
{
    tilewright_entry *const it = oldest;
    if (it == NULL)
        return NULL;
    tilewright_entry **at = &buckets[bucket_of(&it->key)];
    while (*at != it)
        at = &(*at)->next;
    *at = it->next;
    unlink_entry(it);
    --count;
    return it;
}

tilewright_entry *tilewright_table_add(const tilewright_key *key, tilewright_entry **removed)
{
    tilewright_entry *const it = calloc(1, sizeof *it);
    *removed = NULL;
    if (it == NULL)
        return NULL;
    if (count >= MOST_ENTRIES)
        *removed = tilewright_table_take();
    it->key = *key;
    tilewright_entry **const at = &buckets[bucket_of(key)];
    it->next = *at;
    *at = it;
    make_newest(it);
    ++count;
    return it;
}
