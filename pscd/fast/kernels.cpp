// The energy of a network, and its gradient with respect to the input, in one pass over the rows.
//
// A few rows at a time go through all layers and back while they are in the cache nearest to the processor, with
// activations and their derivatives computed where the matrix products leave off. Every row is computed in the same
// order whatever the number of rows and threads, so that its result depends on neither.
//
// Every layer is a convolution, a product of patches of its input with its weights. A fully connected one has a single
// patch, all of its input. Images have their channels last, padded to full vectors.
//
// Compiled by pscd/fast/cpp.py on first use. Plain C++ with the vector types of GCC and Clang.

#include "vectors.h"

#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

struct Layer {
    int channels, height, width;  // of its input
    int tall, wide;               // its patches,
    int down, across;             // the steps between them,
    int top, left;                // and the zeros around the image
    int out, rows, columns;       // channels and size of its output
    int kind;                     // of activation
    float slope;
    const float *weight, *bias;  // as torch has them: (out, channels, tall, wide) and (out,) or null
};

struct Network {
    int count;                   // of layers, at most MOST_LAYERS
    int inputs, waves, threads;  // the first layer sees the inputs, then sines, then cosines of the waves, if any
    const Layer *layers;
    const float *last, *last_bias;  // (outputs, numbers of the last layer) and (outputs,) or null
    int outputs;
    const float *frequencies;  // (inputs, waves)
    float precision;           // precision |x|^2 / 2 is added to the energy
    float bound;               // the rest is f, or bound tanh(f / bound) if this is not 0
    float *packed, *scratch;
};

