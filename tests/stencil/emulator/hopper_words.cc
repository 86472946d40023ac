/* What the words of hopper_words.h do: compiled once, for all kernels. */
#include <array>

#include "cuda_words.h"
#include "hopper_words.h"

namespace emulated {

namespace {

barrier *barrier_at(int rank, unsigned at)
{
    const auto found = now.barriers.find({rank, at});
    if (found != now.barriers.end() && now.running[rank])
        return &found->second;
    fault(found == now.barriers.end() ? "a barrier that nobody began"
                                      : "a barrier of a block that has ended");
    static barrier nowhere;
    return &nowhere;
}

void end_phase_if_due(barrier *b)
{
    if (b->pending < 0)
        fault("more arrivals at a barrier than it was begun for");
    if (b->pending == 0 && b->bytes == 0) {
        b->pending = b->count;
        ++b->phase;
    }
}

void complete_bytes(int rank, unsigned at, int bytes)
{
    barrier *const b = barrier_at(rank, at);
    b->bytes -= bytes;
    end_phase_if_due(b);
}

/* Exchange 16-byte pieces of a span of 128, 64 or 32 bytes by the bits that count rows of
 * 128 bytes. */
unsigned swizzled(unsigned at, int span)
{
    return span < 32 ? at : at ^ ((at >> 7) % (span / 16)) << 4;
}

void check_box(const box_copy &c)
{
    const tensor &t = c.from;
    const int inner = t.box[0] * t.element_bytes;
    if ((uintptr_t)t.first % 16 || t.strides[1] % 16 || t.strides[2] % 16)
        fault("a tensor whose base or strides are no multiples of 16 bytes");
    if (inner % 16 || (t.span && inner > t.span) || t.box[0] > 256 || t.box[1] > 256)
        fault("a box that the copy engine does not take");
    if (c.at[0] * t.element_bytes % 16) /* an illegal instruction, on an H100 */
        fault("a box that begins within 16 bytes of what is contiguous");
    if (c.to % (t.span ? 8 * t.span : 128))
        fault("a copy to where its pattern of exchanged pieces does not begin");
}

void copy_box_to(const box_copy &c, int rank)
{
    const tensor &t = c.from;
    unsigned linear = c.to;
    for (int z = 0; z < t.box[2]; ++z)
        for (int y = 0; y < t.box[1]; ++y)
            for (int x = 0; x < t.box[0]; ++x, linear += t.element_bytes) {
                char *const to = shared_bytes(rank, swizzled(linear, t.span), t.element_bytes,
                                              "a box is copied to");
                const long long p[3] = {c.at[0] + x, c.at[1] + y, c.at[2] + z};
                bool inside = true;
                for (int d = 0; d < 3; ++d) inside = inside && p[d] >= 0 && p[d] < t.sizes[d];
                const char *const from =
                    t.first + p[0] * t.element_bytes + p[1] * t.strides[1] + p[2] * t.strides[2];
                if (!inside)
                    std::memset(to, 0, t.element_bytes);
                else if (check_readable(from, t.element_bytes, t.element_bytes))
                    std::memcpy(to, from, t.element_bytes);
            }
    complete_bytes(rank, c.full, t.box[0] * t.box[1] * t.box[2] * t.element_bytes);
}

float half_value(unsigned bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = bits >> 15 ? -1 : 1;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? std::ldexp(1024.0f + fraction, exponent - 25)
                            : std::ldexp((float)fraction, -24));
}

int bytes_of(kind k) { return k >= S8 ? 1 : k == TF32 ? 4 : 2; }

/* E5M2 is FP16 without its last byte; E4M3 has no infinity, and NaN is all ones. */
float e4m3_of_bits(unsigned bits)
{
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    const float sign = bits >> 7 ? -1 : 1;
    if (exponent == 15 && fraction == 7)
        return NAN;
    return sign * (exponent ? std::ldexp(1 + fraction / 8.0f, exponent - 7)
                            : std::ldexp(fraction / 8.0f, -6));
}

/* A number by its bits, of so many that are computed once. */
template <float (*OF_BITS)(unsigned), int COUNT> float looked_up(unsigned bits)
{
    static const std::vector<float> all = [] {
        std::vector<float> v(COUNT);
        for (int i = 0; i < COUNT; ++i) v[i] = OF_BITS(i);
        return v;
    }();
    return all[bits];
}

/* Where an element of an operand lies (PTX ISA, "Strides" and "Canonical layouts" of wgmma). */
unsigned place_in(unsigned long long descriptor, kind t, bool k_fast, int side, int k)
{
    const unsigned start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4,
                   stride = (descriptor >> 32 & 0x3fff) << 4, mode = descriptor >> 62;
    const int span = mode ? 256 >> mode : 0, bytes = bytes_of(t);
    if (descriptor >> 46 & 0xffff)
        fault("bits of a matrix descriptor that should be zero");
    unsigned at = start;
    if (k_fast && span)
        at += side / 8 * stride + side % 8 * span + k * bytes;
    else if (k_fast)
        at += side / 8 * stride + side % 8 * 16 + k * bytes / 16 * leading + k * bytes % 16;
    else if (span)
        at += side / (span / bytes) * leading + side % (span / bytes) * bytes + k / 8 * stride +
              k % 8 * span;
    else
        at += side / 8 * stride + side % 8 * bytes + k / 8 * leading + k % 8 * 16;
    return swizzled(at, span);
}

/* The tensor core truncates its sums; so much is modelled: once an instruction. */
float toward_zero(double v)
{
    const float nearest = (float)v;
    return std::fabs((double)nearest) > std::fabs(v) ? std::nextafterf(nearest, 0.0f) : nearest;
}

}  // namespace

