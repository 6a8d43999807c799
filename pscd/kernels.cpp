// The energy of a fully connected network, and its gradient with respect to the input, in one pass over the rows.
//
// A few rows at a time go through all layers and back while they are in the cache nearest to the processor, with
// activations and their derivatives computed where the matrix products leave off. Every row is computed in the same
// order whatever the number of rows and threads, so that its result depends on neither.
//
// Compiled by pscd/native.py on first use. Plain C++ with the vector types of GCC and Clang.

#include <cmath>
#include <cstddef>
#include <cstring>
#include <initializer_list>

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16, ROWS = 12;  // 24 of 32 registers hold sums
#else
constexpr int LANES = 8, ROWS = 6;  // 12 of 16
#endif
constexpr int PANEL = 2 * LANES;
constexpr int NARROW = 4;  // outputs up to which dot products beat a panel that is mostly padding

typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef float Loose __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int Int __attribute__((vector_size(4 * LANES)));

inline Vec load(const float *p) { return *(const Loose *)p; }
inline void store(float *p, Vec v) { *(Loose *)p = v; }
inline Vec all(float value) { return Vec{} + value; }
inline int padded(int n) { return (n + PANEL - 1) / PANEL * PANEL; }

inline float sum(Vec v) {
    float total = 0;
    for (int i = 0; i < LANES; i++) total += v[i];
    return total;
}

// exp by 2^n times a polynomial on [-log(2)/2, log(2)/2], to the last digit or two.
inline Vec exponential(Vec x) {
    x = x < all(-80) ? all(-80) : x;
    x = x > all(80) ? all(80) : x;
    const float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the last digits
    Vec n = (x * 1.44269504f + round) - round;
    Vec r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    Vec p = all(1.0f / 5040);
    for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = p * r + c;
    return p * (Vec)((__builtin_convertvector(n, Int) + 127) << 23);
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

// out (ROWS, n) = bias + a (ROWS, k) times a matrix in panels (n / PANEL, k, PANEL); n a multiple of PANEL.
void product(const float *a, int stride, const float *panels, const float *bias, float *out, int k, int n) {
    for (int j = 0; j < n; j += PANEL) {
        Vec left[ROWS], right[ROWS];
        for (int r = 0; r < ROWS; r++) {
            left[r] = bias ? load(bias + j) : Vec{};
            right[r] = bias ? load(bias + j + LANES) : Vec{};
        }
        for (int i = 0; i < k; i++, panels += PANEL) {
            Vec p = load(panels), q = load(panels + LANES);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++) {
                float value = a[r * stride + i];
                left[r] += value * p;
                right[r] += value * q;
            }
        }
        for (int r = 0; r < ROWS; r++) {
            store(out + r * n + j, left[r]);
            store(out + r * n + j + LANES, right[r]);
        }
    }
}

// out (ROWS, n), rows PANEL apart, for few outputs: dot products of a (ROWS, k) with n rows of k numbers.
void dot_products(const float *a, const float *rows, float *out, int k, int n) {
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < n; j++) {
            Vec total = Vec{};
            for (int i = 0; i < k; i += LANES) total += load(a + r * k + i) * load(rows + j * k + i);
            out[r * PANEL + j] = sum(total);
        }
}

enum Activation { SILU = 0, TANH = 1, LEAKY = 2 };

// h becomes the derivative, a the value. A slope of 0 is ReLU, one of 1 is nothing at all.
void activate(int kind, float slope, float *h, float *a, int count) {
    for (int i = 0; i < count; i += LANES) {
        Vec x = load(h + i), value, derivative;
        if (kind == SILU) {
            Vec s = 1.0f / (1.0f + exponential(-x));
            value = x * s;
            derivative = s + value * (1.0f - s);
        } else if (kind == TANH) {
            value = 1.0f - 2.0f / (1.0f + exponential(2.0f * x));
            derivative = 1.0f - value * value;
        } else {
            derivative = x > Vec{} ? all(1) : all(slope);
            value = x * derivative;
        }
        store(a + i, value);
        store(h + i, derivative);
    }
}

// A matrix (k, n) into panels (n / PANEL, k, PANEL), padded with zeros; from (n, k) if transposed. Returns the end.
float *pack(const float *w, int k, int n, bool transposed, float *to) {
    for (int j = 0; j < n; j += PANEL)
        for (int i = 0; i < k; i++)
            for (int c = j; c < j + PANEL; c++)
                *to++ = c >= n ? 0 : transposed ? w[(ptrdiff_t)c * k + i] : w[(ptrdiff_t)i * n + c];
    return to;
}