namespace {

constexpr int NARROW = 4;  // outputs up to which dot products beat a vector that is mostly padding
constexpr int MOST_LAYERS = 32;

// Numbers of a pixel of layer l's input, of one of its patches, of an image before and after it.
inline int depth(const Network *net, int l) { return l == 0 ? net->layers[0].channels : padded(net->layers[l].channels); }
inline int patch(const Network *net, int l) { return net->layers[l].tall * net->layers[l].wide * depth(net, l); }
inline Size before(const Network *net, int l) { return (Size)net->layers[l].height * net->layers[l].width * depth(net, l); }
inline int positions(const Network *net, int l) { return net->layers[l].rows * net->layers[l].columns; }
inline Size after(const Network *net, int l) { return (Size)positions(net, l) * padded(net->layers[l].out); }
inline bool is_whole(const Network *net, int l) { return positions(net, l) == 1 && patch(net, l) == before(net, l); }
inline bool is_narrow(const Network *net, int l) { return l == 0 && is_whole(net, 0) && patch(net, 0) <= NARROW; }

// Numbers from one row of what the first layer sees to the next.
inline Size stride(const Network *net) { return is_whole(net, 0) ? padded(patch(net, 0)) : before(net, 0); }

// Offset of the backward weights of a layer from its forward weights; and their number.
inline Size to_backward(const Network *net, int l) { return ((Size)patch(net, l) + 1) * padded(net->layers[l].out); }
inline Size to_next(const Network *net, int l) {
    return is_narrow(net, l) ? (Size)patch(net, l) * padded(net->layers[l].out)
                             : (Size)net->layers[l].out * padded(patch(net, l));
}

// Size of ROWS images, and of some extra positions where an image has several, because products write groups of ROWS.
inline Size room_of(Size numbers, int pixel) { return ROWS * (numbers + (numbers > padded(pixel) ? padded(pixel) : 0)); }

Size largest(const Network *net) {
    Size most = room_of(padded(before(net, 0)), padded(patch(net, 0)));
    for (int l = 0; l < net->count; l++) {
        Size size = room_of(after(net, l), net->layers[l].out);
        most = size > most ? size : most;
    }
    return most;
}

Size largest_patch(const Network *net) {
    int most = 0;
    for (int l = 0; l < net->count; l++) most = patch(net, l) > most ? patch(net, l) : most;
    return (Size)ROWS * padded(most);
}

Size scratch_of_a_thread(const Network *net) {
    Size size = 4 * largest(net) + largest_patch(net);  // features, values twice, gradients
    for (int l = 0; l < net->count; l++) size += room_of(after(net, l), net->layers[l].out);
    return size;
}

// A matrix (k, n) given by a function, into panels as `product` reads them. Returns the end.
template <class Matrix>
float *pack(int k, int n, Matrix matrix, float *to) {
    for (int j = 0; j < n; j += PANEL)
        for (int i = 0; i < k; i++)
            for (int c = j; c < j + PANEL && c < padded(n); c++) *to++ = c < n ? matrix(i, c) : 0;
    return to;
}

template <class Row>
float *pack_row(int n, Row row, float *to) {
    for (int j = 0; j < padded(n); j++) *to++ = j < n ? row(j) : 0;
    return to;
}

// Calls f(offset in the image, offset in the patch, numbers) for what lies inside of the image, row by row.
template <class Function>
inline void for_patch(const Network *net, int l, int position, Function f) {
    const Layer &layer = net->layers[l];
    const int pixel = depth(net, l), y = position / layer.columns * layer.down - layer.top;
    const int x = position % layer.columns * layer.across - layer.left;
    const int first = x < 0 ? -x : 0, end = x + layer.wide > layer.width ? layer.width - x : layer.wide;
    for (int i = 0; i < layer.tall && first < end; i++)
        if (y + i >= 0 && y + i < layer.height)
            f(((Size)(y + i) * layer.width + x + first) * pixel, (i * layer.wide + first) * pixel, (end - first) * pixel);
}

// ROWS patches from position p on, of images that have `total` positions together; zeros for positions beyond the end.
inline void gather(const Network *net, int l, const float *input, int p, int total, float *patches) {
    const int k = patch(net, l), each = positions(net, l);
    memset(patches, 0, sizeof(float) * ROWS * k);
    for (int r = 0; r < ROWS && p + r < total; r++) {
        const float *image = input + (p + r) / each * before(net, l);
        for_patch(net, l, (p + r) % each,
                  [=](Size at, int to, int count) { memcpy(patches + r * k + to, image + at, sizeof(float) * count); });
    }
}

// values (m images after layer l) and slopes, from the images before it.
void forward(const Network *net, int l, const float *input, int m, const float *from, float *values, float *slopes,
             float *patches) {
    const Layer &layer = net->layers[l];
    const int k = patch(net, l), n = padded(layer.out), each = positions(net, l), total = m * each;
    const float *bias = from + (Size)k * n;
    if (is_whole(net, l)) {
        const Size apart = l == 0 ? stride(net) : k;
        return product(input, apart, from, bias, slopes, k, n, [=, &layer](int j, int columns) {
            activate(layer.kind, layer.slope, slopes + j, values + j, columns, n);
        });
    }
    for (int p = 0; p < total; p += ROWS) {
        gather(net, l, input, p, total, patches);
        float *slope = slopes + (Size)p * n, *value = values + (Size)p * n;
        product(patches, k, from, bias, slope, k, n, [=, &layer](int j, int columns) {
            activate(layer.kind, layer.slope, slope + j, value + j, columns, n);
        });
    }
}

// back: gradients of m images before layer l, from those after it.
void backward(const Network *net, int l, const float *grad, int m, const float *from, float *back, float *patches) {
    const Layer &layer = net->layers[l];
    const int k = patch(net, l), n = padded(layer.out), each = positions(net, l), total = m * each;
    if (is_narrow(net, l)) return dot_products(grad, from, back, n, k);
    if (is_whole(net, l)) return product(grad, n, from, nullptr, back, layer.out, padded(k));
    memset(back, 0, sizeof(float) * m * before(net, l));
    for (int p = 0; p < total; p += ROWS) {
        product(grad + (Size)p * n, n, from, nullptr, patches, layer.out, padded(k));
        for (int r = 0; r < ROWS && p + r < total; r++) {
            float *image = back + (p + r) / each * before(net, l);
            const float *sent = patches + r * padded(k);
            for_patch(net, l, (p + r) % each, [=](Size at, int to, int count) {
                for (int i = 0; i < count; i++) image[at + i] += sent[to + i];
            });
        }
    }
}

// Pixels of m images as torch has them, channels first, and channels last; a row of numbers is an image of one pixel.
void see(const Network *net, const float *x, int m, float *features) {
    const Layer &first = net->layers[0];
    const int inputs = net->inputs, waves = net->waves, area = first.height * first.width;
    const int channels = inputs / area;
    memset(features, 0, sizeof(float) * ROWS * stride(net));
    for (int r = 0; r < m; r++) {
        float *row = features + r * stride(net);
        for (int p = 0; p < area; p++)
            for (int c = 0; c < channels; c++) row[p * channels + c] = x[(Size)r * inputs + c * area + p];
        for (int w = 0; w < waves; w += LANES) {
            const int some = waves - w < LANES ? waves - w : LANES;
            float phase[LANES] = {0}, sine[LANES], cosine[LANES];
            for (int i = 0; i < inputs; i++)
                for (int c = 0; c < some; c++) phase[c] += row[i] * net->frequencies[(Size)i * waves + w + c];
            Vec s = Vec{}, c = Vec{};
            sine_cosine(load(phase), s, c);
            store(sine, s), store(cosine, c);
            memcpy(row + inputs + w, sine, sizeof(float) * some);
            memcpy(row + inputs + waves + w, cosine, sizeof(float) * some);
        }
    }
}

// The gradient with respect to x from that with respect to what the first layer sees; and the base's.
void unsee(const Network *net, const float *features, const float *back, int m, float *grad) {
    const Layer &first = net->layers[0];
    const int inputs = net->inputs, waves = net->waves, area = first.height * first.width;
    const int channels = inputs / area;
    for (int r = 0; r < m; r++) {
        const float *row = features + r * stride(net), *along = back + r * stride(net);
        float *to = grad + (Size)r * inputs;
        for (int p = 0, i = 0; p < area; p++)
            for (int c = 0; c < channels; c++, i++) {
                float total = along[i] + net->precision * row[i];
                for (int w = 0; w < waves; w++) {
                    const float sine = row[inputs + w], cosine = row[inputs + waves + w];
                    const float turned = along[inputs + w] * cosine - along[inputs + waves + w] * sine;
                    total += turned * net->frequencies[(Size)i * waves + w];
                }
                to[c * area + p] = total;
            }
    }
}

// What a group of rows has been through: what the first layer saw, then values and slopes after each layer.
struct Tape {
    float *features, *values[MOST_LAYERS], *slopes[MOST_LAYERS];
};

void ascend(const Network *net, const float *x, int m, const Tape &tape, float *patches) {
    see(net, x, m, tape.features);
    const float *from = net->packed, *input = tape.features;
    for (int l = 0; l < net->count; l++) {
        forward(net, l, input, m, from, tape.values[l], tape.slopes[l], patches);
        input = tape.values[l];
        from += to_backward(net, l) + to_next(net, l);
    }
}

inline const float *last_weights(const Network *net) {
    const float *from = net->packed;
    for (int l = 0; l < net->count; l++) from += to_backward(net, l) + to_next(net, l);
    return from;
}

// E of the rows on the tape, and how it changes with what the network says, which is 1 without a bound.
void sum_up(const Network *net, const Tape &tape, const int *output, int m, float *e, float *steepness) {
    const int l = net->count - 1;
    const Size n = after(net, l);
    for (int r = 0; r < m; r++) {
        const int which = output ? output[r] : 0;
        const float *last = last_weights(net) + which * n, *row = tape.features + r * stride(net);
        Vec total = Vec{};
        for (Size i = 0; i < n; i += LANES) total += load(tape.values[l] + r * n + i) * load(last + i);
        float f = sum(total) + (net->last_bias ? net->last_bias[which] : 0), square = 0;
        steepness[r] = 1;
        if (net->bound != 0) {
            const float t = std::tanh(f / net->bound);
            f = net->bound * t;
            steepness[r] = 1 - t * t;
        }
        for (int i = 0; net->precision != 0 && i < net->inputs; i++) square += row[i] * row[i];
        e[r] = f + 0.5f * net->precision * square;
    }
}

// The last slopes become gradients of what the network says, times a factor for each row.
void turn(const Network *net, const Tape &tape, const int *output, int m, const float *factor) {
    const int l = net->count - 1;
    const Size n = after(net, l);
    for (int r = 0; r < m; r++) {
        const float *last = last_weights(net) + (output ? output[r] : 0) * n;
        float *row = tape.slopes[l] + r * n;
        for (Size i = 0; i < n; i += LANES) store(row + i, load(row + i) * load(last + i) * factor[r]);
    }
}

// The slopes before layer l become gradients, from those after it, which are gradients already; for the first layer
// `back` does.
void descend(const Network *net, int l, const Tape &tape, int m, float *back, float *patches) {
    const float *from = net->packed;
    for (int i = 0; i < l; i++) from += to_backward(net, i) + to_next(net, i);
    backward(net, l, tape.slopes[l], m, from + to_backward(net, l), back, patches);
    for (Size i = 0; l > 0 && i < m * before(net, l); i += LANES) {
        float *slope = tape.slopes[l - 1] + i;
        store(slope, load(back + i) * load(slope));
    }
}

// E of m rows x (m, inputs), m at most ROWS, and its gradient, (m, inputs), whichever is asked for; `output` says which
// one is meant, if any.
void few_rows(const Network *net, const float *x, const int *output, int m, float *e, float *grad, float *space) {
    const Size most = largest(net);
    float *back = space + 3 * most, *patches = space + 4 * most, *free = patches + largest_patch(net);
    float unused[ROWS], steepness[ROWS];
    Tape tape = {space, {}, {}};
    for (int l = 0; l < net->count; l++) {
        tape.values[l] = space + (1 + l % 2) * most;
        tape.slopes[l] = free;
        free += room_of(after(net, l), net->layers[l].out);
    }
    ascend(net, x, m, tape, patches);
    for (int r = 0; r < ROWS; r++) steepness[r] = 1;
    if (e || net->bound != 0) sum_up(net, tape, output, m, e ? e : unused, steepness);
    if (!grad) return;
    turn(net, tape, output, m, steepness);
    for (int l = net->count - 1; l >= 0; l--) descend(net, l, tape, m, back, patches);
    unsee(net, tape.features, back, m, grad);
}

// Calls `work(i, thread)` for i below count. Whichever thread is free takes the next, for cores are shared with others.
template <class Work>
void share(int threads, int count, Work work) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (int i = 0; i < count; i++) work(i, omp_get_thread_num());
#else
    for (int i = 0; i < count; i++) work(i, 0);
#endif
}

