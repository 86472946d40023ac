/* Four elements at a time: what rungs 5 to 7 share. */

/* Elements of a vector, and the bytes that its address must be a multiple of. */
#define VECTOR 4
#define VECTOR_BYTES 16

/* Whether every row of a matrix begins where a vector may. */
HELPER int rows_aligned(const GLOBAL float *first, isize ld)
{
    return ADDRESS(first) % VECTOR_BYTES == 0 && ld % VECTOR == 0;
}

/* Read four elements of a row; `left` of them are inside the matrix, the others are zero.
 * `whole` says that all are and that the address is aligned. */
HELPER float4 read4(const GLOBAL float *at, isize left, int whole)
{
    if (whole)
        return *(const GLOBAL float4 *)at;
    float4 v;
    v.x = left > 0 ? at[0] : 0.0f;
    v.y = left > 1 ? at[1] : 0.0f;
    v.z = left > 2 ? at[2] : 0.0f;
    v.w = left > 3 ? at[3] : 0.0f;
    return v;
}

/* Write four elements of a row of C, `left` of them inside; `whole` as above. */
HELPER void put4(GLOBAL float *at, float alpha, const PRIVATE float *sum, float beta, int left,
                 int whole)
{
    if (whole) {
        float4 v;
        v.x = alpha * sum[0];
        v.y = alpha * sum[1];
        v.z = alpha * sum[2];
        v.w = alpha * sum[3];
        if (beta != 0.0f) {
            const float4 old = *(const GLOBAL float4 *)at;
            v.x += beta * old.x;
            v.y += beta * old.y;
            v.z += beta * old.z;
            v.w += beta * old.w;
        }
        *(GLOBAL float4 *)at = v;
    } else {
        UNROLL for (int r = 0; r < VECTOR; ++r)
            if (r < left)
                put(at + r, alpha, sum[r], beta);
    }
}

/* Spread a vector of shared memory over four registers. */
HELPER void take4(PRIVATE float *to, const SHARED float *from)
{
    const float4 v = *(const SHARED float4 *)from;
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}
