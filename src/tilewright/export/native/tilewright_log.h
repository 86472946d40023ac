/* What a program's calls are written down as, whichever library's names they go by. */
#ifndef TILEWRIGHT_LOG_H
#define TILEWRIGHT_LOG_H

#include "tilewright_internal.h"

enum { TILEWRIGHT_CUBLAS, TILEWRIGHT_BLAS };

/* A kind of calls.  Compared byte by byte: whole words.  Column-major. */
typedef struct {
    int64_t library, letter, op_a, op_b; /* of the above, s d c z, N T C */
    int64_t m, n, k, batch, served;      /* 2: with another accuracy than IEEE arithmetic's */
} tilewright_kind;

/* Whether calls are written down: TILEWRIGHT_CALLS_LOG names a folder, where at its end each process
 * writes a file, a line of JSON for each kind of calls. */
int tilewright_logs(void);

/* Count a call.  Times are those of both libraries for one that was compared, and has ended, or 0. */
void tilewright_note(const tilewright_kind *key, double ours_ms, double theirs_ms);

/* A call as a trace has it, 152 bytes: where TILEWRIGHT_CALLS_TRACE is not empty, each process writes
 * its first TILEWRIGHT_TRACED calls beside the kinds as they end, and how many came behind them: a
 * last row that begins at 0, with that number as m.  Nanoseconds of CLOCK_MONOTONIC; `seen` is when
 * the host knew that the device had ended.  cli/run_trace.py reads it. */
typedef struct {
    char name[32];
    int64_t begun, ended, seen, thread;
    tilewright_kind kind; /* letter -1: another type */
    double ours_ms, theirs_ms;
} tilewright_row;

enum { TILEWRIGHT_TRACED = 1 << 18 };

/* When a call begins; 0 where nobody traces. */
int64_t tilewright_begin(void);

/* Write down a call that ends, unless it began at 0. */
void tilewright_trace(const char *name, const tilewright_kind *kind, int64_t begun);

#endif