// Calls `work(row, m, space)` for groups of m rows.
template <class Work>
void for_groups(const Network *net, int rows, Work work) {
    share(net->threads, (rows + ROWS - 1) / ROWS, [=](int group, int thread) {
        const int row = group * ROWS;
        work(row, rows - row < ROWS ? rows - row : ROWS, net->scratch + thread * scratch_of_a_thread(net));
    });
}

}  // namespace

// How many numbers `packed` must hold, and `scratch`.
extern "C" ptrdiff_t packed_size(const Network *net) {
    Size size = net->outputs * after(net, net->count - 1);
    for (int l = 0; l < net->count; l++) size += to_backward(net, l) + to_next(net, l);
    return size;
}

extern "C" ptrdiff_t scratch_size(const Network *net) { return net->threads * scratch_of_a_thread(net); }

// Lay out the weights as the other functions read them; again whenever they have changed.
extern "C" void prepare(const Network *net) {
    float *to = net->packed;
    for (int l = 0; l < net->count; l++) {
        const Layer &layer = net->layers[l];
        const int pixel = depth(net, l), channels = layer.channels, area = layer.tall * layer.wide;
        const Size filter = (Size)channels * area;
        // Where number i of a patch, channels last, is in a filter as torch has it, channels first; -1 for padding.
        std::vector<Size> at(patch(net, l));
        for (int i = 0; i < (int)at.size(); i++) at[i] = i % pixel < channels ? (Size)(i % pixel) * area + i / pixel : -1;
        auto weight = [&](int out, int i) { return at[i] < 0 ? 0 : layer.weight[out * filter + at[i]]; };
        to = pack(patch(net, l), layer.out, [&](int i, int out) { return weight(out, i); }, to);
        to = pack_row(layer.out, [&](int out) { return layer.bias ? layer.bias[out] : 0; }, to);
        if (is_narrow(net, l))
            for (int i = 0; i < patch(net, l); i++) to = pack_row(layer.out, [&](int out) { return weight(out, i); }, to);
        else
            to = pack(layer.out, patch(net, l), weight, to);
    }
    const Layer &top = net->layers[net->count - 1];
    const int pixel = padded(top.out), area = top.rows * top.columns;
    for (int output = 0; output < net->outputs; output++)
        for (int p = 0; p < area; p++)
            for (int c = 0; c < pixel; c++)
                *to++ = c < top.out ? net->last[((Size)output * top.out + c) * area + p] : 0;
}

