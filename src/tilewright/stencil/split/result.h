/* alpha 2^e sum + beta C, rounded once to what C holds.  RESULT: 0 for FP32, else a number of
 * numbers.h. */
#if RESULT == 0
typedef float result_bits;
HELPER float old_result(const GLOBAL result_bits *at) { return *at; }
HELPER void new_result(GLOBAL result_bits *at, float x) { *at = x; }
#elif RESULT == PART_FP16
typedef unsigned short result_bits;
HELPER float old_result(const GLOBAL result_bits *at) { return of_fp16(*at); }
HELPER void new_result(GLOBAL result_bits *at, float x) { *at = (result_bits)fp16_of(x); }
#else
typedef unsigned short result_bits;
HELPER float old_result(const GLOBAL result_bits *at) { return of_bits((unsigned int)*at << 16); }
HELPER void new_result(GLOBAL result_bits *at, float x) { *at = (result_bits)shortened(x, 16); }
#endif

/* Scaling is undone before alpha is applied, as if the sum had never been scaled: e is far from
 * the ends of times_power's range wherever the sum is not zero or rounds to zero or infinity. */
HELPER void store_result(GLOBAL result_bits *at, float sum, float alpha, int e, float beta)
{
    const int most = e > 254 ? 254 : e < -252 ? -252 : e;
    const float scaled = alpha * times_power(times_power(sum, most), e - most);
    new_result(at, beta == 0 ? scaled : scaled + beta * old_result(at));
}