float *pack_row(const float *row, int step, int n, float *to) {
    for (int j = 0; j < padded(n); j++) *to++ = j < n && row ? row[(ptrdiff_t)j * step] : 0;
    return to;
}

}  // namespace

constexpr int MOST_LAYERS = 32;

struct Network {
    int layers;                     // hidden ones, at most MOST_LAYERS
    int inputs, waves, threads;     // the first layer sees the inputs, then sines, then cosines of the waves
    const int *width;               // (layers + 1,): what the first layer sees, then units in each layer
    const int *kind;                // (layers,): activations
    const float *slope;             // (layers,)
    const float *const *weight;     // as torch has them: (width[l + 1], width[l])
    const float *const *bias;       // (width[l + 1],) each, or null
    const float *last, *last_bias;  // (width[layers],) and one number, or null
    const float *frequencies;       // (inputs, waves)
    float precision;                // precision |x|^2 / 2 is added to the energy
    float *packed, *scratch;
};

static int widest(const Network *net) {
    int most = 0;
    for (int l = 0; l <= net->layers; l++) most = padded(net->width[l]) > most ? padded(net->width[l]) : most;
    return most;
}

// Where a layer's weights for the way back start, from those for the way there.
static ptrdiff_t to_backward(const Network *net, int l) {
    return ((ptrdiff_t)net->width[l] + 1) * padded(net->width[l + 1]);
}

static bool is_narrow(const Network *net, int l) { return l == 0 && net->width[0] <= NARROW; }

static ptrdiff_t to_next(const Network *net, int l) {
    ptrdiff_t in = net->width[l], out = net->width[l + 1];
    return is_narrow(net, l) ? in * padded(out) : out * padded(in);
}

// How many numbers `packed` must have room for, and `scratch`.
extern "C" ptrdiff_t packed_size(const Network *net) {
    ptrdiff_t size = padded(net->width[net->layers]);
    for (int l = 0; l < net->layers; l++) size += to_backward(net, l) + to_next(net, l);
    return size;
}

static ptrdiff_t scratch_of_a_thread(const Network *net) { return (ptrdiff_t)(net->layers + 5) * ROWS * widest(net); }

extern "C" ptrdiff_t scratch_size(const Network *net) { return net->threads * scratch_of_a_thread(net); }

// Lay out the weights as `evaluate` reads them; again whenever they have changed.
extern "C" void prepare(const Network *net) {
    float *to = net->packed;
    for (int l = 0; l < net->layers; l++) {
        int in = net->width[l], out = net->width[l + 1];
        to = pack(net->weight[l], in, out, true, to);
        to = pack_row(net->bias[l], 1, out, to);
        if (is_narrow(net, l))
            for (int i = 0; i < in; i++) to = pack_row(net->weight[l] + i, in, out, to);
        else
            to = pack(net->weight[l], out, in, false, to);
    }
    pack_row(net->last, 1, net->width[net->layers], to);
}

// What the first layer sees of m rows.
static void see(const Network *net, const float *x, int m, float *features) {
    const int inputs = net->inputs, waves = net->waves, stride = padded(net->width[0]);
    memset(features, 0, sizeof(float) * ROWS * stride);
    for (int r = 0; r < m; r++) {
        float *row = features + r * stride;
        memcpy(row, x + (ptrdiff_t)r * inputs, sizeof(float) * inputs);
        for (int w = 0; w < waves; w += LANES) {
            const int some = waves - w < LANES ? waves - w : LANES;
            float phase[LANES] = {0}, sine[LANES], cosine[LANES];
            for (int i = 0; i < inputs; i++)
                for (int c = 0; c < some; c++) phase[c] += row[i] * net->frequencies[(ptrdiff_t)i * waves + w + c];
            Vec s = Vec{}, c = Vec{};
            sine_cosine(load(phase), s, c);
            store(sine, s), store(cosine, c);
            memcpy(row + inputs + w, sine, sizeof(float) * some);
            memcpy(row + inputs + waves + w, cosine, sizeof(float) * some);
        }
    }
}