// E of all rows x (rows, inputs) into e (rows,), its gradient into grad (rows, inputs), if that is not null.
extern "C" void evaluate(const Network *net, const float *x, const int *output, int rows, float *e, float *grad) {
    for_groups(net, rows, [=](int row, int m, float *space) {
        const Size start = (Size)row * net->inputs;
        few_rows(net, x + start, output ? output + row : nullptr, m, e + row, grad ? grad + start : nullptr, space);
    });
}

// Langevin dynamics: `steps` times y <- y - step_size * gradient + noise, from x, with noise (steps, rows, inputs).
// Each number of the gradient is clamped to max_grad, each number of y to [low, high].
extern "C" void langevin(const Network *net, const float *x, const int *output, int rows, const float *noise, int steps,
                         float step_size, float max_grad, float low, float high, float *y, float *gradients) {
    const Size size = (Size)rows * net->inputs;
    for_groups(net, rows, [=](int row, int m, float *space) {
        const Size start = (Size)row * net->inputs, count = (Size)m * net->inputs;
        float *grad = gradients + start, *moved = y + start;
        memcpy(moved, x + start, sizeof(float) * count);
        for (int step = 0; step < steps; step++) {
            few_rows(net, moved, output ? output + row : nullptr, m, nullptr, grad, space);
            const float *z = noise + step * size + start;
            for (Size i = 0; i < count; i++) {
                float g = grad[i];
                g = g < -max_grad ? -max_grad : g > max_grad ? max_grad : g;
                const float v = moved[i] - step_size * g + z[i];
                moved[i] = v < low ? low : v > high ? high : v;
            }
        }
    });
}

