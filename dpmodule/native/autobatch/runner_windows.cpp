// Sliding windows: convolutions, as products with all windows, and pooling.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/image_layers.hpp"
#include "rows.hpp"
#include "runner.hpp"

namespace dpmodule::autobatch {
namespace {

struct Windows {
    explicit Windows(const Signature &s) {
        int *const all[] = {&height, &width, &channels, &tall,       &wide,      &down,
                            &right,  &top,   &left,     &out_height, &out_width, &filters};
        for (std::size_t i = 0; i < std::size(all); i++) *all[i] = s.params[i];
        places = out_height * out_width;
        size = tall * wide * channels;
        pixels = height * width * channels;
        batch = s.width / (places * filters);
    }
    int height, width, channels, tall, wide, down, right, top, left, out_height, out_width, filters;
    int places, size;   // windows per image, elements per window
    int pixels, batch;  // elements per image, images per node

    // Calls body(position in the window, position in the image, count) for the part of each window row inside the
    // image.
    template <class F>
    void each(int place, F body) const {
        const int y0 = place / out_width * down - top, x0 = place % out_width * right - left;
        const int first = std::max(0, -x0), last = std::min(wide, width - x0);
        for (int i = std::max(0, -y0); i < tall && y0 + i < height; i++) {
            body((i * wide + first) * channels, ((y0 + i) * width + x0 + first) * channels, (last - first) * channels);
        }
    }
    // The windows of an image, with zeros outside the image.
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

constexpr int most_numbers = 1 << 20;  // elements of the windows in one product

// An operand of many nodes, image by image; without a minibatch it is used for all images of its node.
struct Images {
    const int *nodes;
    int images, step;  // per node, and their stride
    int node(int image) const { return nodes[image / images]; }
    int at(int image) const { return image % images * step; }
    float *in(const std::vector<float *> &pointers, int image) const { return pointers[node(image)] + at(image); }
    bool is_same(int image, int other) const { return node(image) == node(other) && at(image) == at(other); }
};

// Calls body(first, count) for consecutive images with the same filters and biases.
template <class F>
void by_filters(int images, int at_once, const Images &filters, const Images &biases, F body) {
    for (int first = 0, last; first < images; first = last) {
        last = first + 1;
        while (last < images && last - first < at_once && filters.is_same(last, first) && biases.is_same(last, first))
            last++;
        body(first, last - first);
    }
}

}  // namespace

void Runner::convolve(const Work &work, const Step &step, const Signature &s) {
    const Windows w(s);
    const auto operand = [&](int k, int size) {
        return Images{work.run->nodes(k) + work.first, w.batch, s.widths[k] == size ? 0 : size};
    };
    const Images x = operand(0, w.pixels), f = operand(1, w.size * w.filters),
                 biases = s.nargs > 2 ? operand(2, w.filters) : f;
    const int images = work.count * w.batch, at_once = std::clamp(most_numbers / (w.places * w.size), 1, images),
              out = w.places * w.filters;
    float *const y = value_of(work, step).at, *const spread =
                                                  scratch_.take(static_cast<std::size_t>(at_once) * w.places * w.size);
    float *const upright = s.kind ? scratch_.take(static_cast<std::size_t>(at_once) * out) : nullptr;
    by_filters(images, at_once, f, biases, [&](int first, int count) {
        for (int i = 0; i < count; i++)
            w.spread(x.in(graph_.value, first + i), spread + static_cast<std::ptrdiff_t>(i) * w.places * w.size);
        const float *bias = s.nargs > 2 ? biases.in(graph_.value, first) : nullptr;
        float *const to = y + static_cast<std::ptrdiff_t>(first) * out;
        kernels().product({count * w.places, w.filters, w.size, spread, w.size, 1, f.in(graph_.value, first),
                           Layout::Rows, w.filters, upright ? upright : to, w.filters, bias, false});
        for (int i = 0; upright && i < count; i++) turn(w.places, w.filters, upright + i * out, to + i * out);
    });
}

void Runner::convolve_back(const Work &work, const Step &step, const Signature &s) {
    const Windows w(s);
    const auto operand = [&](int k, int size) {
        return Images{work.run->nodes(k) + work.first, w.batch, s.widths[k] == size ? 0 : size};
    };
    const Images x = operand(0, w.pixels), f = operand(1, w.size * w.filters),
                 biases = s.nargs > 2 ? operand(2, w.filters) : f;
    const int images = work.count * w.batch, at_once = std::clamp(most_numbers / (w.places * w.size), 1, images),
              out = w.places * w.filters;
    float *const dy = grad_of(work, step).at, *const spread =
                                                  scratch_.take(static_cast<std::size_t>(at_once) * w.places * w.size);
    float *const upright = s.kind ? scratch_.take(static_cast<std::size_t>(at_once) * out) : nullptr;
    float *const part = scratch_.take(std::max({w.pixels, w.size * w.filters, w.filters}));
    float *const packed = scratch_.take(packed_size(kernels(), w.filters, w.size));
    by_filters(images, at_once, f, biases, [&](int first, int count) {
        const int rows = count * w.places;
        float *d = dy + static_cast<std::ptrdiff_t>(first) * out;
        for (int i = 0; upright && i < count; i++) turn(w.filters, w.places, d + i * out, upright + i * out);
        if (upright) d = upright;
        const int filters = f.node(first);
        if (graph_.grad[filters]) {
            for (int i = 0; i < count; i++)
                w.spread(x.in(graph_.value, first + i), spread + static_cast<std::ptrdiff_t>(i) * w.places * w.size);
            kernels().product({w.size, w.filters, rows, spread, 1, w.size, d, Layout::Rows, w.filters, part, w.filters,
                               nullptr, false});
            scatter_part(graph_, filters, f.at(first), w.size * w.filters, part);
        }
        if (s.nargs > 2 && graph_.grad[biases.node(first)]) {
            std::memset(part, 0, sizeof(float) * w.filters);
            kernels().sum_rows(rows, w.filters, part, {d, w.filters}, nullptr);
            scatter_part(graph_, biases.node(first), biases.at(first), w.filters, part);
        }
        const auto is_wanted = [&](int image) { return graph_.grad[x.node(image)] != nullptr; };
        bool any = false;
        for (int i = 0; i < count && !any; i++) any = is_wanted(first + i);
        if (!any) return;
        pack(kernels(), w.filters, w.size, f.in(graph_.value, first), w.filters, true, packed);
        kernels().product(
            {rows, w.size, w.filters, d, w.filters, 1, packed, Layout::Packed, 0, spread, w.size, nullptr, false});
        for (int i = 0; i < count; i++) {
            if (!is_wanted(first + i)) continue;
            std::memset(part, 0, sizeof(float) * w.pixels);
            w.gather(spread + static_cast<std::ptrdiff_t>(i) * w.places * w.size, part);
            scatter_part(graph_, x.node(first + i), x.at(first + i), w.pixels, part);
        }
    });
}

void Runner::pool(const Work &work, const Step &step, const Signature &s) {
    const Windows w(s);
    const Rows from = values(work, step.in[0]);
    const std::ptrdiff_t channels = w.channels, windows = std::ptrdiff_t{w.batch} * w.out_height * w.out_width;
    ImageLayer layer{};
    layer.kind = LayerKind::MaxPool;
    layer.images = w.batch;
    layer.channels = layer.filters = layer.data_gap = layer.result_gap = channels;
    layer.y = {w.height, w.out_height, w.tall, w.down, 1, w.top};
    layer.x = {w.width, w.out_width, w.wide, w.right, 1, w.left};
    layer.result = value_of(work, step).at;
    for (int i = 0; i < work.count; i++, layer.result += s.width) {
        layer.data = from[i];
        compute_pixels(layer, 0, windows);
    }
}

// The first maximum of a window gets the gradient.
void Runner::pool_back(const Work &work, const Step &step, const Signature &s) {
    Target into;
    if (!target(work, step.in[0], s.widths[0], into)) return;
    const Windows w(s);
    const Rows from = values(work, step.in[0]);
    const float *value = value_of(work, step).at, *d = grad_of(work, step).at;
    std::vector<int> found(w.channels);
    for (int i = 0; i < work.count && !into.add; i++)
        std::memset(into.at.at + i * into.at.stride, 0, sizeof(float) * s.widths[0]);
    for (int image = 0; image < work.count * w.batch; image++) {
        const int i = image / w.batch, at = image % w.batch * w.pixels;
        const float *x = from[i] + at;
        float *dx = into.at.at + i * into.at.stride + at;
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