int threads_of_block() { return (int)(now.threads.size() / now.shared.size()); }

thread &neighbour(int id) { return now.threads[rank_now() * threads_of_block() + id]; }

void begin_barrier(unsigned at, int arrivals)
{
    shared_bytes(rank_now(), at, 8, "a barrier lies in");
    now.barriers[{rank_now(), at}] = {arrivals, arrivals, 0, 0};
}

void arrive(int rank, unsigned at, long long bytes)
{
    barrier *const b = barrier_at(rank, at);
    b->bytes += bytes;
    --b->pending;
    end_phase_if_due(b);
}

void wait_for_parity(unsigned at, unsigned parity)
{
    const int rank = rank_now();
    wait_until([=] { return (barrier_at(rank, at)->phase & 1) != (parity & 1); });
}

void start_box(const box_copy &c)
{
    check_box(c);
    const int mine = rank_now();
    auto all = [c, mine] {
        if (!c.mask)
            return copy_box_to(c, mine);
        for (int rank = 0; c.mask >> rank; ++rank)
            if (c.mask >> rank & 1)
                copy_box_to(c, rank);
    };
    if (now.late)
        now.landing.push_back(all);
    else
        all();
}

float float_of_bits(unsigned bits)
{
    float v;
    std::memcpy(&v, &bits, 4);
    return v;
}

float half_of_bits(unsigned bits) { return looked_up<half_value, 65536>(bits); }

unsigned short half_bits(float v)
{
    const unsigned sign = std::signbit(v) ? 0x8000 : 0;
    const double size = std::fabs((double)v);
    if (std::isnan(v))
        return 0x7fff;
    if (size < std::ldexp(1.0, -14)) /* a multiple of the least number */
        return sign | (unsigned)std::nearbyint(std::ldexp(size, 24));
    int exponent;
    const unsigned digits = std::nearbyint(std::ldexp(std::frexp(size, &exponent), 11));
    const unsigned bits = std::isinf(v) ? 0x7c00 : (exponent + 13) * 1024 + digits;
    return sign | std::min(bits, 0x7c00u);
}