// Training: the weights' gradients, for networks of fully connected layers. A record holds the tapes of all rows, one
// after the other, so that each of their parts is a matrix; and a factor for each row.
namespace {

inline Size whole_groups(int rows) { return (Size)(rows + ROWS - 1) / ROWS * ROWS; }

Tape tape_of(const Network *net, float *record, int rows, int row) {
    Tape tape = {record + row * stride(net), {}, {}};
    float *free = record + whole_groups(rows) * stride(net);
    for (int l = 0; l < net->count; l++) {
        tape.values[l] = free + row * after(net, l);
        tape.slopes[l] = tape.values[l] + whole_groups(rows) * after(net, l);
        free += 2 * whole_groups(rows) * after(net, l);
    }
    return tape;
}

inline float *factors_of(const Network *net, float *record, int rows) {
    const int top = net->count - 1;
    return tape_of(net, record, rows, 0).slopes[top] + whole_groups(rows) * after(net, top);
}

// out (n,) = the sum of rows (rows, n) that are padded, each times its factor, if any.
void sum_of_rows(int rows, const float *values, const float *factor, int n, float *out) {
    for (int column = 0; column < n; column += LANES) {
        Vec total = Vec{};
        for (int r = 0; r < rows; r++) total += load(values + r * (Size)padded(n) + column) * (factor ? factor[r] : 1);
        float sums[LANES];
        store(sums, total);
        memcpy(out + column, sums, sizeof(float) * (n - column < LANES ? n - column : LANES));
    }
}

// What a layer's weights learn from: gradients (rows, outputs), padded, and what it saw (rows, inputs), `apart` numbers
// from row to row; and where to: weights (outputs, inputs), then biases (outputs,).
struct Lesson {
    const float *grads, *input;
    Size apart;
    int outputs, inputs;
    float *to;
};

inline int pieces(const Lesson &lesson) {
    return (lesson.inputs + PANEL - 1) / PANEL * ((lesson.outputs + ROWS - 1) / ROWS) + 1;
}

// One piece of it: a tile of the sum over rows of outer products, or the biases.
void learn_piece(const Lesson &lesson, int rows, int piece) {
    const int down = (lesson.outputs + ROWS - 1) / ROWS, row = piece % down * ROWS, column = piece / down * PANEL;
    const int n = lesson.outputs, width = lesson.inputs - column < PANEL ? lesson.inputs - column : PANEL;
    float *biases = lesson.to + (Size)n * lesson.inputs;
    if (piece == pieces(lesson) - 1) return sum_of_rows(rows, lesson.grads, nullptr, n, biases);
    float tile[ROWS * PANEL];
    auto fill = width > LANES ? sum_of_outer_products<2> : sum_of_outer_products<1>;
    fill(rows, lesson.grads + row, padded(n), lesson.input + column, lesson.apart, tile);
    for (int r = 0; r < ROWS && row + r < n; r++)
        memcpy(lesson.to + (Size)(row + r) * lesson.inputs + column, tile + r * PANEL, sizeof(float) * width);
}

}  // namespace

