/* Parts of a number: FP16, BF16 or TF32, written and read as the bits that memory holds.
 *
 *     FP32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm
 *     TF32   s eeeeeeee mmmmmmmmmm0000000000000   11 significant bits, kept in 32
 *     BF16   s eeeeeeee mmmmmmm                    8 significant bits
 *     FP16   s eeeee mmmmmmmmmm                   11 significant bits, subnormal below 2^-14
 *
 * All conversions round to nearest, ties to even.  They are integer arithmetic, so that every
 * device rounds alike, but for CUDA's own, which round so too, two numbers in one instruction (a
 * NaN's digits may differ).  PART is one of the three numbers below.
 */
#define PART_FP16 1
#define PART_BF16 2
#define PART_TF32 3

#if PART == PART_TF32
typedef unsigned int part_bits;
#else
typedef unsigned short part_bits;
#endif

HELPER unsigned int bits_of(float x)
{
    union { float number; unsigned int bits; } both;
    both.number = x;
    return both.bits;
}

HELPER float of_bits(unsigned int bits)
{
    union { float number; unsigned int bits; } both;
    both.bits = bits;
    return both.number;
}

/* 2^e for e from -126 to 127. */
HELPER float power_of_two(int e) { return of_bits((unsigned int)(e + 127) << 23); }

/* x 2^e: exact where the result is normal; e from -252 to 254. */
HELPER float times_power(float x, int e)
{
    const int first = e / 2;
    return x * power_of_two(first) * power_of_two(e - first);
}

/* The least e with |x| < 2^(e + 1), also of subnormal numbers; x is not 0. */
HELPER int exponent_of(float x)
{
    const unsigned int raw = bits_of(x) << 1 >> 24;
    if (raw)
        return (int)raw - 127;
    return (int)(bits_of(x * 8388608.0f) << 1 >> 24) - 127 - 23;
}

#ifdef __CUDACC__
HELPER unsigned int fp16_of(float x)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

HELPER float of_fp16(unsigned int x)
{
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"((unsigned short)x));
    return number;
}
#else
HELPER unsigned int fp16_of(float x)
{
    const unsigned int sign = bits_of(x) >> 16 & 0x8000u, size = bits_of(x) & 0x7fffffffu;
    if (size >= 0x7f800000u) /* infinity, or NaN with its first bits */
        return sign | 0x7c00u | (size > 0x7f800000u ? 0x200u | (size >> 13 & 0x3ffu) : 0u);
    if (size < 0x38800000u) /* subnormal: 0.5 has the place of FP16's last bit, 2^-24 */
        return sign | (bits_of(of_bits(size) + 0.5f) - 0x3f000000u);
    const unsigned int rounded = size - 0x38000000u + 0xfffu + (size >> 13 & 1u);
    return sign | (rounded < 0x0f800000u ? rounded >> 13 : 0x7c00u);
}

HELPER float of_fp16(unsigned int x)
{
    const unsigned int sign = (x & 0x8000u) << 16, size = x & 0x7fffu;
    if (size >= 0x7c00u)
        return of_bits(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    /* The exponents' biases differ by 112; the product is exact, of subnormal numbers too. */
    return of_bits(sign | bits_of(of_bits(size << 13) * 5.192296858534828e33f));
}
#endif

HELPER unsigned int shortened(float x, int dropped)
{
    const unsigned int bits = bits_of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) /* a NaN stays one */
        return bits >> dropped | 1u << (22 - dropped);
    return (bits + (1u << (dropped - 1)) - 1u + (bits >> dropped & 1u)) >> dropped;
}

HELPER part_bits part_of(float x)
{
#if PART == PART_FP16
    return (part_bits)fp16_of(x);
#elif PART == PART_BF16
    return (part_bits)shortened(x, 16);
#elif PART == PART_TF32
    return shortened(x, 13) << 13;
#endif
}

HELPER float number_of(part_bits x)
{
#if PART == PART_FP16
    return of_fp16(x);
#elif PART == PART_BF16
    return of_bits((unsigned int)x << 16);
#elif PART == PART_TF32
    return of_bits(x);
#endif
}

/* Two neighbours' parts as memory has them, the first one lowest. */
#if PART == PART_TF32
typedef usize two_parts;
#else
typedef unsigned int two_parts;
#endif

HELPER two_parts parts_of(float x, float y)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800 && PART != PART_TF32
    two_parts both; /* the second one comes first in PTX */
#if PART == PART_FP16
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
#else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
#endif
    return both;
#else
    return (two_parts)part_of(x) | (two_parts)part_of(y) << 8 * sizeof(part_bits);
#endif
}
