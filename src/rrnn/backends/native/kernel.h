/* What every generated kernel stands on: elementary functions that a compiler can vectorise, bf16, and jobs for threads.

   The functions are straight-line code with selects instead of branches, so that a plain loop over lanes becomes vector
   code without -ffast-math (which would flush denormals in the whole process and break infinities). In float they are
   good to 5e-7 relative, in double to 1e-14; right at infinities; NaN in, NaN out. Most are built on
   decay(a) = exp(-|a|), which never overflows, and which functions of one argument share: sigmoid(x), log_sigmoid(x) and
   its gradient sigmoid(-x) all take decay(x). Below the smallest normal number decay is 0. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <malloc.h>
#define EXPORT __declspec(dllexport)
#define aligned_alloc(alignment, bytes) _aligned_malloc(bytes, alignment)
#define aligned_free _aligned_free
#define long long long /* the numbers of `struct call` have eight bytes, and a long has four there */
#else
#include <sys/mman.h>
#define EXPORT
#define aligned_free free
#endif

/* ---- float ------------------------------------------------------------------------------------------------------- */

typedef union { float f; uint32_t u; } rr_bits_f;
static inline float rr_float(uint32_t u) { rr_bits_f b; b.u = u; return b.f; }
static inline uint32_t rr_uint(float f) { rr_bits_f b; b.f = f; return b.u; }

#define MAGIC_F 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer, kept in the low bits */

/* n * ln 2 - c. One rounding suffices where it is fused: n times the error of ln 2 is at most 2.5e-7. */
#if defined(__FMA__) || defined(__aarch64__)
static inline float rr_reduce_f(float n, float c) { return n * 0.693147181f - c; }
#else
static inline float rr_reduce_f(float n, float c) { return (n * 0.693359375f - c) + n * -2.12194440e-4f; }
#endif

/* exp(r) - 1 for |r| <= ln(2)/2, good relative to itself. In pairs: half the latency of Horner's rule. */
static inline float rr_expm1_f(float r) {
    float s = r * r;
    float high = 8.3666467969e-3f * r + 4.1667203920e-2f, low = 1.6666542684e-1f * r + 4.9999998133e-1f;
    return s * (s * (s * 1.3882497414e-3f + high) + low) + r;
}

static inline float decay_f(float a) {
    float c = fabsf(a);
    c = c > 88.0f ? 88.0f : c;
    float t = c * 1.44269504f + MAGIC_F;
    float power = rr_float(0x3f800000u - (rr_uint(t) << 23)); /* 2^-n; 0 for n = 127 */
    float r = rr_reduce_f(t - MAGIC_F, c), s = r * r; /* exp(r) - 1, good relative to exp(r): one term less */
    float high = 8.3124303669e-3f * r + 4.1890987293e-2f, low = 1.6667118169e-1f * r + 4.9999225851e-1f;
    return (s * (s * high + low) + r) * power + power;
}

static inline float tanh_f(float x) { /* -expm1(-2|x|) / (2 + expm1(-2|x|)): no cancellation near 0 */
    float c = fabsf(x);
    c = c > 10.0f ? 10.0f : c;
    c = c + c;
    float t = c * 1.44269504f + MAGIC_F;
    float power = rr_float(0x3f800000u - (rr_uint(t) << 23));
    float m = rr_expm1_f(rr_reduce_f(t - MAGIC_F, c)) * power + (power - 1.0f);
    return copysignf(m / (2.0f + m), x);
}

static inline float rr_log1p_f(float y) { /* 0 <= y <= 1 */
    float p = -8.7789530246e-3f;
    p = p * y + 4.4986633147e-2f;
    p = p * y - 1.0902289806e-1f;
    p = p * y + 1.7847207350e-1f;
    p = p * y - 2.4536865861e-1f;
    p = p * y + 3.3284063764e-1f;
    p = p * y - 4.9998180347e-1f;
    return p * (y * y) + y;
}

static inline float exp_f(float x) { /* the whole range: two powers of two, so that results may be subnormal */
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float t = c * 1.44269504f + MAGIC_F;
    int32_t n = (int32_t)(rr_uint(t) - 0x4b400000u), half = n >> 1;
    float p = 1.0f + rr_expm1_f(-rr_reduce_f(t - MAGIC_F, c));
    return p * rr_float((uint32_t)(half + 127) << 23) * rr_float((uint32_t)(n - half + 127) << 23);
}

