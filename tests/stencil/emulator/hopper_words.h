/* What Hopper adds, for a CPU: barriers in shared memory, the copy engine and the tensor cores.
 *
 * Copies by the engine and multiplies are asynchronous, and happen as early or as late as
 * allowed, opposite ways (machine::late): a multiply that is not waited for finds its
 * operands overwritten, a copy that is not waited for is not there.
 */
#pragma once
#include <array>
#include <cmath>

namespace emulated {

inline int rank_now() { return now.current->rank; }

int threads_of_block();

thread &neighbour(int id);

/* ---- barriers in shared memory ---- */

void begin_barrier(unsigned at, int arrivals);

void arrive(int rank, unsigned at, long long bytes = 0);

/* A phase of that parity has ended: the current one has the other. */
void wait_for_parity(unsigned at, unsigned parity);

/* ---- the copy engine ---- */

/* What device.py makes of a tensor map. */
struct tensor {
    const char *first;
    int element_bytes, rank, span;
    long long sizes[3], strides[3]; /* elements; bytes */
    int box[3];
};
static_assert(sizeof(tensor) <= 128);

struct box_copy {
    tensor from;
    unsigned to, full;
    unsigned mask; /* a bit for each block of a cluster; 0: to the block that asks, alone */
    int at[3];
};

/* Start copying a box to the same place of each block that it is for. */
void start_box(const box_copy &c);

/* ---- the tensor cores ---- */

enum kind { F16, BF16, TF32, S8, E4M3, E5M2 };

/* An element that lies in memory. */
double value_of(kind k, const char *at);

float float_of_bits(unsigned bits);

float half_of_bits(unsigned bits);

/* The nearest number of 16 bits, ties to even. */
unsigned short half_bits(float v);

unsigned short bfloat16_bits(float v);

double value_of(kind k, const char *at);

/* What some lanes have said: as many words each. */
struct words_of_lanes {
    std::vector<unsigned> all;
    size_t each = 0;
    const unsigned *operator[](size_t lane) const { return &all[lane * each]; }
    bool empty() const { return all.empty(); }
};

struct multiply {
    kind type;
    int columns;
    unsigned long long a, b;
    bool a_k_fast, b_k_fast, go_on;
    void *sum; /* this thread's: columns / 2 floats or ints */
    words_of_lanes rows; /* of a warp, in the place of `a` */
};

/* This thread's numbers of a 64 x columns result: lane l of warp w has rows 16 w + l / 4 and
 * 8 more, and of every 8 columns two from 2 (l % 4) on. */
void perform(const multiply &m);

void start_multiply(const multiply &m);

void end_multiplies();

/* Wait for all groups but the latest, and for the warp: its threads wait together. */
void wait_for_multiplies(int latest);

/* ---- threads among themselves ---- */

/* Say some words, and return what `lanes` consecutive lanes, this one's group, have said. */
words_of_lanes among(int lanes, std::vector<unsigned> words);

}  // namespace emulated
