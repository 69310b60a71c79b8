// Compares the kernels of an extension with plain loops in double precision, over random sizes, alignments, strides and
// numbers of threads. Memory around each buffer is checked. Each function takes the extension, a seed and a number of
// rounds, and raises an AssertionError at the first difference.
#include <Python.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using std::ptrdiff_t;
using Doubles = std::vector<double>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct PythonError {};

std::mt19937_64 generator;
std::string described;  // the sizes of the present round

ptrdiff_t between(ptrdiff_t least, ptrdiff_t most) {
    return std::uniform_int_distribution<ptrdiff_t>(least, most)(generator);
}

bool maybe() { return between(0, 1) == 1; }

double number() { return std::uniform_real_distribution<double>(-1, 1)(generator); }

template <class... Sizes>
void describe(const Sizes &...sizes) {
    described.clear();
    ((described += std::to_string(sizes) + " "), ...);
}

// Floats at a random offset from any alignment, with marks before and behind that a kernel must not touch.
class Buffer {
  public:
    explicit Buffer(ptrdiff_t size, bool filled = true)
        : size_(size), offset_(kMarks + between(0, 15)),
          memory_(static_cast<std::size_t>(size + offset_ + kMarks), kMark) {
        for (float &each : *this) each = filled ? static_cast<float>(number()) : kNan;
    }
    float *begin() const { return const_cast<float *>(memory_.data()) + offset_; }
    float *end() const { return begin() + size_; }
    float &operator[](ptrdiff_t at) const { return begin()[at]; }
    ptrdiff_t size() const { return size_; }
    void check_marks() const {
        for (const float *at = memory_.data(); at != memory_.data() + memory_.size(); ++at) {
            if ((at < begin() || at >= end()) && *at != kMark)
                throw std::runtime_error("memory around a buffer was written");
        }
    }
    void spoil() const {
        if (size_) (*this)[between(0, size_ - 1)] = maybe() ? kNan : kInfinity;
    }

  private:
    static constexpr ptrdiff_t kMarks = 16;
    static constexpr float kMark = 12345.5f;
    ptrdiff_t size_, offset_;
    std::vector<float> memory_;
};

// Buffers of a round, all of which have marks to check.
class Round {
  public:
    const Buffer &filled(ptrdiff_t size) { return *all_.emplace_back(std::make_unique<Buffer>(size)); }
    const Buffer &empty(ptrdiff_t size) { return *all_.emplace_back(std::make_unique<Buffer>(size, false)); }
    const Buffer *optional(ptrdiff_t size) { return maybe() ? &filled(size) : nullptr; }
    void check_marks() const {
        for (const auto &each : all_) each->check_marks();
    }

  private:
    std::vector<std::unique_ptr<Buffer>> all_;
};

double at(const Buffer *buffer, ptrdiff_t place) { return buffer ? (*buffer)[place] : 0.0; }

// An argument of a kernel: a size, an address or a number.
struct Argument {
    PyObject *made;
    template <class Number, std::enable_if_t<std::is_integral_v<Number>, int> = 0>
    Argument(Number value) : made(PyLong_FromLongLong(static_cast<long long>(value))) {}
    Argument(double value) : made(PyFloat_FromDouble(value)) {}
    Argument(const Buffer &buffer) : made(PyLong_FromVoidPtr(buffer.begin())) {}
    Argument(const Buffer *buffer) : made(buffer ? PyLong_FromVoidPtr(buffer->begin()) : PyLong_FromLong(0)) {}
    Argument(const std::string &bytes)
        : made(PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size()))) {}
    explicit Argument(const std::vector<std::int64_t> &numbers)
        : made(PyLong_FromVoidPtr(const_cast<std::int64_t *>(numbers.data()))) {}
};

class Core {
  public:
    explicit Core(PyObject *module) : module_(module) {}
    ptrdiff_t operator()(const char *name, const std::vector<Argument> &arguments) const {
        PyObject *tuple = PyTuple_New(static_cast<Py_ssize_t>(arguments.size()));
        for (std::size_t i = 0; i < arguments.size(); ++i)
            PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), arguments[i].made);
        PyObject *function = PyObject_GetAttrString(module_, name);
        PyObject *found = function ? PyObject_CallObject(function, tuple) : nullptr;
        Py_XDECREF(function);
        Py_DECREF(tuple);
        if (!found) throw PythonError();
        const ptrdiff_t result = PyLong_Check(found) ? PyLong_AsSsize_t(found) : 0;
        Py_DECREF(found);
        return result;
    }

  private:
    PyObject *module_;
};

void expect(const char *what, const Buffer &found, const Doubles &wanted, double tolerance) {
    for (ptrdiff_t i = 0; i < found.size(); ++i) {
        const double one = found[i], other = wanted[static_cast<std::size_t>(i)];
        const bool same =
            std::isfinite(other) ? std::abs(one - other) <= tolerance * (1 + std::abs(other)) : !std::isfinite(one);
        if (!same)
            throw std::runtime_error(std::string(what) + "[" + std::to_string(i) + "] is " + std::to_string(one) +
                                     ", expected " + std::to_string(other));
    }
}

void same_bits(const char *what, const Buffer &one, const Buffer &other) {
    if (std::memcmp(one.begin(), other.begin(), static_cast<std::size_t>(one.size()) * sizeof(float)))
        throw std::runtime_error(std::string(what) + " depends on the number of threads");
}

double near_sum(ptrdiff_t terms) { return 2e-6 * std::sqrt(static_cast<double>(terms) + 4); }

// ---- products

struct Strided {
    const Buffer *buffer;
    ptrdiff_t row_gap, column_gap;
    double operator()(ptrdiff_t row, ptrdiff_t column) const { return (*buffer)[row * row_gap + column * column_gap]; }
};

Strided matrix(Round &round, ptrdiff_t rows, ptrdiff_t columns) {
    const ptrdiff_t gap = between(1, 2), wide = (maybe() ? columns : rows) * gap + between(0, 3);
    const bool turned = maybe();
    const ptrdiff_t line = std::max(turned ? rows * gap : columns * gap, wide);
    const Buffer &buffer = round.filled(std::max<ptrdiff_t>(1, line * (turned ? columns : rows)));
    return turned ? Strided{&buffer, gap, line} : Strided{&buffer, line, gap};
}

void multiply(const Core &core) {
    Round round;
    const bool deep = between(0, 3) == 0;
    const bool collides = !deep && between(0, 9) == 0;  // rows of the result share lines of the cache
    const ptrdiff_t rows = between(1, deep ? 12 : 100), columns = collides ? 1024 : between(1, 70);
    const ptrdiff_t depth = between(0, deep ? 530 : collides ? 8 : 40);
    describe(rows, columns, depth);
    const Strided left = matrix(round, rows, depth), right = matrix(round, depth, columns);
    const Buffer *bias = round.optional(columns), &one = round.empty(rows * columns),
                 &other = round.empty(rows * columns);
    if (between(0, 3) == 0) left.buffer->spoil();
    if (between(0, 3) == 0) right.buffer->spoil();
    const auto run = [&](const Buffer &result, ptrdiff_t threads) {
        core("multiply", {rows, columns, depth, left.buffer, left.row_gap, left.column_gap, right.buffer, right.row_gap,
                          right.column_gap, bias, result, threads});
    };
    run(one, 1);
    run(other, between(2, 4));
    Doubles wanted;
    for (ptrdiff_t i = 0; i < rows; ++i) {
        for (ptrdiff_t j = 0; j < columns; ++j) {
            double sum = at(bias, j);
            for (ptrdiff_t k = 0; k < depth; ++k) sum += left(i, k) * right(k, j);
            wanted.push_back(sum);
        }
    }
    expect("result", one, wanted, near_sum(depth));
    same_bits("result", one, other);
    round.check_marks();
}