static inline float log_f(float x) {
    float big = x < 1.17549435e-38f ? x * 8388608.0f : x, shift = x < 1.17549435e-38f ? -23.0f : 0.0f;
    int32_t i = (int32_t)(rr_uint(big) - 0x3f2aaaabu); /* so that the mantissa lies in [2/3, 4/3) */
    float e = (float)(i >> 23) + shift;
    float f = rr_float(((uint32_t)i & 0x007fffffu) + 0x3f2aaaabu) - 1.0f;
    float s = f / (2.0f + f), z = s * s;
    float p = 2.3224329224e-1f; /* log(1 + f) = 2 atanh(s) */
    p = p * z + 2.1706575801e-1f;
    p = p * z + 2.8592357994e-1f;
    p = p * z + 3.9999706332e-1f;
    p = p * z + 6.6666667321e-1f;
    float y = s * (p * z + 2.0f) + e * -2.12194440e-4f + e * 0.693359375f;
    y = x > 3.40282347e38f ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x < 0.0f || x != x ? NAN : y;
}

static inline float sqrt_f(float x) { return sqrtf(x); }

/* sin and cos: the angle less a multiple of pi/2, in double, so that it is good to 1e-7 up to angles of 1e9; then a
   polynomial each. The multiple's last two bits say which one, and with which sign. Infinities give NaN. */
typedef struct { float rest; int32_t quadrant; } rr_turn_f;
static inline rr_turn_f rr_turned_f(float x) {
    double t = (double)x * 6.36619772367581343e-1 + 6755399441055744.0, n = t - 6755399441055744.0;
    union { double f; int64_t i; } bits = {t};
    double r = ((double)x - n * 1.57079632679489656) - n * 6.12323399573676604e-17;
    return (rr_turn_f){(float)r, (int32_t)bits.i};
}
static inline float rr_sin_f(float r) {
    float z = r * r;
    return ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
}
static inline float rr_cos_f(float r) {
    float z = r * r;
    return ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
}
static inline float sin_f(float x) {
    rr_turn_f t = rr_turned_f(x);
    float y = t.quadrant & 1 ? rr_cos_f(t.rest) : rr_sin_f(t.rest);
    return t.quadrant & 2 ? -y : y;
}
static inline float cos_f(float x) {
    rr_turn_f t = rr_turned_f(x);
    float y = t.quadrant & 1 ? rr_sin_f(t.rest) : rr_cos_f(t.rest);
    return (t.quadrant + 1) & 2 ? -y : y;
}

/* ---- double ------------------------------------------------------------------------------------------------------ */

typedef union { double f; uint64_t u; } rr_bits_d;
static inline double rr_double(uint64_t u) { rr_bits_d b; b.u = u; return b.f; }
static inline uint64_t rr_ulong(double f) { rr_bits_d b; b.f = f; return b.u; }

#define MAGIC_D 6755399441055744.0 /* 1.5 * 2^52 */
#define ONE_D 0x3ff0000000000000u

static inline double rr_reduce_d(double n, double c) {
    return (n * 6.93147180369123816490e-1 - c) + n * 1.90821492927058770002e-10;
}

static inline double rr_expm1_d(double r) {
    double p = 2.510042415700506679e-8;
    p = p * r + 2.762013871973399557e-7;
    p = p * r + 2.755726837868419287e-6;
    p = p * r + 2.480152119021772765e-5;
    p = p * r + 1.984126986310596875e-4;
    p = p * r + 1.388888891728179331e-3;
    p = p * r + 8.333333333330051346e-3;
    p = p * r + 4.166666666662399152e-2;
    p = p * r + 1.666666666666666746e-1;
    p = p * r + 5.000000000000001026e-1;
    return p * (r * r) + r;
}

static inline double decay_d(double a) {
    double c = fabs(a);
    c = c > 709.1 ? 709.1 : c;
    double t = c * 1.44269504088896340736 + MAGIC_D;
    double power = rr_double(ONE_D - (rr_ulong(t) << 52));
    return (1.0 + rr_expm1_d(rr_reduce_d(t - MAGIC_D, c))) * power;
}

static inline double tanh_d(double x) {
    double c = fabs(x);
    c = c > 20.0 ? 20.0 : c;
    c = c + c;
    double t = c * 1.44269504088896340736 + MAGIC_D;
    double power = rr_double(ONE_D - (rr_ulong(t) << 52));
    double m = rr_expm1_d(rr_reduce_d(t - MAGIC_D, c)) * power + (power - 1.0);
    return copysign(m / (2.0 + m), x);
}

