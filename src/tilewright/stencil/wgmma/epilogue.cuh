/* What may follow a product before it is rounded, where a kernel has EPILOGUE.  A part of kernel.cuh.
 *
 *     C <- activation(alpha scale_m[i] scale_n[j] sum  +  beta C  +  bias_m[i] + bias_n[j])
 *
 * i runs along m, C's contiguous side, j along n.  What is not wanted is a null pointer, so that one
 * instance serves all choices.  All is computed in single precision.
 */

#define ACTIVATION_RELU 1
#define ACTIVATION_GELU 2
#define ACTIVATION_GELU_TANH 3
#define ACTIVATION_OF(flags) ((flags) & 3)

/* Bias vectors have C's type, not single precision. */
#define BIAS_IS_OUTPUT 4

#if EPILOGUE
#define EPILOGUE_ARGUMENTS                                                                     \
    , const float *scale_m, const float *scale_n, const void *bias_m, const void *bias_n, int flags
#define EPILOGUE_OF_ARGUMENTS {scale_m, scale_n, bias_m, bias_n, flags}
#else
#define EPILOGUE_ARGUMENTS
#define EPILOGUE_OF_ARGUMENTS {}
#endif

struct epilogue {
#if EPILOGUE
    const float *scale_m, *scale_n;
    const void *bias_m, *bias_n;
    int flags;
#endif
};

#if EPILOGUE
HELPER float scale_at(const float *scales, isize i) { return scales ? scales[i] : 1.0f; }

HELPER float bias_at(const void *bias, int flags, isize i)
{
    if (!bias)
        return 0.0f;
    return flags & BIAS_IS_OUTPUT ? widened(((const output *)bias)[i]) : ((const float *)bias)[i];
}

/* x Phi(x), Phi the normal distribution's: Hendrycks & Gimpel, "Gaussian error linear units", 2016. */
HELPER float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.707106781f)); }

/* Their approximation, x / 2 (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), as
 * x / (1 + exp(-2 u)); the factors are those of u times -2 / ln 2. */
HELPER float gelu_tanh(float x)
{
    return x * reciprocal(1.0f + exponential(x * (-2.30220819f - 0.102943241f * x * x)));
}

HELPER float activated(float v, int flags)
{
    switch (ACTIVATION_OF(flags)) {
    case ACTIVATION_RELU: return v < 0.0f ? 0.0f : v; /* NaN stays */
    case ACTIVATION_GELU: return gelu(v);
    case ACTIVATION_GELU_TANH: return gelu_tanh(v);
    default: return v;
    }
}

/* Numbers of a thread that one trip of the loop below activates. */
#define ACTIVATED 16

/* All of a thread's numbers.  Little code: the next are always the first, as the others move up. */
HELPER void activate(float *v, int count, int flags)
{
    if (ACTIVATION_OF(flags) == 0)
        return;
    ROLLED for (int done = 0; done < count; done += ACTIVATED) {
        float next[ACTIVATED];
        UNROLL for (int i = 0; i < ACTIVATED; ++i) next[i] = v[i];
        switch (ACTIVATION_OF(flags)) {
        case ACTIVATION_RELU:
            UNROLL for (int i = 0; i < ACTIVATED; ++i) next[i] = activated(next[i], ACTIVATION_RELU);
            break;
        case ACTIVATION_GELU:
            UNROLL for (int i = 0; i < ACTIVATED; ++i) next[i] = activated(next[i], ACTIVATION_GELU);
            break;
        default:
            UNROLL for (int i = 0; i < ACTIVATED; ++i)
                next[i] = activated(next[i], ACTIVATION_GELU_TANH);
        }
        UNROLL for (int i = ACTIVATED; i < count; ++i) v[i - ACTIVATED] = v[i];
        UNROLL for (int i = 0; i < ACTIVATED; ++i) v[count - ACTIVATED + i] = next[i];
    }
}
#endif