// Applies function `number` of the layers.
double applied(ptrdiff_t number, double low, double high, double x) {
    const auto between = [](double v, double least, double most) {
        return std::isnan(v) ? v : std::min(std::max(v, least), most);
    };
    switch (number) {
        case 1: return x > 0 ? x : 0.0;
        case 2: return between(x, low, high);
        case 3: return x * between(x + 3, 0, 6) / 6;
        case 4: return x / (1 + std::exp(-x));
        case 5: return 1 / (1 + std::exp(-x));
        case 6: return std::tanh(x);
        case 7: return x > 0 ? x : x * low;
        case 8: return between(x * low + high, 0, 1);
        case 9: return x < -40 ? 0.0 : x * std::erfc(-x / std::sqrt(2.0)) / 2;
        default: return x;
    }
}

void dense(const Core &core) {
    Round round;
    const ptrdiff_t samples = between(1, 3), of_sample = between(1, 40), rows = samples * of_sample,
                    layers = between(1, 4);
    ptrdiff_t features = between(1, 90);
    describe(samples, rows, layers, features);
    const ptrdiff_t first = features;
    const Buffer &data = round.filled(rows * features);
    Doubles values(data.begin(), data.end());
    std::vector<Argument> arguments;
    ptrdiff_t terms = 0;
    for (ptrdiff_t layer = 0; layer < layers; ++layer) {
        const ptrdiff_t units = between(1, 100);
        const ptrdiff_t function = std::vector<ptrdiff_t>{0, 2, 5, 6, 9}[static_cast<std::size_t>(between(0, 4))];
        const Strided weight = matrix(round, features, units);
        const ptrdiff_t size = of_sample > 4 ? core("packed_size", {units, features}) : units * features;
        const Buffer *bias = round.optional(units), &given = round.empty(size);
        if (of_sample > 4) core("pack", {units, features, weight.buffer, weight.row_gap, weight.column_gap, given});
        for (ptrdiff_t i = 0; of_sample <= 4 && i < size; ++i) given[i] = weight(i % features, i / features);
        for (const Argument &each :
             {Argument(units), Argument(features), Argument(given), Argument(bias), Argument(function)})
            arguments.push_back(each);
        Doubles next;
        for (ptrdiff_t i = 0; i < rows; ++i) {
            for (ptrdiff_t j = 0; j < units; ++j) {
                double sum = at(bias, j);
                for (ptrdiff_t k = 0; k < features; ++k)
                    sum += values[static_cast<std::size_t>(i * features + k)] * weight(k, j);
                next.push_back(applied(function, 0, INFINITY, sum));
            }
        }
        values = next;
        terms += features * features;
        features = units;
    }
    const Buffer &one = round.empty(rows * features), &other = round.empty(rows * features);
    const auto run = [&](const Buffer &result, ptrdiff_t threads) {
        std::vector<Argument> all = {samples, of_sample, data, of_sample * first, first, result, threads};
        for (const Argument &each : arguments) {
            Py_INCREF(each.made);
            all.push_back(each);
        }
        core("dense", all);
    };
    run(one, 1);
    run(other, between(2, 8));
    for (const Argument &each : arguments) Py_DECREF(each.made);
    const double largest = std::abs(
        *std::max_element(values.begin(), values.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
    expect("result", one, values, near_sum(terms) * (1 + largest));
    same_bits("result", one, other);
    round.check_marks();
}

// ---- windows

struct Axis {
    ptrdiff_t size, result, kernel, stride, dilate, pad;
    ptrdiff_t place(ptrdiff_t window, ptrdiff_t tap) const { return window * stride + tap * dilate - pad; }
    bool has(ptrdiff_t place) const { return place >= 0 && place < size; }
};

Axis axis(ptrdiff_t most_kernel, ptrdiff_t most_dilate) {
    for (;;) {
        Axis a{between(1, 14), 0, between(1, most_kernel), between(1, 3), between(1, most_dilate), between(0, 3)};
        const ptrdiff_t room = a.size + 2 * a.pad - a.dilate * (a.kernel - 1) - 1;
        a.result = room < 0 ? 0 : room / a.stride + 1;
        if (a.result > 0) return a;
    }
}

void windows(const Core &core) {
    Round round;
    const ptrdiff_t images = between(1, 4), channels = between(1, 20);
    const Axis y = axis(4, 3), x = axis(4, 3);
    describe(images, channels, y.size, x.size, y.kernel, x.kernel, y.stride, x.stride, y.dilate, x.dilate);
    const bool last = maybe();  // whether channels lie innermost
    const std::array<ptrdiff_t, 4> gaps =
        last ? std::array<ptrdiff_t, 4>{y.size * x.size * channels, 1, x.size * channels, channels}
             : std::array<ptrdiff_t, 4>{channels * y.size * x.size, y.size * x.size, x.size, 1};
    const ptrdiff_t count = images * y.result * x.result * channels * y.kernel * x.kernel;
    const Buffer &image = round.filled(images * channels * y.size * x.size), &rows = round.empty(count),
                 &back = round.filled(image.size());
    Doubles wanted, sums(back.begin(), back.end());
    const Buffer &heads = round.filled(count);
    ptrdiff_t place = 0;
    for (ptrdiff_t n = 0; n < images; ++n)
        for (ptrdiff_t i = 0; i < y.result; ++i)
            for (ptrdiff_t j = 0; j < x.result; ++j)
                for (ptrdiff_t c = 0; c < channels; ++c)
                    for (ptrdiff_t k = 0; k < y.kernel; ++k)
                        for (ptrdiff_t l = 0; l < x.kernel; ++l) {
                            const ptrdiff_t row = y.place(i, k), column = x.place(j, l);
                            const bool inside = y.has(row) && x.has(column);
                            const ptrdiff_t from = n * gaps[0] + c * gaps[1] + row * gaps[2] + column * gaps[3];
                            wanted.push_back(inside ? image[from] : 0.0);
                            if (inside) sums[static_cast<std::size_t>(from)] += heads[place];
                            ++place;
                        }
    const auto run = [&](const char *name, const Buffer &pixels, const Buffer &all) {
        core(name, {pixels,   gaps[0],  gaps[1],  gaps[2],  gaps[3],  images, channels, y.size,   x.size,   y.result,
                    x.result, y.kernel, x.kernel, y.stride, x.stride, y.pad,  x.pad,    y.dilate, x.dilate, all});
    };
    run("unfold", image, rows);
    run("fold", back, heads);
    expect("rows", rows, wanted, 0);
    expect("images", back, sums, 1e-5);
    round.check_marks();
}

void layouts(const Core &core) {
    Round round;
    std::vector<std::array<ptrdiff_t, 3>> sizes(static_cast<std::size_t>(between(0, 3)));
    std::vector<const Buffer *> usual, last, back;
    std::vector<Doubles> wanted;
    std::vector<Argument> there = {true, between(1, 4)}, again = {false, between(1, 4)};
    for (auto &[images, channels, pixels] : sizes) {
        images = between(1, 40), channels = between(1, 70), pixels = between(1, maybe() ? 9 : 60);
        describe(images, channels, pixels);
        const ptrdiff_t size = images * channels * pixels;
        usual.push_back(&round.filled(size)), last.push_back(&round.empty(size)), back.push_back(&round.empty(size));
        Doubles turned(static_cast<std::size_t>(size));
        for (ptrdiff_t n = 0; n < images; ++n)
            for (ptrdiff_t c = 0; c < channels; ++c)
                for (ptrdiff_t p = 0; p < pixels; ++p)
                    turned[static_cast<std::size_t>((n * pixels + p) * channels + c)] =
                        (*usual.back())[(n * channels + c) * pixels + p];
        wanted.push_back(turned);
        for (const Argument &each :
             {Argument(usual.back()), Argument(last.back()), Argument(images), Argument(channels), Argument(pixels)})
            there.push_back(each);
        for (const Argument &each :
             {Argument(back.back()), Argument(last.back()), Argument(images), Argument(channels), Argument(pixels)})
            again.push_back(each);
    }
    core("change_layouts", there);
    core("change_layouts", again);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        expect("channels last", *last[i], wanted[i], 0);
        expect("usual layout", *back[i], Doubles(usual[i]->begin(), usual[i]->end()), 0);
    }
    round.check_marks();
}

// ---- convolutions

// A weight (filters, channels, height, width) with axes in any order of memory.
struct Weight {
    const Buffer *buffer;
    std::array<ptrdiff_t, 4> gaps;
    ptrdiff_t index(ptrdiff_t f, ptrdiff_t c, ptrdiff_t i, ptrdiff_t j) const {
        return f * gaps[0] + c * gaps[1] + i * gaps[2] + j * gaps[3];
    }
    double operator()(ptrdiff_t f, ptrdiff_t c, ptrdiff_t i, ptrdiff_t j) const { return (*buffer)[index(f, c, i, j)]; }
};

Weight weight_of(Round &round, std::array<ptrdiff_t, 4> sizes, bool filled = true) {
    std::array<std::size_t, 4> order = {0, 1, 2, 3};
    std::shuffle(order.begin(), order.end(), generator);
    std::array<ptrdiff_t, 4> gaps{};
    ptrdiff_t size = 1;
    for (const std::size_t each : order) {
        gaps[each] = size;
        size *= sizes[each];
    }
    return {filled ? &round.filled(size) : &round.empty(size), gaps};
}

void conv3x3(const Core &core) {
    Round round;
    const ptrdiff_t lanes = core("conv3x3_lanes", {}), step = between(1, 2), spread = step == 1 ? between(1, 2) : 1;
    const ptrdiff_t images = between(1, 4), channels = between(1, 40), filters = lanes * between(1, 3);
    const ptrdiff_t height = between(2, 6), width = between(8, 33);  // of the result
    const ptrdiff_t high = spread == 2 ? (height + 1) / 2 : height * step,
                    wide = spread == 2 ? (width + 1) / 2 : width * step;
    const ptrdiff_t rows = high * spread / step, columns = wide * spread / step;
    const bool rotated = maybe();
    describe(images, channels, filters, rows, columns, step, spread, rotated);
    const Weight weight = weight_of(round, {filters, channels, 3, 3});
    const Buffer &data = round.filled(images * high * wide * channels), *bias = round.optional(filters);
    const Buffer &one = round.empty(images * rows * columns * filters), &other = round.empty(one.size());
    if (between(0, 3) == 0) data.spoil();
    if (between(0, 3) == 0) weight.buffer->spoil();
    const ptrdiff_t down = rotated ? -weight.gaps[2] : weight.gaps[2],
                    right = rotated ? -weight.gaps[3] : weight.gaps[3];
    const auto first = reinterpret_cast<std::intptr_t>(weight.buffer->begin() - (rotated ? 2 * (down + right) : 0));
    const auto run = [&](const Buffer &result, ptrdiff_t threads) {
        core("conv3x3", {images, high, wide, channels, filters, step, threads, spread, first, weight.gaps[0],
                         weight.gaps[1], down, right, data, bias, result});
    };
    run(one, 1);
    run(other, between(2, 4));
    Doubles wanted;
    for (ptrdiff_t n = 0; n < images; ++n)
        for (ptrdiff_t y = 0; y < rows; ++y)
            for (ptrdiff_t x = 0; x < columns; ++x)
                for (ptrdiff_t f = 0; f < filters; ++f) {
                    double sum = at(bias, f);
                    for (ptrdiff_t i = 0; i < 3; ++i)
                        for (ptrdiff_t j = 0; j < 3; ++j) {
                            const ptrdiff_t row = y * step + i - 1, column = x * step + j - 1;  // of the spread data
                            if (row < 0 || column < 0 || row >= high * spread || column >= wide * spread ||
                                row % spread || column % spread)
                                continue;
                            for (ptrdiff_t c = 0; c < channels; ++c) {
                                sum += data[((n * high + row / spread) * wide + column / spread) * channels + c] *
                                       weight(f, c, rotated ? 2 - i : i, rotated ? 2 - j : j);
                            }
                        }
                    wanted.push_back(sum);
                }
    expect("result", one, wanted, near_sum(9 * channels));
    same_bits("result", one, other);
    round.check_marks();
}

void conv3x3_gradients(const Core &core) {
    Round round;
    const ptrdiff_t lanes = core("conv3x3_lanes", {}), step = between(1, 2), images = between(1, 4),
                    channels = 4 * between(1, 10), filters = lanes * between(1, 3);
    const ptrdiff_t rows = between(1, 6), columns = between(2, 33), high = rows * step, wide = columns * step;
    describe(images, channels, filters, rows, columns, step);
    const Weight weight = weight_of(round, {filters, channels, 3, 3}, false);
    const Buffer &data = round.filled(images * high * wide * channels),
                 &grad = round.filled(images * rows * columns * filters);
    const Buffer *bias = maybe() ? &round.empty(filters) : nullptr;
    core("conv3x3_gradients", {images, high, wide, channels, filters, step, between(1, 4), weight.buffer,
                               weight.gaps[0], weight.gaps[1], weight.gaps[2], weight.gaps[3], data, grad, bias});
    Doubles wanted(static_cast<std::size_t>(weight.buffer->size())), sums(static_cast<std::size_t>(filters));
    for (ptrdiff_t n = 0; n < images; ++n)
        for (ptrdiff_t y = 0; y < rows; ++y)
            for (ptrdiff_t x = 0; x < columns; ++x)
                for (ptrdiff_t f = 0; f < filters; ++f) {
                    const double head = grad[((n * rows + y) * columns + x) * filters + f];
                    sums[static_cast<std::size_t>(f)] += head;
                    for (ptrdiff_t i = 0; i < 3; ++i)
                        for (ptrdiff_t j = 0; j < 3; ++j) {
                            const ptrdiff_t row = y * step + i - 1, column = x * step + j - 1;
                            if (row < 0 || column < 0 || row >= high || column >= wide) continue;
                            for (ptrdiff_t c = 0; c < channels; ++c)
                                wanted[static_cast<std::size_t>(weight.index(f, c, i, j))] +=
                                    head * data[((n * high + row) * wide + column) * channels + c];
                        }
                }
    expect("gradient of the weight", *weight.buffer, wanted, near_sum(images * rows * columns));
    if (bias) expect("gradient of the bias", *bias, sums, near_sum(images * rows * columns));
    round.check_marks();
}

// A convolution for training, and its gradients.
void convolve(const Core &core) {
    Round round;
    Axis y = axis(5, 2), x = axis(7, 2);
    const bool has_data = (y.stride == 1 || y.dilate == 1) && (x.stride == 1 || x.dilate == 1);
    const ptrdiff_t images = between(1, 5), channels = between(1, 40), filters = between(1, 130);
    describe(images, channels, filters, y.size, y.kernel, y.stride, y.dilate, y.pad, x.size, x.kernel, x.stride,
             x.dilate, x.pad);
    const std::array<ptrdiff_t, 4> sizes = {filters, channels, y.kernel, x.kernel};
    const Weight weight = weight_of(round, sizes), gradient = weight_of(round, sizes, false);
    const ptrdiff_t pixels = images * y.size * x.size, windows = images * y.result * x.result;
    const Buffer &data = round.filled(pixels * channels), &head = round.filled(windows * filters);
    const Buffer *bias = round.optional(filters), *for_bias = bias ? &round.empty(filters) : nullptr;
    const Buffer *data_bias = round.optional(channels);
    const auto call = [&](const char *name, ptrdiff_t threads, const Weight &w, std::vector<Argument> buffers) {
        std::vector<Argument> all = {images, channels, filters};
        for (const Axis &a : {y, x})
            for (const ptrdiff_t each : {a.size, a.result, a.kernel, a.stride, a.dilate, a.pad}) all.push_back(each);
        all.push_back(threads);
        all.push_back(w.buffer);
        for (const ptrdiff_t gap : w.gaps) all.push_back(gap);
        all.insert(all.end(), buffers.begin(), buffers.end());
        core(name, all);
    };
    const Buffer &result = round.empty(windows * filters), &for_data = round.empty(data.size());
    const Buffer &again = round.empty(result.size()), &data_again = round.empty(data.size());
    const Buffer &summed = round.empty(data.size()), &summed_again = round.empty(data.size());
    const Weight gradient_again{&round.empty(gradient.buffer->size()), gradient.gaps};
    call("convolve", 1, weight, {data, bias, result});
    call("convolve", between(2, 4), weight, {data, bias, again});
    same_bits("result", result, again);
    if (has_data) {
        call("convolution_data", 1, weight, {head, data_bias, for_data});
        call("convolution_data", between(2, 4), weight, {head, data_bias, data_again});
        same_bits("gradient of the data", for_data, data_again);
    }
    if (x.dilate == 1) {
        call("overlapping_data", 1, weight, {head, data_bias, summed});
        call("overlapping_data", between(2, 4), weight, {head, data_bias, summed_again});
        same_bits("gradient of the data by windows", summed, summed_again);
    }
    call("convolution_gradients", between(2, 4), gradient_again, {data, head, for_bias});
    call("convolution_gradients", 1, gradient, {data, head, for_bias});
    same_bits("gradient of the weight", *gradient.buffer, *gradient_again.buffer);
    Doubles wanted, wanted_data;
    for (ptrdiff_t i = 0; i < data.size(); ++i) wanted_data.push_back(at(data_bias, i % channels));
    Doubles wanted_weight(static_cast<std::size_t>(weight.buffer->size())), sums(static_cast<std::size_t>(filters));
    for (ptrdiff_t n = 0; n < images; ++n)
        for (ptrdiff_t i = 0; i < y.result; ++i)
            for (ptrdiff_t j = 0; j < x.result; ++j)
                for (ptrdiff_t f = 0; f < filters; ++f) {
                    const double factor = head[static_cast<ptrdiff_t>(wanted.size())];
                    double sum = at(bias, f);
                    sums[static_cast<std::size_t>(f)] += factor;
                    for (ptrdiff_t k = 0; k < y.kernel; ++k)
                        for (ptrdiff_t l = 0; l < x.kernel; ++l) {
                            const ptrdiff_t row = y.place(i, k), column = x.place(j, l);
                            if (row < 0 || column < 0 || row >= y.size || column >= x.size) continue;
                            for (ptrdiff_t c = 0; c < channels; ++c) {
                                const ptrdiff_t place = ((n * y.size + row) * x.size + column) * channels + c;
                                sum += data[place] * weight(f, c, k, l);
                                wanted_data[static_cast<std::size_t>(place)] += factor * weight(f, c, k, l);
                                wanted_weight[static_cast<std::size_t>(gradient.index(f, c, k, l))] +=
                                    factor * data[place];
                            }
                        }
                    wanted.push_back(sum);
                }
    const ptrdiff_t window = y.kernel * x.kernel;
    expect("result", result, wanted, near_sum(window * channels));
    if (has_data) expect("gradient of the data", for_data, wanted_data, near_sum(window * filters));
    if (x.dilate == 1) expect("gradient of the data by windows", summed, wanted_data, near_sum(window * filters));
    expect("gradient of the weight", *gradient.buffer, wanted_weight, near_sum(windows));
    if (bias) expect("gradient of the bias", *for_bias, sums, near_sum(windows));
    round.check_marks();
}

void run_layers(const Core &core) {
    enum {
        Convolution,
        Depthwise,
        Grouped,
        MaxPool,
        MeanPool,
        Sum = 7,
        Scale,
        Affine,
        Copy,
        Shuffle
    };  // tests of pooling have the others
    Round round;
    const ptrdiff_t drawn = maybe() ? ptrdiff_t{Convolution} : between(1, 9), function = between(0, 9);
    const ptrdiff_t kind = drawn > MeanPool ? drawn + 2 : drawn;
    const bool convolves = kind == Convolution, has_windows = kind <= MeanPool,
               sums_channels = convolves || kind == Grouped;
    const bool one_group = kind != Grouped && kind != Shuffle && (!convolves || maybe());
    const ptrdiff_t images = between(1, 3),
                    groups = one_group         ? 1
                             : kind == Grouped ? between(16, 40)
                                               : between(2, 5),
                    most = one_group ? 300 : 40, power = ptrdiff_t{1} << between(0, 3),
                    size = kind == Grouped ? between(1, power)
                           : maybe()       ? between(1, 40)
                                           : between(most / 3, most),
                    own = kind == Grouped ? power
                          : convolves     ? between(1, 100)
                                          : size,
                    unit = convolves ? core("convolution_block", {own}) : 1;
    const ptrdiff_t channels = groups * size, filters = groups * own;
    const bool pools = kind == MaxPool || kind == MeanPool;
    const auto windows = [&](ptrdiff_t most) {
        for (;;) {  // every window of a pooling has a number
            const Axis a = has_windows ? axis(pools ? 3 : 5, pools ? 1 : 2) : Axis{between(1, most), 0, 1, 1, 1, 0};
            if (!pools || (a.pad < a.kernel && a.place(a.result - 1, 0) < a.size)) return a;
        }
    };
    const Axis y = windows(6), x = windows(30);
    const ptrdiff_t rows = has_windows ? y.result : y.size, columns = has_windows ? x.result : x.size;
    const double low = function == 2 ? -0.5 : 0.25, high = 0.75;
    describe(kind, function, images, size, own, groups, y.size, x.size, y.kernel, x.kernel);
    const ptrdiff_t blocks = groups * ((own + unit - 1) / unit), pixels = images * rows * columns;
    const ptrdiff_t gap = channels + 3 * maybe(), result_gap = filters + 5 * maybe(), other_gap = filters + 2 * maybe();
    const ptrdiff_t row_gap = columns * result_gap + (convolves ? 7 * maybe() : 0),
                    image_gap = rows * row_gap + (convolves ? 9 * maybe() : 0);
    const Buffer &data = round.filled(images * y.size * x.size * gap), &bias = round.filled(blocks * unit);
    const Buffer &weight = round.filled(blocks * y.kernel * x.kernel * (sums_channels ? size : 1) * unit);
    const bool sums = kind == Sum || kind == Scale || (kind <= Grouped && maybe());
    const Buffer *other = sums ? &round.filled((kind == Scale ? images : pixels) * other_gap) : nullptr;
    if (between(0, 3) == 0) data.spoil();
    const auto tap = [&](ptrdiff_t f, ptrdiff_t k, ptrdiff_t l, ptrdiff_t c) {
        const ptrdiff_t place = k * x.kernel + l;
        if (!convolves) return weight[(c * y.kernel * x.kernel + place) * filters + f];
        const ptrdiff_t block = f / own * (blocks / groups) + f % own / unit;
        return weight[((block * y.kernel * x.kernel + place) * size + c) * unit + f % own % unit];
    };
    const bool with_pad = maybe();
    Doubles wanted;
    for (ptrdiff_t n = 0, pixel = 0; n < images; ++n)
        for (ptrdiff_t i = 0; i < rows; ++i)
            for (ptrdiff_t j = 0; j < columns; ++j, ++pixel)
                for (ptrdiff_t f = 0; f < filters; ++f) {
                    double sum = kind == MaxPool ? -kInfinity : 0.0;
                    if (kind <= Grouped) sum = bias[convolves ? f / own * (blocks / groups) * unit + f % own : f];
                    ptrdiff_t count = 0;
                    for (ptrdiff_t k = 0; k < y.kernel; ++k)
                        for (ptrdiff_t l = 0; l < x.kernel; ++l) {
                            const ptrdiff_t row = has_windows ? y.place(i, k) : i,
                                            column = has_windows ? x.place(j, l) : j;
                            if (!y.has(row) || !x.has(column)) continue;
                            ++count;
                            const ptrdiff_t at = ((n * y.size + row) * x.size + column) * gap;
                            const ptrdiff_t first = sums_channels     ? f / own * size
                                                    : kind == Shuffle ? f % groups * size + f / groups
                                                                      : f;
                            for (ptrdiff_t c = 0; c < (sums_channels ? size : 1); ++c) {
                                const double now = data[at + first + c];
                                if (kind == MaxPool) {
                                    sum = std::isnan(sum) || sum > now ? sum : now;
                                } else {
                                    sum += kind <= Grouped ? now * tap(f, k, l, c) : now;
                                }
                            }
                        }
                    if (kind == MeanPool) sum /= static_cast<double>(with_pad ? y.kernel * x.kernel : count);
                    if (kind == Affine) sum = sum * weight[f] + bias[f];
                    if (kind == Scale) sum *= (*other)[n * other_gap + f];
                    if (kind != Scale && other) sum += (*other)[pixel * other_gap + f];
                    wanted.push_back(kind == Shuffle ? sum : applied(function, low, high, sum));
                }
    std::vector<std::int64_t> numbers = {kind, images, size, own, groups};
    numbers.insert(numbers.end(), {y.size, rows, y.kernel, y.stride, y.dilate, y.pad});
    numbers.insert(numbers.end(), {x.size, columns, x.kernel, x.stride, x.dilate, x.pad});
    numbers.insert(numbers.end(),
                   {convolves ? unit : with_pad, function, 0, 0, gap, other_gap, result_gap, row_gap, image_gap});
    numbers.insert(numbers.end(), {0, 1, 2, 3, 4});
    std::memcpy(&numbers[19], &low, sizeof low);
    std::memcpy(&numbers[20], &high, sizeof high);
    const std::string row(reinterpret_cast<const char *>(numbers.data()), numbers.size() * sizeof(std::int64_t));
    const Buffer &one = round.empty(images * image_gap), &two = round.empty(images * image_gap),
                 &dense = round.empty(pixels * filters);
    core("run_layers", {row, 1, data, weight, bias, other, one});
    core("run_layers", {row, between(2, 8), data, weight, bias, other, two});
    same_bits("result", one, two);
    for (ptrdiff_t i = 0; i < images * image_gap; ++i) {
        const ptrdiff_t down = i % image_gap / row_gap, right = i % image_gap % row_gap / result_gap,
                        filter = i % image_gap % row_gap % result_gap;
        if (down < rows && right < columns && filter < filters) {
            dense[((i / image_gap * rows + down) * columns + right) * filters + filter] = one[i];
        } else if (!std::isnan(one[i])) {
            throw std::runtime_error("memory between pixels was written");
        }
    }
    expect("result", dense, wanted, near_sum((sums_channels ? size : 1) * y.kernel * x.kernel));
    if (convolves && other && other_gap == filters && image_gap == rows * columns * filters) {
        core("run_layers", {row, 1, data, weight, bias, other, other});
        same_bits("result over the other summand", one, *other);
    }
    round.check_marks();
}

// ---- normalisation, softmax, checks

void norm(const Core &core) {
    Round round;
    const ptrdiff_t pixels = maybe() ? 1 : between(16, between(0, 3) ? 100 : 10000);
    const ptrdiff_t images = pixels > 1 ? between(1, 3) : between(5, between(0, 3) ? 60 : 2000);
    const ptrdiff_t channels = pixels > 1 ? between(1, 6) : between(4, 140);
    const ptrdiff_t rows = images * pixels, size = rows * channels;
    const auto place = [&](ptrdiff_t r, ptrdiff_t c) { return (r / pixels * channels + c) * pixels + r % pixels; };
    const bool nan_stays = maybe(), keeps = maybe();
    const double eps = 1e-5, momentum = 0.9;
    const Buffer &x = round.filled(size), *other = round.optional(size), *gamma = round.optional(channels),
                 &beta = round.filled(channels);
    const Buffer &mean = round.filled(channels), &var = round.filled(channels), &grad = round.filled(size);
    const ptrdiff_t end = between(0, other ? 1 : 2);  // none, ReLU, SiLU
    const bool relu = end == 1;
    const double limit = relu && !other && maybe() ? 0.5 : kInfinity;
    describe(rows, channels, pixels, end, limit);
    const bool spoiled = relu && other && maybe();
    if (spoiled) (*other)[5] = kNan;
    const auto count = [&](ptrdiff_t parts) { return static_cast<std::size_t>(parts * channels); };
    Doubles means(count(1)), vars(count(1)), out(count(rows)), for_x(count(rows)), for_other(count(rows)),
        for_gamma(count(1)), for_beta(count(1)), new_mean, new_var;
    for (ptrdiff_t c = 0; c < channels; ++c) {
        const std::size_t at_c = static_cast<std::size_t>(c);
        for (ptrdiff_t r = 0; r < rows; ++r) means[at_c] += double(x[place(r, c)]) / rows;
        for (ptrdiff_t r = 0; r < rows; ++r) vars[at_c] += std::pow(x[place(r, c)] - means[at_c], 2) / rows;
        const double scale = 1 / std::sqrt(vars[at_c] + eps), factor = gamma ? (*gamma)[c] : 1.0;
        for (ptrdiff_t r = 0; r < rows; ++r) {
            const ptrdiff_t i = place(r, c);
            const double normal = (x[i] - means[at_c]) * scale, sum = normal * factor + beta[c] + at(other, i);
            // either side of a step is right
            if (relu && std::min(std::abs(sum), std::abs(sum - limit)) < 1e-5) grad[i] = 0;
            const double gate = 1 / (1 + std::exp(-sum));
            out[static_cast<std::size_t>(i)] = end == 2 ? sum * gate : relu && sum < 0 ? 0 : sum > limit ? limit : sum;
            const double head = end == 2                             ? grad[i] * gate * (1 + sum * (1 - gate))
                                : !relu || (sum > 0 && sum <= limit) ? grad[i]
                                : std::isnan(sum)                    ? (nan_stays ? kNan : grad[i])
                                                                     : 0.0;
            for_other[static_cast<std::size_t>(i)] = head;
            for_beta[at_c] += head;
            for_gamma[at_c] += head * normal;
        }
        for (ptrdiff_t r = 0; r < rows; ++r) {
            const ptrdiff_t i = place(r, c);
            const double normal = (x[i] - means[at_c]) * scale;
            for_x[static_cast<std::size_t>(i)] =
                (for_other[static_cast<std::size_t>(i)] - (for_beta[at_c] + normal * for_gamma[at_c]) / rows) * factor *
                scale;
        }
        new_mean.push_back(momentum * mean[c] + (1 - momentum) * means[at_c]);
        new_var.push_back(momentum * var[c] + (1 - momentum) * vars[at_c]);
    }
    std::vector<const Buffer *> results[2];
    for (auto &made : results) {
        const ptrdiff_t threads = &made == results ? 1 : between(2, 4);
        const Buffer &result = round.empty(size), &statistics = round.empty(4 * channels),
                     &mean_after = round.empty(channels), &var_after = round.empty(channels);
        const Buffer &x_grad = round.empty(size), *other_grad = keeps ? &round.empty(size) : nullptr,
                     &gamma_grad = round.empty(channels), &beta_grad = round.empty(channels);
        core("norm_forward", {rows, channels, pixels, threads, end, limit, eps, momentum, x, other, gamma, beta, mean,
                              var, result, statistics, mean_after, var_after});
        core("norm_backward", {rows, channels, pixels, threads, end, limit, nan_stays, grad, x,
                               other ? &result : nullptr, statistics, other_grad, x_grad, gamma_grad, beta_grad});
        made = {&result, &mean_after, &var_after, &x_grad, &gamma_grad, &beta_grad};
        if (other_grad) made.push_back(other_grad);
    }
    const Doubles *wanted[] = {&out, &new_mean, &new_var, &for_x, &for_gamma, &for_beta, &for_other};
    const char *names[] = {"result",
                           "mean",
                           "variance",
                           "gradient of x",
                           "gradient of gamma",
                           "gradient of beta",
                           "gradient of the summand"};
    for (std::size_t i = 0; i < results[0].size(); ++i) {
        double largest = 1;
        for (const double each : *wanted[i])
            largest = std::isfinite(each) ? std::max(largest, std::abs(each)) : largest;
        expect(names[i], *results[0][i], *wanted[i], (i < 3 ? 5e-6 : 5e-5) * largest);
        same_bits(names[i], *results[0][i], *results[1][i]);
    }
    round.check_marks();
}

void row_norm(const Core &core) {
    Round round;
    const bool own = maybe();  // each number has a gamma of its own
    const ptrdiff_t groups = between(1, 5), length = own ? 1 : between(4, between(0, 3) ? 60 : 20000);
    const ptrdiff_t parts = own ? between(4, 140) : between(1, 6), numbers = parts * length;
    const ptrdiff_t rows = groups * between(1, length > 60 ? 3 : between(0, 3) ? 20 : 300), size = rows * numbers;
    const ptrdiff_t gammas = groups * parts;
    describe(rows, parts, length, groups);
    const double eps = 1e-3;
    const Buffer &x = round.filled(size), &grad = round.filled(size), &gamma = round.filled(gammas),
                 &beta = round.filled(gammas);
    const auto count = [](ptrdiff_t of) { return static_cast<std::size_t>(of); };
    Doubles statistics(count(2 * rows)), out(count(size)), for_x(count(size)), for_gamma(count(gammas)),
        for_beta(count(gammas));
    for (ptrdiff_t r = 0; r < rows; ++r) {
        const float *const row = x.begin() + r * numbers, *const heads = grad.begin() + r * numbers;
        const auto place = [&](ptrdiff_t i) { return r % groups * parts + i / length; };
        double mean = 0, variance = 0, sum = 0, products = 0;
        for (ptrdiff_t i = 0; i < numbers; ++i) mean += row[i] / double(numbers);
        for (ptrdiff_t i = 0; i < numbers; ++i) variance += std::pow(row[i] - mean, 2) / double(numbers);
        const double scale = 1 / std::sqrt(variance + eps);
        for (ptrdiff_t i = 0; i < numbers; ++i) {
            const double normal = (row[i] - mean) * scale, head = double(heads[i]) * gamma[place(i)];
            out[count(r * numbers + i)] = normal * gamma[place(i)] + beta[place(i)];
            for_gamma[count(place(i))] += heads[i] * normal;
            for_beta[count(place(i))] += heads[i];
            sum += head;
            products += head * normal;
        }
        for (ptrdiff_t i = 0; i < numbers; ++i) {
            const double normal = (row[i] - mean) * scale, head = double(heads[i]) * gamma[place(i)];
            for_x[count(r * numbers + i)] = (head - (sum + normal * products) / double(numbers)) * scale;
        }
        statistics[count(r)] = mean;
        statistics[count(rows + r)] = scale;
    }
    const Doubles *wanted[] = {&out, &statistics, &for_x, &for_gamma, &for_beta};
    const char *names[] = {"result", "statistics", "gradient of x", "gradient of gamma", "gradient of beta"};
    std::vector<const Buffer *> results[2];
    for (auto &made : results) {
        const ptrdiff_t threads = &made == results ? 1 : between(2, 4);
        const Buffer &result = round.empty(size), &found = round.empty(2 * rows), &x_grad = round.empty(size),
                     &gamma_grad = round.empty(gammas), &beta_grad = round.empty(gammas);
        core("row_norm_forward", {rows, parts, length, groups, threads, eps, x, gamma, beta, result, found});
        core("row_norm_backward",
             {rows, parts, length, groups, threads, grad, x, gamma, found, x_grad, gamma_grad, beta_grad});
        made = {&result, &found, &x_grad, &gamma_grad, &beta_grad};
    }
    for (std::size_t i = 0; i < results[0].size(); ++i) {
        double largest = 1;
        for (const double each : *wanted[i]) largest = std::max(largest, std::abs(each));
        const double edge = i < 2 ? 5e-6 : i == 2 ? 2e-5 : near_sum(size / gammas);
        expect(names[i], *results[0][i], *wanted[i], edge * largest);
        same_bits(names[i], *results[0][i], *results[1][i]);
    }
    round.check_marks();
}

void softmax(const Core &core) {
    Round round;
    const ptrdiff_t rows = between(1, 40), classes = between(1, 16);
    describe(rows, classes);
    const Buffer &scores = round.filled(rows * classes), &result = round.empty(rows * classes);
    const float scale = std::array<float, 3>{1.0f, 40.0f, 1e30f}[static_cast<std::size_t>(between(0, 2))];
    for (float &each : scores) each *= scale;
    for (ptrdiff_t odd = between(0, 3); odd--;)
        scores[between(0, scores.size() - 1)] =
            std::array<float, 4>{kNan, kInfinity, -kInfinity, -200.0f}[static_cast<std::size_t>(between(0, 3))];
    if (between(0, 3) == 0) std::fill(scores.begin(), scores.begin() + classes, -kInfinity);
    const bool is_log = maybe();
    core("softmax", {rows, classes, scores, result, is_log});
    Doubles wanted;
    for (ptrdiff_t r = 0; r < rows; ++r) {
        const float *row = scores.begin() + r * classes;
        const double most = *std::max_element(row, row + classes);
        double total = 0;
        bool bad = !std::isfinite(most);
        for (ptrdiff_t c = 0; c < classes; ++c) {
            bad = bad || std::isnan(row[c]) || row[c] == kInfinity;
            total += std::exp(row[c] - most);
        }
        for (ptrdiff_t c = 0; c < classes; ++c) {
            const double below = row[c] - most;
            wanted.push_back(bad ? std::nan("") : is_log ? below - std::log(total) : std::exp(below) / total);
        }
    }
    expect("result", result, wanted, 5e-6);
    round.check_marks();
}

void groups(const Core &core) {
    const ptrdiff_t count = between(0, maybe() ? 20 : 3000), range = between(1, 400);
    describe(count, range);
    std::vector<std::int64_t> numbers, given;
    for (ptrdiff_t i = 0; i < count; ++i) {
        numbers.push_back(between(-range, range) * (between(0, 9) ? 1 : 1LL << 40));
        given.push_back(between(0, 1000));
    }
    const bool with_given = maybe();
    std::vector<std::int64_t> distinct(numbers.size() + 1), starts(distinct), places(distinct), order(numbers.size());
    const ptrdiff_t found = core("group_numbers", {Argument(numbers), count, with_given ? Argument(given) : Argument(0),
                                                   Argument(distinct), Argument(starts), Argument(places)});
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return numbers[static_cast<std::size_t>(a)] < numbers[static_cast<std::size_t>(b)];
    });
    std::size_t group = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
        const std::size_t from = static_cast<std::size_t>(order[i]);
        if (i == 0 || numbers[from] != numbers[static_cast<std::size_t>(order[i - 1])]) {
            if (distinct[group] != numbers[from] || starts[group] != static_cast<std::int64_t>(i))
                throw std::runtime_error("another group");
            ++group;
        }
        if (places[i] != (with_given ? given[from] : order[i])) throw std::runtime_error("another place");
    }
    if (static_cast<std::size_t>(found) != group) throw std::runtime_error("another number of groups");
}

