// What slides a window over an image: convolutions, as products with all windows side by side, and pooling.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "rows.hpp"
#include "runner.hpp"

namespace dpmodule::autobatch {
namespace {

struct Windows {
    Windows(const Signature &s, const Shape &out) : out_height(out.dims[0]), out_width(out.dims[1]) {
        int *const all[] = {&height, &width, &channels, &tall, &wide, &down, &right, &top, &left};
        for (std::size_t i = 0; i < std::size(all); i++) *all[i] = s.params[i];
        places = out_height * out_width;
        size = tall * wide * channels;
    }
    int height, width, channels, tall, wide, down, right, top, left, out_height, out_width;
    int places, size;   // windows of an image, numbers of a window

    // Calls body(where in the window, where in the image, how many numbers) for what is in the image of each row of a window.
    template <class F> void each(int place, F body) const {
        const int y0 = place / out_width * down - top, x0 = place % out_width * right - left;
        const int first = std::max(0, -x0), last = std::min(wide, width - x0);
        for (int i = std::max(0, -y0); i < tall && y0 + i < height; i++) {
            body((i * wide + first) * channels, ((y0 + i) * width + x0 + first) * channels, (last - first) * channels);
        }
    }
    // The windows of an image one after the other, zeros where they stick out.
    void spread(const float *image, float *to) const {
        std::memset(to, 0, sizeof(float) * places * size);
        for (int p = 0; p < places; p++, to += size) {
            each(p, [&](int at, int pixel, int numbers) {
                for (int k = 0; k < numbers; k++) to[at + k] = image[pixel + k];
            });
        }
    }
    void gather(const float *windows, float *image) const {
        for (int p = 0; p < places; p++, windows += size) {
            each(p, [&](int at, int pixel, int numbers) {
                for (int k = 0; k < numbers; k++) image[pixel + k] += windows[at + k];
            });
        }
    }
};

constexpr int most_numbers = 1 << 20;   // of the windows that one product takes

}  // namespace

// Calls body(first, count) for images in a row that have the same filters and biases.
template <class F> void Runner::each_filter(const Work &work, const Signature &s, int at_once, F body) {
    const auto node = [&](int k, int i) { return work.run->nodes(k)[work.first + i]; };
    for (int first = 0, last; first < work.count; first = last) {
        last = first + 1;
        const auto alike = [&] {
            for (int k = 1; k < s.nargs; k++) {
                if (node(k, last) != node(k, first)) return false;
            }
            return true;
        };
        while (last < work.count && last - first < at_once && alike()) last++;
        body(first, last - first);
    }
}

void Runner::convolve(const Work &work, const Step &step, const Signature &s) {
    const Windows w(s, graph_.signatures.shape(s.shape));
    const int filters = s.width / w.places, at_once = std::clamp(most_numbers / (w.places * w.size), 1, work.count);
    const Rows x = values(work, step.in[0]), f = values(work, step.in[1]);
    const Block y = value_of(work, step);
    float *spread = scratch_.take(static_cast<std::size_t>(at_once) * w.places * w.size);
    each_filter(work, s, at_once, [&](int first, int count) {
        for (int i = 0; i < count; i++) w.spread(x[first + i], spread + static_cast<std::ptrdiff_t>(i) * w.places * w.size);
        const float *bias = s.nargs > 2 ? values(work, step.in[2])[first] : nullptr;
        kernels().product({count * w.places, filters, w.size, spread, w.size, 1, f[first], Layout::Rows, filters,
                           y.at + first * y.stride, filters, bias, false});
    });
}

void Runner::convolve_back(const Work &work, const Step &step, const Signature &s) {
    const Windows w(s, graph_.signatures.shape(s.shape));
    const int filters = s.width / w.places, at_once = std::clamp(most_numbers / (w.places * w.size), 1, work.count);
    const Rows x = values(work, step.in[0]), f = values(work, step.in[1]);
    const Block dy = grad_of(work, step);
    const auto nodes = [&](int k, int i) { return work.run->nodes(k) + work.first + i; };
    float *spread = scratch_.take(static_cast<std::size_t>(at_once) * w.places * w.size);
    float *part = scratch_.take(std::max({s.widths[0], s.widths[1], filters}));
    float *packed = scratch_.take(packed_size(kernels(), filters, w.size));
    each_filter(work, s, at_once, [&](int first, int count) {
        const int rows = count * w.places;
        float *d = dy.at + first * dy.stride;
        if (any_grad(graph_, nodes(1, first), 1)) {
            for (int i = 0; i < count; i++) w.spread(x[first + i], spread + static_cast<std::ptrdiff_t>(i) * w.places * w.size);
            kernels().product({w.size, filters, rows, spread, 1, w.size, d, Layout::Rows, filters, part, filters, nullptr, false});
            scatter(graph_, nodes(1, first), 1, s.widths[1], {part, 0});
        }
        if (s.nargs > 2 && any_grad(graph_, nodes(2, first), 1)) {
            std::memset(part, 0, sizeof(float) * filters);
            kernels().sum_rows(rows, filters, part, {d, filters}, nullptr);
            scatter(graph_, nodes(2, first), 1, filters, {part, 0});
        }
        if (!any_grad(graph_, nodes(0, first), count)) return;
        pack(kernels(), filters, w.size, f[first], filters, true, packed);
        kernels().product({rows, w.size, filters, d, filters, 1, packed, Layout::Packed, 0, spread, w.size, nullptr, false});
        for (int i = 0; i < count; i++) {
            std::memset(part, 0, sizeof(float) * s.widths[0]);
            w.gather(spread + static_cast<std::ptrdiff_t>(i) * w.places * w.size, part);
            scatter(graph_, nodes(0, first + i), 1, s.widths[0], {part, 0});
        }
    });
}

void Runner::pool(const Work &work, const Step &step, const Signature &s) {
    const Windows w(s, graph_.signatures.shape(s.shape));
    const Rows from = values(work, step.in[0]);
    const Block y = value_of(work, step);
    for (int i = 0; i < work.count; i++) {
        const float *x = from[i];
        float *to = y.at + i * y.stride;
        std::fill_n(to, s.width, -INFINITY);
        for (int p = 0; p < w.places; p++, to += w.channels) {
            w.each(p, [&](int, int first, int numbers) {
                for (int pixel = first; pixel < first + numbers; pixel += w.channels) {
                    for (int c = 0; c < w.channels; c++) {
                        const float v = x[pixel + c];
                        to[c] = v > to[c] || v != v ? v : to[c];
                    }
                }
            });
        }
    }
}

// The first of the greatest numbers of a window has its gradient.
void Runner::pool_back(const Work &work, const Step &step, const Signature &s) {
    Target into;
    if (!target(work, step.in[0], s.widths[0], into)) return;
    const Windows w(s, graph_.signatures.shape(s.shape));
    const Rows from = values(work, step.in[0]);
    const Block y = value_of(work, step), dy = grad_of(work, step);
    std::vector<int> found(w.channels);
    for (int i = 0; i < work.count; i++) {
        const float *x = from[i], *value = y.at + i * y.stride, *d = dy.at + i * dy.stride;
        float *dx = into.at.at + i * into.at.stride;
        if (!into.add) std::memset(dx, 0, sizeof(float) * s.widths[0]);
        for (int p = 0; p < w.places; p++, value += w.channels, d += w.channels) {
            std::fill(found.begin(), found.end(), -1);
            w.each(p, [&](int, int first, int numbers) {
                for (int pixel = first; pixel < first + numbers; pixel += w.channels) {
                    for (int c = 0; c < w.channels; c++) {
                        if (found[c] < 0 && is_same(x[pixel + c], value[c])) found[c] = pixel + c;
                    }
                }
            });
            for (int c = 0; c < w.channels; c++) {
                if (found[c] >= 0) dx[found[c]] += d[c];
            }
        }
    }
    done(work, into, s.widths[0]);
}

}  // namespace dpmodule::autobatch