// How many numbers a record of so many rows must hold; products read a few beyond its end.
extern "C" ptrdiff_t record_size(const Network *net, int rows) {
    Size each = stride(net) + 1;
    for (int l = 0; l < net->count; l++) each += 2 * after(net, l);
    return whole_groups(rows) * each + ROWS;
}

// E of all rows x into e, and what `learn` needs into the record.
extern "C" void remember(const Network *net, const float *x, int rows, float *e, float *record) {
    float *factors = factors_of(net, record, rows);
    for_groups(net, rows, [=](int row, int m, float *space) {
        const Tape tape = tape_of(net, record, rows, row);
        ascend(net, x + (Size)row * net->inputs, m, tape, space);
        sum_up(net, tape, nullptr, m, e + row, factors + row);
    });
}

// From the gradient with respect to E of each row to those with respect to all weights and biases, (out, in) and (out,)
// layer by layer, the last one too; one after the other. The record is used up.
extern "C" void learn(const Network *net, const float *grad, int rows, float *record, float *to) {
    float *factors = factors_of(net, record, rows);
    for_groups(net, rows, [=](int row, int m, float *space) {
        const Tape tape = tape_of(net, record, rows, row);
        for (int r = row; r < row + m; r++) factors[r] *= grad[r];
        turn(net, tape, nullptr, m, factors + row);
        for (int l = net->count - 1; l > 0; l--) descend(net, l, tape, m, space, nullptr);
    });
    const Tape tape = tape_of(net, record, rows, 0);
    std::vector<Lesson> lessons;
    int total = 0;
    for (int l = 0; l < net->count; l++) {
        const int out = net->layers[l].out, inputs = net->layers[l].channels;
        const float *input = l == 0 ? tape.features : tape.values[l - 1];
        lessons.push_back({tape.slopes[l], input, l == 0 ? stride(net) : after(net, l - 1), out, inputs, to});
        total += pieces(lessons.back());
        to += (Size)out * (inputs + 1);
    }
    // A thread does complete pieces, with all of their rows, so that the order of sums does not depend on threads.
    share(net->threads, total, [&](int piece, int) {
        const Lesson *lesson = lessons.data();
        for (; piece >= pieces(*lesson); lesson++) piece -= pieces(*lesson);
        learn_piece(*lesson, rows, piece);
    });
    const int top = net->layers[net->count - 1].out;
    sum_of_rows(rows, tape.values[net->count - 1], factors, top, to);
    to[top] = 0;
    for (int r = 0; r < rows; r++) to[top] += factors[r];
}