unsigned short bfloat16_bits(float v)
{
    unsigned bits;
    std::memcpy(&bits, &v, 4);
    return std::isnan(v) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

double value_of(kind k, const char *at)
{
    unsigned bits = 0;
    std::memcpy(&bits, at, bytes_of(k));
    switch (k) {
    case F16: return half_of_bits(bits);
    case BF16: return float_of_bits(bits << 16);
    case TF32: return float_of_bits(bits & ~0x1fffu); /* the rest is not looked at */
    case E4M3: return looked_up<e4m3_of_bits, 256>(bits);
    case E5M2: return half_of_bits(bits << 8);
    default: return (signed char)bits;
    }
}

void perform(const multiply &m)
{
    const int rank = rank_now(), lane = now.current->id.x % 32, warp = now.current->id.x / 32 % 4;
    const int depth = 32 / bytes_of(m.type), bytes = bytes_of(m.type);
    auto read = [&](unsigned long long from, bool k_fast, int side, double *to) {
        for (int k = 0; k < depth; ++k)
            to[k] = value_of(m.type, shared_bytes(rank, place_in(from, m.type, k_fast, side, k),
                                                  bytes, "the tensor core reads"));
    };
    double row[2][32], column[32];
    for (int h = 0; h < 2; ++h) {
        if (m.rows.empty())
            read(m.a, m.a_k_fast, 16 * warp + lane / 4 + 8 * h, row[h]);
        else /* PTX ISA, "Register fragments for wgmma.mma_async.m64nNk8" */
            for (int k = 0; k < depth; ++k)
                row[h][k] = value_of(m.type, (const char *)&m.rows[lane / 4 * 4 + k % 4][h + k / 4 * 2]);
    }
    for (int j = 0; j < m.columns / 4; ++j) {
        read(m.b, m.b_k_fast, j / 2 * 8 + lane % 4 * 2 + j % 2, column);
        for (int h = 0; h < 2; ++h) {
            const int i = j / 2 * 4 + 2 * h + j % 2;
            double sum = 0;
            for (int k = 0; k < depth; ++k) sum += row[h][k] * column[k];
            if (m.type == S8) {
                int *const to = (int *)m.sum + i;
                *to = (int)((unsigned)(m.go_on ? *to : 0) + (unsigned)(int)sum);
            } else {
                float *const to = (float *)m.sum + i;
                *to = toward_zero((m.go_on ? *to : 0) + sum);
            }
        }
    }
}

void start_multiply(const multiply &m)
{
    if (!now.current->fenced)
        fault("a multiply without a fence since the last wait");
    if (now.late)
        perform(m);
    else
        now.current->multiplies.back().push_back([m] { perform(m); });
}

void end_multiplies() { now.current->multiplies.emplace_back(); }

void wait_for_multiplies(int latest)
{
    thread *const self = now.current;
    auto &groups = self->multiplies;
    while ((int)groups.size() - 1 > latest) {
        for (const auto &m : groups.front()) m();
        groups.erase(groups.begin());
    }
    self->fenced = false;
    const int mine = ++self->waits, rank = self->rank, first = self->id.x / 32 * 32;
    const int base = rank * threads_of_block() + first;
    wait_until([=] {
        return std::all_of(&now.threads[base], &now.threads[base] + 32,
                           [&](const thread &t) { return t.waits >= mine; });
    });
}

words_of_lanes among(int lanes, std::vector<unsigned> words)
{
    thread *const self = now.current;
    self->said.push_back(std::move(words));
    const size_t turn = self->said.size();
    const int first = self->rank * threads_of_block() + self->id.x / lanes * lanes;
    wait_until([=] {
        return std::all_of(&now.threads[first], &now.threads[first] + lanes,
                           [&](const thread &t) { return t.said.size() >= turn; });
    });
    words_of_lanes found;
    for (int i = 0; i < lanes; ++i) {
        const std::vector<unsigned> &one = now.threads[first + i].said[turn - 1];
        if (one.size() != self->said[turn - 1].size())
            fault("lanes that say as many words are asked for others");
        found.all.insert(found.all.end(), one.begin(), one.end());
    }
    found.each = found.all.size() / lanes;
    return found;
}

}  // namespace emulated