static inline double rr_atanh2_d(double s) { /* 2 atanh(s), |s| <= 1/3 */
    double z = s * s;
    double p = 1.616404561194353222e-1;
    p = p * z + 8.800738486144673882e-2;
    p = p * z + 1.200107280959071254e-1;
    p = p * z + 1.331414420965493615e-1;
    p = p * z + 1.538557006495862310e-1;
    p = p * z + 1.818178943613285817e-1;
    p = p * z + 2.222222271742786299e-1;
    p = p * z + 2.857142856710875716e-1;
    p = p * z + 4.000000000001458267e-1;
    p = p * z + 6.666666666666665856e-1;
    return p * z * s + (s + s);
}

static inline double rr_log1p_d(double y) { return rr_atanh2_d(y / (2.0 + y)); }

static inline double exp_d(double x) {
    double c = x < -746.0 ? -746.0 : x;
    c = c > 710.0 ? 710.0 : c;
    double t = c * 1.44269504088896340736 + MAGIC_D;
    int64_t n = (int64_t)(rr_ulong(t) - 0x4338000000000000u), half = n >> 1;
    double p = 1.0 + rr_expm1_d(-rr_reduce_d(t - MAGIC_D, c));
    return p * rr_double((uint64_t)(half + 1023) << 52) * rr_double((uint64_t)(n - half + 1023) << 52);
}

static inline double log_d(double x) {
    double big = x < 2.2250738585072014e-308 ? x * 4503599627370496.0 : x;
    double shift = x < 2.2250738585072014e-308 ? -52.0 : 0.0;
    int64_t i = (int64_t)(rr_ulong(big) - 0x3fe5555555555555u);
    double e = (double)(i >> 52) + shift;
    double f = rr_double(((uint64_t)i & 0x000fffffffffffffu) + 0x3fe5555555555555u) - 1.0;
    double y = e * 1.90821492927058770002e-10 + rr_atanh2_d(f / (2.0 + f)) + e * 6.93147180369123816490e-1;
    y = x > 1.7976931348623157e308 ? x : y;
    y = x == 0.0 ? -INFINITY : y;
    return x < 0.0 || x != x ? NAN : y;
}

static inline double sqrt_d(double x) { return sqrt(x); }

/* As in float; pi/2 in three parts, the first two of 33 bits, so that the rest is exact up to angles of 1e6. */
typedef struct { double rest; int64_t quadrant; } rr_turn_d;
static inline rr_turn_d rr_turned_d(double x) {
    double t = x * 6.36619772367581382e-1 + MAGIC_D, n = t - MAGIC_D;
    double r = ((x - n * 1.57079632673412561417) - n * 6.07710050630396597660e-11) - n * 2.02226624879595063154e-21;
    return (rr_turn_d){r, (int64_t)rr_ulong(t)};
}
static inline double rr_sin_d(double r) {
    double z = r * r, p = 1.58962301576546568060e-10;
    p = p * z - 2.50507477628578072866e-8;
    p = p * z + 2.75573136213857245213e-6;
    p = p * z - 1.98412698295895385996e-4;
    p = p * z + 8.33333333332211858878e-3;
    p = p * z - 1.66666666666666307295e-1;
    return p * z * r + r;
}
static inline double rr_cos_d(double r) {
    double z = r * r, p = -1.13585365213876817300e-11;
    p = p * z + 2.08757008419747316778e-9;
    p = p * z - 2.75573141792967388112e-7;
    p = p * z + 2.48015872888517045348e-5;
    p = p * z - 1.38888888888730564116e-3;
    p = p * z + 4.16666666666665929218e-2;
    return p * z * z - 0.5 * z + 1.0;
}
static inline double sin_d(double x) {
    rr_turn_d t = rr_turned_d(x);
    double y = t.quadrant & 1 ? rr_cos_d(t.rest) : rr_sin_d(t.rest);
    return t.quadrant & 2 ? -y : y;
}
static inline double cos_d(double x) {
    rr_turn_d t = rr_turned_d(x);
    double y = t.quadrant & 1 ? rr_sin_d(t.rest) : rr_cos_d(t.rest);
    return (t.quadrant + 1) & 2 ? -y : y;
}

/* ---- the rest, from decay and log1p ---------------------------------------------------------------------------------

   half = 1/(1+e). sigmoid(x) with e = decay(x). logaddexp(a, b) with e = decay(apart(a, b)); member: the share of a in
   it, exp(a - logaddexp(a, b)), 0 where a is -inf. share: the same against any total. */
