// Arithmetic on vectors of numbers: functions of each, and products of a few rows with a matrix.
//
// Plain C++ with the vector types of GCC and Clang; where a processor has AVX-512, three of its instructions.

#include <cmath>
#include <cstddef>
#include <cstring>
#include <initializer_list>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16, ROWS = 12;  // 24 of 32 registers hold sums
#else
constexpr int LANES = 8, ROWS = 6;  // 12 of 16
#endif
constexpr int PANEL = 2 * LANES;

typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef float Loose __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int Int __attribute__((vector_size(4 * LANES)));

typedef ptrdiff_t Size;

inline Vec load(const float *p) { return *(const Loose *)p; }
inline void store(float *p, Vec v) { *(Loose *)p = v; }
inline Vec all(float value) { return Vec{} + value; }
inline int padded(int n) { return (n + LANES - 1) / LANES * LANES; }

inline float sum(Vec v) {
    float part[LANES];
    store(part, v);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) part[i] += part[i + half];
    return part[0];
}

// What is not a number stays so in all of these.
#ifdef __AVX512F__
inline Vec clamped(Vec x, float bound) {
    return (Vec)_mm512_min_ps((__m512)all(bound), _mm512_max_ps((__m512)all(-bound), (__m512)x));
}
inline Vec times_power_of_two(Vec x, Vec n) { return (Vec)_mm512_scalef_ps((__m512)x, (__m512)n); }
inline Vec reciprocal(Vec x) {
    Vec guess = (Vec)_mm512_rcp14_ps((__m512)x);
    return guess + guess * (1.0f - x * guess);
}
#else
inline Vec clamped(Vec x, float bound) {
    x = x < all(-bound) ? all(-bound) : x;
    return x > all(bound) ? all(bound) : x;
}
inline Vec times_power_of_two(Vec x, Vec n) { return x * (Vec)((__builtin_convertvector(n, Int) + 127) << 23); }
inline Vec reciprocal(Vec x) { return 1.0f / x; }
#endif

// 2^x by 2^n times the polynomial on [-1/2, 1/2] whose largest relative error is least, to the last digit.
template <int COUNT>
inline void powers_of_two(Vec *x) {
    const float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the last digits
    Vec n[COUNT], r[COUNT];
    for (int i = 0; i < COUNT; i++) {
        x[i] = clamped(x[i], 115);
        n[i] = (x[i] + round) - round;
        r[i] = x[i] - n[i];
        x[i] = all(1.5345812e-4f);
    }
    for (float c : {1.33999312e-3f, 9.61848896e-3f, 5.55032878e-2f, 0.240226469f, 0.693147206f, 1.0f})
        for (int i = 0; i < COUNT; i++) x[i] = x[i] * r[i] + c;
    for (int i = 0; i < COUNT; i++) x[i] = times_power_of_two(x[i], n[i]);
}

// sin and cos by a quarter turn and a polynomial; far out, where the turn would lose digits, by the library.
inline void sine_cosine(Vec x, Vec &sine, Vec &cosine) {
    for (int i = 0; i < LANES; i++)
        if (!(std::fabs(x[i]) < 8192)) {
            for (int j = 0; j < LANES; j++) sine[j] = std::sin(x[j]), cosine[j] = std::cos(x[j]);
            return;
        }
    const float round = 12582912.0f;
    Vec n = (x * 0.636619772f + round) - round;
    Vec r = ((x - n * 1.5703125f) - n * 4.83751297e-4f) - n * 7.54978995e-8f;
    Vec s = r * r;
    Vec sin_r = all(2.7557319e-6f), cos_r = all(2.4801587e-5f);
    for (float c : {-1.9841270e-4f, 8.3333333e-3f, -1.6666667e-1f, 1.0f}) sin_r = sin_r * s + c;
    for (float c : {-1.3888889e-3f, 4.1666667e-2f, -0.5f, 1.0f}) cos_r = cos_r * s + c;
    sin_r *= r;
    Int turn = __builtin_convertvector(n, Int);
    Int odd = (turn & 1) != 0;
    sine = odd ? cos_r : sin_r;
    cosine = odd ? sin_r : cos_r;
    sine = (turn & 2) != 0 ? -sine : sine;
    cosine = ((turn + 1) & 2) != 0 ? -cosine : cosine;
}

// out (ROWS, n) = bias + a (ROWS, k) times one panel of a matrix.
template <int VECTORS>
inline const float *panel(const float *a, Size stride, const float *from, const float *bias, float *out, int k, int n) {
    Vec total[ROWS][VECTORS];  // in registers, since all loops over it are unrolled
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECTORS; v++) total[r][v] = bias ? load(bias + v * LANES) : Vec{};
    // A pointer to every third row: a compiler that knew more would keep one to each, and has no registers for that.
    const float *third[ROWS / 3];
    for (int t = 0; t < ROWS / 3; t++) {
        third[t] = a + 3 * t * stride;
        asm("" : "+r"(third[t]));
    }
    for (int i = 0; i < k; i++, from += VECTORS * LANES) {
        Vec column[VECTORS];
        for (int v = 0; v < VECTORS; v++) column[v] = load(from + v * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < VECTORS; v++) total[r][v] += third[r / 3][r % 3 * stride + i] * column[v];
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECTORS; v++) store(out + r * (Size)n + v * LANES, total[r][v]);
    return from;
}