// ---- recurrence

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Cells in the order of the kernel's.
enum { kRelu, kTanh, kLstm, kGru };

void recurrence(const Core &core) {
    Round round;
    const ptrdiff_t cell_kind = between(0, 3), number = cell_kind == kLstm ? 4 : cell_kind == kGru ? 3 : 1;
    const ptrdiff_t steps = between(1, 6), rows = between(1, 9), units = between(1, 36), features = between(1, 20);
    const bool by_row = maybe();
    const ptrdiff_t step_gap = (by_row ? 1 : rows) * (maybe() ? 1 : -1), row_gap = by_row ? steps : 1,
                    begin = step_gap < 0 ? (1 - steps) * step_gap : 0, positions = steps * rows, all = number * units;
    describe(cell_kind, steps, rows, units, features);
    const Buffer &data = round.filled(positions * features), &w_in = round.filled(all * features),
                 *b_in = round.optional(all);
    const Buffer &weight = round.filled(all * units), *bias = round.optional(all),
                 &hidden_begin = round.filled(rows * units), &cell_begin = round.filled(rows * units);
    const Buffer &gates = round.empty(positions * all), *for_hidden = round.optional(positions * units);
    if (cell_kind == kRelu)  // whose states would grow
        for (float &each : weight) each /= static_cast<float>(units);
    if ((cell_kind == kTanh || cell_kind == kLstm) && between(0, 9) == 0)  // whose states are at most 1
        for (float &each : hidden_begin) each *= 1e30f;
    const auto size = [](ptrdiff_t number) { return static_cast<std::size_t>(number); };
    Doubles activations(size(positions * all)), hidden(size(positions * units)), cells(hidden), before(hidden),
        last(hidden_begin.begin(), hidden_begin.end()), cell(cell_begin.begin(), cell_begin.end());
    for (ptrdiff_t t = 0; t < steps; ++t) {
        const Doubles previous = last;
        for (ptrdiff_t n = 0; n < rows; ++n) {
            const ptrdiff_t p = begin + t * step_gap + n * row_gap;
            Doubles maps(size(all)), of_state(size(all));
            for (ptrdiff_t g = 0; g < all; ++g) {
                maps[size(g)] = at(b_in, g);
                of_state[size(g)] = at(bias, g);
                for (ptrdiff_t k = 0; k < features; ++k)
                    maps[size(g)] += double(data[p * features + k]) * w_in[g * features + k];
                for (ptrdiff_t k = 0; k < units; ++k)
                    of_state[size(g)] += previous[size(n * units + k)] * weight[g * units + k];
                gates[p * all + g] = static_cast<float>(maps[size(g)]);
            }
            for (ptrdiff_t u = 0; u < units; ++u) {
                double *a = &activations[size(p * all + u)];
                const auto sum = [&](ptrdiff_t g) { return maps[size(g * units + u)] + of_state[size(g * units + u)]; };
                double &c = cell[size(n * units + u)], &h = last[size(n * units + u)];
                before[size(p * units + u)] = h;
                if (cell_kind == kLstm) {
                    for (ptrdiff_t g = 0; g < 4; ++g) a[g * units] = g == 2 ? std::tanh(sum(g)) : sigmoid(sum(g));
                    c = a[units] * c + a[0] * a[2 * units];
                    h = a[3 * units] * std::tanh(c);
                } else if (cell_kind == kGru) {
                    c = of_state[size(2 * units + u)];
                    for (ptrdiff_t g = 0; g < 2; ++g) a[g * units] = sigmoid(sum(g));
                    a[2 * units] = std::tanh(maps[size(2 * units + u)] + a[0] * c);
                    h = a[2 * units] + a[units] * (h - a[2 * units]);
                } else {
                    a[0] = h = cell_kind == kTanh ? std::tanh(sum(0)) : std::max(sum(0), 0.0);
                }
                hidden[size(p * units + u)] = h;
                cells[size(p * units + u)] = c;
            }
        }
    }
    const double tolerance = 3e-5;
    const std::vector<Argument> layout = {steps, rows, units, step_gap, row_gap, between(1, 2), cell_kind};
    const auto with = [](std::vector<Argument> first, const std::vector<Argument> &rest) {
        for (const Argument &each : first) Py_INCREF(each.made);
        first.insert(first.end(), rest.begin(), rest.end());
        return first;
    };
    const Buffer &whole = round.empty(positions * units), &whole_last = round.empty(rows * units),
                 &whole_cell = round.empty(rows * units);
    const Buffer &packed = round.empty(core("packed_cell_size", {number, features, units}));
    core("pack_cell", {number, features, units, w_in, weight, packed});
    core("recurrent", with(layout, {features, 1, data, hidden_begin, cell_begin, whole, whole_last, whole_cell, packed,
                                    b_in, bias}));
    expect("hidden states in one call", whole, hidden, tolerance);
    expect("last state in one call", whole_last, last, tolerance);
    const Buffer &states = round.empty(positions * units), &kept = round.empty(positions * units),
                 &old = round.empty(positions * units), &end = round.empty(rows * units),
                 &end_cell = round.empty(rows * units);
    core("recurrent_forward",
         with(layout, {weight, bias, hidden_begin, cell_begin, gates, states, kept, old, end, end_cell}));
    expect("hidden states", states, hidden, tolerance);
    expect("states before", old, before, tolerance);
    expect("last state", end, last, tolerance);
    if (number > 1) {
        expect("cells", kept, cells, tolerance);
        expect("activations", gates, activations, tolerance);
    }
    if (cell_kind == kLstm) {
        expect("last cell in one call", whole_cell, cell, tolerance);
        expect("last cell", end_cell, cell, tolerance);
    }

    const Buffer &for_gates = round.empty(positions * all), &for_maps = round.empty(positions * all),
                 &for_begin = round.filled(rows * units), &for_cell = round.filled(rows * units);
    if (cell_kind == kGru)
        for (float &each : for_cell) each = 0.0f;
    Doubles to_gates(size(positions * all)), to_maps(size(positions * all)),
        to_hidden(for_begin.begin(), for_begin.end()), to_cell(for_cell.begin(), for_cell.end());
    for (ptrdiff_t t = steps; t--;) {
        Doubles next(to_hidden.size());
        for (ptrdiff_t n = 0; n < rows; ++n) {
            const ptrdiff_t p = begin + t * step_gap + n * row_gap;
            for (ptrdiff_t u = 0; u < units; ++u) {
                const double *a = &activations[size(p * all + u)],
                             old_cell = t ? cells[size((p - step_gap) * units + u)] : cell_begin[n * units + u];
                const double dh = to_hidden[size(n * units + u)] + at(for_hidden, p * units + u);
                double *to = &to_gates[size(p * all + u)], *to_input = &to_maps[size(p * all + u)];
                if (cell_kind == kLstm) {
                    const double i = a[0], f = a[units], g = a[2 * units], o = a[3 * units],
                                 bent = std::tanh(cells[size(p * units + u)]);
                    const double dc = to_cell[size(n * units + u)] + dh * o * (1 - bent * bent);
                    to[0] = dc * g * i * (1 - i);
                    to[units] = dc * old_cell * f * (1 - f);
                    to[2 * units] = dc * i * (1 - g * g);
                    to[3 * units] = dh * bent * o * (1 - o);
                    to_cell[size(n * units + u)] = dc * f;
                } else if (cell_kind == kGru) {
                    const double r = a[0], z = a[units], fresh = a[2 * units], d = dh * (1 - z) * (1 - fresh * fresh);
                    to[0] = to_input[0] = d * cells[size(p * units + u)] * r * (1 - r);
                    to[units] = to_input[units] = dh * (before[size(p * units + u)] - fresh) * z * (1 - z);
                    to[2 * units] = d * r;
                    to_input[2 * units] = d;
                    next[size(n * units + u)] += dh * z;
                } else {
                    to[0] = cell_kind == kTanh ? dh * (1 - a[0] * a[0]) : a[0] > 0 ? dh : 0;
                }
            }
            for (ptrdiff_t g = 0; g < all; ++g) {
                const double d = to_gates[size(p * all + g)];
                for (ptrdiff_t k = 0; k < units; ++k) next[size(n * units + k)] += d * weight[g * units + k];
            }
        }
        to_hidden = next;
    }
    core("recurrent_backward", with(layout, {weight, cell_begin, number > 1 ? gates : states, kept, states, old,
                                             for_hidden, for_gates, for_maps, for_begin, for_cell}));
    for (const Argument &each : layout) Py_DECREF(each.made);
    expect("gradient of the states' map", for_gates, to_gates, 1e-4);
    if (cell_kind == kGru) expect("gradient of the input's map", for_maps, to_maps, 1e-4);
    expect("gradient of the first state", for_begin, to_hidden, 1e-4);
    if (cell_kind == kLstm) expect("gradient of the first cell", for_cell, to_cell, 1e-4);
    round.check_marks();
}

