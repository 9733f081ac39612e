/* Elementary functions that a compiler can vectorise: straight-line, selects instead of branches, good to 1e-6
   relative in float (about 1e-7), right at +-inf, NaN in NaN out, subnormal results included. No -ffast-math needed. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef union { float f; int32_t i; uint32_t u; } rr_bits;
static inline float rr_float(int32_t i) { rr_bits b; b.i = i; return b.f; }
static inline int32_t rr_int(float f) { rr_bits b; b.f = f; return b.i; }

static inline float exp_f(float x) {
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float t = c * 1.44269504088896341f + 12582912.0f; /* adding 1.5*2^23 rounds to an integer */
    float n = t - 12582912.0f;
    int32_t k = rr_int(t) - 0x4B400000;
    float r = c - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    int32_t h = k >> 1; /* two factors, so that results may be subnormal or overflow to inf */
    return p * rr_float((h + 127) << 23) * rr_float((k - h + 127) << 23);
}

/* 2*atanh(s), |s| <= 1/3 */
static inline float atanh2_f(float s) {
    float z = s * s;
    float p = 0.1538461538f;
    p = p * z + 0.1818181818f;
    p = p * z + 0.2222222222f;
    p = p * z + 0.2857142857f;
    p = p * z + 0.4f;
    p = p * z + 0.6666666667f;
    return s * (p * z + 2.0f);
}

static inline float log_f(float x) {
    float big = x < 1.17549435e-38f ? x * 8388608.0f : x;
    float shift = x < 1.17549435e-38f ? -23.0f : 0.0f;
    int32_t i = rr_int(big) - 0x3f2aaaab;
    float e = (float)(i >> 23) + shift;
    float f = rr_float((i & 0x007fffff) + 0x3f2aaaab) - 1.0f;
    float y = atanh2_f(f / (2.0f + f)) + e * -2.12194440e-4f + e * 0.693359375f;
    y = x > 3.40282347e38f ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x < 0.0f || x != x ? NAN : y;
}

static inline float log1p_unit_f(float y) { return atanh2_f(y / (2.0f + y)); } /* 0 <= y <= 1 */

static inline float sigmoid_f(float x) { return 1.0f / (1.0f + exp_f(-x)); }

static inline float tanh_f(float x) {
    float a = fabsf(x), z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float small = p * z * x + x;
    float large = copysignf(1.0f - 2.0f / (exp_f(2.0f * a) + 1.0f), x);
    return a < 0.625f ? small : large;
}

static inline float softplus_f(float x) { return (x > 0.0f ? x : 0.0f) + log1p_unit_f(exp_f(-fabsf(x))); }
static inline float log_sigmoid_f(float x) { return (x < 0.0f ? x : 0.0f) - log1p_unit_f(exp_f(-fabsf(x))); }
static inline float logaddexp_f(float a, float b) {
    float hi = a > b ? a : b, lo = a > b ? b : a;
    float d = lo == -INFINITY ? -INFINITY : lo - hi;
    return hi + log1p_unit_f(exp_f(d));
}
static inline float share_f(float a, float b) { return a == -INFINITY ? 0.0f : exp_f(a - b); }
static inline float sqrt_f(float x) { return sqrtf(x); }

static inline double exp_d(double x) { return exp(x); }
static inline double log_d(double x) { return log(x); }
static inline double sigmoid_d(double x) { return 1.0 / (1.0 + exp(-x)); }
static inline double tanh_d(double x) { return tanh(x); }
static inline double softplus_d(double x) { return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))); }
static inline double log_sigmoid_d(double x) { return (x < 0.0 ? x : 0.0) - log1p(exp(-fabs(x))); }
static inline double logaddexp_d(double a, double b) {
    double hi = a > b ? a : b, lo = a > b ? b : a;
    return lo == -INFINITY ? hi : hi + log1p(exp(lo - hi));
}
static inline double share_d(double a, double b) { return a == -INFINITY ? 0.0 : exp(a - b); }
static inline double sqrt_d(double x) { return sqrt(x); }

typedef uint16_t bf16;
static inline float load_bf16(bf16 v) { rr_bits b; b.u = (uint32_t)v << 16; return b.f; }
static inline bf16 store_bf16(float f) { /* round to nearest even; a NaN stays a NaN */
    rr_bits b; b.f = f;
    uint32_t r = (b.u + 0x7fffu + ((b.u >> 16) & 1u)) >> 16;
    return (bf16)(f != f ? 0x7fc0u : r);
}