// out (ROWS, n) = bias + a (ROWS, k) times a matrix (k, n), n a multiple of LANES, that lies in panels: (k, PANEL) each,
// and a last one of half the width if n asks for it. Calls finish(first column, columns) after each, while it is near.
template <class Finish>
void product(const float *a, Size stride, const float *from, const float *bias, float *out, int k, int n,
             Finish finish) {
    int j = 0;
    for (; j + PANEL <= n; j += PANEL) {
        from = panel<2>(a, stride, from, bias ? bias + j : nullptr, out + j, k, n);
        finish(j, PANEL);
    }
    if (j < n) {
        panel<1>(a, stride, from, bias ? bias + j : nullptr, out + j, k, n);
        finish(j, LANES);
    }
}

void product(const float *a, Size stride, const float *from, const float *bias, float *out, int k, int n) {
    product(a, stride, from, bias, out, k, n, [](int, int) {});
}

// out (ROWS, PANEL) = the sum over rows of outer products of ROWS numbers of a and VECTORS vectors of b.
template <int VECTORS>
void sum_of_outer_products(int rows, const float *a, Size a_stride, const float *b, Size b_stride, float *out) {
    Vec total[ROWS][VECTORS] = {};
    for (int i = 0; i < rows; i++, a += a_stride, b += b_stride) {
        Vec row[VECTORS];
        for (int v = 0; v < VECTORS; v++) row[v] = load(b + v * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < VECTORS; v++) total[r][v] += a[r] * row[v];
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECTORS; v++) store(out + r * PANEL + v * LANES, total[r][v]);
}

// out (ROWS, n), rows LANES apart, for few outputs: dot products of a (ROWS, k) with n rows of k numbers.
void dot_products(const float *a, const float *rows, float *out, int k, int n) {
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < n; j++) {
            Vec total = Vec{};
            for (int i = 0; i < k; i += LANES) total += load(a + r * k + i) * load(rows + j * k + i);
            out[r * LANES + j] = sum(total);
        }
}

enum Activation { SILU = 0, TANH = 1, LEAKY = 2 };

// h becomes the derivative, a the value, of COUNT vectors at once, since each step alone waits for the one before.
template <int COUNT>
inline void logistic(int kind, Vec *h, Vec *a) {
    const float log2_e = 1.44269504f, scale = kind == SILU ? -log2_e : 2 * log2_e;
    Vec x[COUNT], s[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = scale * h[i];
    powers_of_two<COUNT>(x);
    for (int i = 0; i < COUNT; i++) s[i] = reciprocal(1.0f + x[i]);
    for (int i = 0; i < COUNT; i++) {
        a[i] = kind == SILU ? h[i] * s[i] : 1.0f - 2.0f * s[i];
        h[i] = kind == SILU ? s[i] + a[i] * (1.0f - s[i]) : 1.0f - a[i] * a[i];
    }
}

// ROWS rows of VECTORS vectors, n numbers apart: h becomes the derivative, a the value.
// A slope of 0 is ReLU, one of 1 is nothing at all.
template <int VECTORS>
void activate_panel(int kind, float slope, float *h, float *a, int n) {
    constexpr int TOGETHER = 2;
    Vec value[TOGETHER * VECTORS], derivative[TOGETHER * VECTORS];
    for (int r = 0; r < ROWS; r += TOGETHER) {
        for (int i = 0; i < TOGETHER * VECTORS; i++)
            derivative[i] = load(h + (r + i / VECTORS) * (Size)n + i % VECTORS * LANES);
        if (kind == LEAKY)
            for (int i = 0; i < TOGETHER * VECTORS; i++) {
                Vec x = derivative[i];
                derivative[i] = x > Vec{} ? all(1) : all(slope);
                value[i] = x * derivative[i];
            }
        else
            logistic<TOGETHER * VECTORS>(kind, derivative, value);
        for (int i = 0; i < TOGETHER * VECTORS; i++) {
            const Size at = (r + i / VECTORS) * (Size)n + i % VECTORS * LANES;
            store(a + at, value[i]);
            store(h + at, derivative[i]);
        }
    }
}

void activate(int kind, float slope, float *h, float *a, int columns, int n) {
    columns == PANEL ? activate_panel<2>(kind, slope, h, a, n) : activate_panel<1>(kind, slope, h, a, n);
}

}  // namespace