// E of m rows x (m, inputs), m at most ROWS, and its gradient, (m, inputs).
static void few_rows(const Network *net, const float *x, int m, float *e, float *grad, float *room) {
    const int most = widest(net), layers = net->layers, inputs = net->inputs, waves = net->waves;
    float *features = room, *a = room + ROWS * most, *g = a + ROWS * most, *back = g + ROWS * most;
    float *slopes[MOST_LAYERS];
    const float *from = net->packed, *backward[MOST_LAYERS], *seen = features;
    see(net, x, m, features);
    for (int l = 0; l < layers; l++) {
        const int k = net->width[l], n = padded(net->width[l + 1]);
        slopes[l] = back + (ptrdiff_t)(l + 1) * ROWS * most;
        product(seen, padded(k), from, from + (ptrdiff_t)k * n, slopes[l], k, n);
        activate(net->kind[l], net->slope[l], slopes[l], a, ROWS * n);
        seen = a;
        backward[l] = from + to_backward(net, l);
        from = backward[l] + to_next(net, l);
    }
    const int n = padded(net->width[layers]);
    for (int r = 0; r < ROWS; r++) {
        Vec total = Vec{};
        for (int i = 0; i < n; i += LANES) {
            total += load(a + r * n + i) * load(from + i);
            store(g + r * n + i, load(from + i) * load(slopes[layers - 1] + r * n + i));
        }
        if (r < m) e[r] = sum(total) + (net->last_bias ? *net->last_bias : 0);
    }
    for (int l = layers - 1; l >= 0; l--) {
        const int k = padded(net->width[l + 1]), out = padded(net->width[l]);
        if (is_narrow(net, l))
            dot_products(g, backward[l], back, k, net->width[l]);
        else
            product(g, k, backward[l], nullptr, back, net->width[l + 1], out);
        for (int i = 0; l > 0 && i < ROWS * out; i += LANES) store(g + i, load(back + i) * load(slopes[l - 1] + i));
    }
    const int stride = padded(net->width[0]);
    for (int r = 0; r < m; r++) {
        const float *row = features + r * stride, *along = back + r * stride;
        float square = 0;
        for (int i = 0; i < inputs; i++) {
            float total = along[i] + net->precision * row[i];
            for (int w = 0; w < waves; w++) {
                const float sine = row[inputs + w], cosine = row[inputs + waves + w];
                const float turned = along[inputs + w] * cosine - along[inputs + waves + w] * sine;
                total += turned * net->frequencies[(ptrdiff_t)i * waves + w];
            }
            grad[(ptrdiff_t)r * inputs + i] = total;
            square += row[i] * row[i];
        }
        e[r] += 0.5f * net->precision * square;
    }
}

// Calls `work(row, m, room)` for groups of m rows, shared out to the threads.
template <class Work>
static void for_groups(const Network *net, int rows, Work work) {
    const int groups = (rows + ROWS - 1) / ROWS, threads = net->threads;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static)
#endif
    for (int t = 0; t < threads; t++) {
        float *room = net->scratch + t * scratch_of_a_thread(net);
        const int first = (ptrdiff_t)groups * t / threads, end = (ptrdiff_t)groups * (t + 1) / threads;
        for (int row = first * ROWS; row < rows && row < end * ROWS; row += ROWS)
            work(row, rows - row < ROWS ? rows - row : ROWS, room);
    }
}

// E of all rows x (rows, inputs) into e (rows,), its gradient into grad (rows, inputs).
extern "C" void evaluate(const Network *net, const float *x, int rows, float *e, float *grad) {
    for_groups(net, rows, [=](int row, int m, float *room) {
        const ptrdiff_t start = (ptrdiff_t)row * net->inputs;
        few_rows(net, x + start, m, e + row, grad + start, room);
    });
}

// Langevin dynamics: `steps` times y <- y - step_size * gradient + noise, from x, with noise (steps, rows, inputs).
// Each number of the gradient is clamped to max_grad, each number of y to [low, high].
extern "C" void langevin(const Network *net, const float *x, int rows, const float *noise, int steps, float step_size,
              float max_grad, float low, float high, float *y) {
    const ptrdiff_t size = (ptrdiff_t)rows * net->inputs;
    for_groups(net, rows, [=](int row, int m, float *room) {
        const ptrdiff_t start = (ptrdiff_t)row * net->inputs, count = (ptrdiff_t)m * net->inputs;
        float e[ROWS], *grad = room, *moved = y + start;
        memcpy(moved, x + start, sizeof(float) * count);
        for (int step = 0; step < steps; step++) {
            few_rows(net, moved, m, e, grad, room + ROWS * widest(net));
            const float *z = noise + step * size + start;
            for (ptrdiff_t i = 0; i < count; i++) {
                float g = grad[i], v;
                g = g < -max_grad ? -max_grad : g > max_grad ? max_grad : g;
                v = moved[i] - step_size * g + z[i];
                moved[i] = v < low ? low : v > high ? high : v;
            }
        }
    });
}