#define FUNCTIONS(real, s) \
    static inline real half_##s(real e) { return (real)1 / ((real)1 + e); } \
    static inline real sigmoid_##s(real x, real e, real half) { return x < 0 ? e * half : half; } \
    static inline real softplus_##s(real x, real e) { return (x < 0 ? (real)0 : x) + rr_log1p_##s(e); } \
    static inline real log_sigmoid_##s(real x, real e) { return (x > 0 ? (real)0 : x) - rr_log1p_##s(e); } \
    static inline real apart_##s(real a, real b) { return a == b ? (real)0 : a - b; } \
    static inline real logaddexp_##s(real a, real b, real e) { return (a > b ? a : b) + rr_log1p_##s(e); } \
    static inline real member_##s(real a, real b, real e, real half) { \
        return a == -INFINITY ? (real)0 : a < b ? e * half : half; \
    } \
    static inline real share_##s(real a, real total) { return a == -INFINITY ? (real)0 : exp_##s(a - total); } \
    static inline real max_##s(real a, real b) { return a >= b || a != a ? a : b; } \
    static inline real min_##s(real a, real b) { return a <= b || a != a ? a : b; }

FUNCTIONS(float, f)
FUNCTIONS(double, d)

/* ---- bf16 -------------------------------------------------------------------------------------------------------- */

typedef uint16_t bf16;
static inline float load_bf16(bf16 v) { return rr_float((uint32_t)v << 16); }
static inline bf16 store_bf16(float f) { /* round to nearest even; a NaN stays a NaN */
    uint32_t u = rr_uint(f);
    return (bf16)(f != f ? 0x7fc0u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* ---- loops and threads ------------------------------------------------------------------------------------------- */

#if defined(__clang__)
#define SIMD _Pragma("clang loop vectorize(assume_safety)")
#else
#define SIMD _Pragma("GCC ivdep")
#endif

enum { STRIP = 128, LINE = 64 }; /* lanes that run through all loops of a step together; bytes of a cache line */

/* Rows end where they end, vectors do not: the last few lanes of a row are computed in padded copies. */
static inline void few(void *restrict to, const void *restrict from, long bytes) {
    char *t = to;
    const char *f = from;
    for (long size = 64; size; size /= 2) {
        if (!(bytes & size)) continue;
        memcpy(t, f, size);
        t += size, f += size;
    }
}

/* Ask for memory that the next step will touch: a row is too short for the hardware to find its stride. Into the second
   level, because rows a power of two apart would push each other out of the first. */
static inline void soon(const void *at, long bytes) {
    for (long i = 0; i < bytes; i += LINE) __builtin_prefetch((const char *)at + i, 0, 2);
}
static inline void soon_written(void *at, long bytes) {
    for (long i = 0; i < bytes; i += LINE) __builtin_prefetch((char *)at + i, 1, 2);
}

/* Fresh memory of megabytes costs hundreds of page faults, which take longer than computing what goes there. Where Linux
   leaves the choice to programs (madvise), ask for pages of 2 MB for a result, as NumPy does. Outwards: what else lies in
   those pages is none the worse for it. */
static inline void huge(void *at, long bytes) {
#ifdef MADV_HUGEPAGE
    const uintptr_t page = 1 << 21, start = (uintptr_t)at & -page, end = ((uintptr_t)at + bytes + page - 1) & -page;
    if (bytes >= (long)page) madvise((void *)start, end - start, MADV_HUGEPAGE);
#else
    (void)at, (void)bytes;
#endif
}

/* Whoever is free takes the next job; what a job computes does not depend on who runs it. */
struct crew { const void *call; long jobs, next; };
typedef void (*parallel_t)(void (*)(void *), void *, unsigned, unsigned); /* as GOMP_parallel */

static inline long take(struct crew *crew) {
    long job = __atomic_fetch_add(&crew->next, 1, __ATOMIC_RELAXED);
    return job < crew->jobs ? job : -1;
}
static inline void gather(void (*work)(void *), struct crew *crew, parallel_t parallel, long threads) {
    if (threads > crew->jobs) threads = crew->jobs;
    if (parallel && threads > 1) parallel(work, crew, (unsigned)threads, 0);
    else work(crew);
}

/* Lanes of a block: at most `most`, fewer when threads would stay idle, whole vectors. */
static inline long block_width(long D, long B, long most, long threads) {
    long across = (D + most - 1) / most, wanted = threads > 1 ? (4 * threads + B - 1) / B : 1;
    long finest = (D + STRIP - 1) / STRIP;
    if (across < wanted) across = wanted < finest ? wanted : finest;
    return ((D + across - 1) / across + 31) / 32 * 32;
}
