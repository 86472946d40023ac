/* What a program's calls are written down as, whichever library's names they go by. */
#ifndef TILEWRIGHT_LOG_H
#define TILEWRIGHT_LOG_H

#include "tilewright_internal.h"

enum { TILEWRIGHT_CUBLAS, TILEWRIGHT_BLAS };

/* A kind of calls.  Compared byte by byte: whole words.  Column-major. */
typedef struct {
    int64_t library, letter, op_a, op_b; /* of the above, s d c z, N T C */
    int64_t m, n, k, batch, served;
} tilewright_kind;

extern const char tilewright_letters[], tilewright_operations[]; /* "sdcz", "NTC" */

/* Whether calls are written down: TILEWRIGHT_CALLS_LOG names a folder, where at its end each process
 * writes a file, a line of JSON for each kind of calls. */
int tilewright_logs(void);

/* Count a call.  Times are those of both libraries for one that was compared, or 0. */
void tilewright_note(const tilewright_kind *key, double ours_ms, double theirs_ms);

#endif