template <void (*check)(const Core &)>
PyObject *run(PyObject *, PyObject *arguments) {
    PyObject *core;
    unsigned long long seed;
    int rounds;
    if (!PyArg_ParseTuple(arguments, "OKi", &core, &seed, &rounds)) return nullptr;
    generator.seed(seed);
    for (int round = 0; round < rounds; ++round) {
        try {
            check(Core(core));
        } catch (const PythonError &) {
            return nullptr;
        } catch (const std::exception &error) {
            PyErr_Format(PyExc_AssertionError, "round %d, sizes %s: %s", round, described.c_str(), error.what());
            return nullptr;
        }
    }
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"multiply", run<multiply>, METH_VARARGS, nullptr},
    {"dense", run<dense>, METH_VARARGS, nullptr},
    {"unfold", run<windows>, METH_VARARGS, nullptr},
    {"change_layouts", run<layouts>, METH_VARARGS, nullptr},
    {"conv3x3", run<conv3x3>, METH_VARARGS, nullptr},
    {"conv3x3_gradients", run<conv3x3_gradients>, METH_VARARGS, nullptr},
    {"convolve", run<convolve>, METH_VARARGS, nullptr},
    {"run_layers", run<run_layers>, METH_VARARGS, nullptr},
    {"norm_forward", run<norm>, METH_VARARGS, nullptr},
    {"row_norm_forward", run<row_norm>, METH_VARARGS, nullptr},
    {"softmax", run<softmax>, METH_VARARGS, nullptr},
    {"group_numbers", run<groups>, METH_VARARGS, nullptr},
    {"recurrent", run<recurrence>, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "dpm_test_kernels", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_dpm_test_kernels() { return PyModule_Create(&definition); }
