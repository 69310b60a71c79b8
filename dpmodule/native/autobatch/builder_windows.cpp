// Windows that slide over images.
#include <algorithm>
#include <cstdint>

#include "builder.hpp"

namespace dpmodule::autobatch {
// Number of windows: those that fit, or one per stride.
int Builder::slide(Op op, const int *args, int count, Window window, bool is_narrow) {
    const std::vector<int> image = shape(args[0]).dims;
    int channels = padded(image, 2), filters = channels, batch = 1;
    for (int i = 0; i < count; i++) {
        const int own = shape(args[i]).batch;
        if (own != 1 && batch != 1 && own != batch) return -1;
        batch = std::max(batch, own);
    }
    if (image.size() < 2 || image.size() > 3) return -1;
    if (op == Op::Convolve) {
        std::vector<int> given = shape(args[1]).dims;
        if (is_narrow) given = {given[0], padded(given, 1), 1, padded(given, 2)};
        if (given.size() != 4 || given[2] != channels) return -1;
        window.tall = given[0], window.wide = given[1], filters = given[3];
        if (count > 2 && shape(args[2]).dims != std::vector<int>{filters}) return -1;
    }
    std::int64_t lengths[2], before[2];
    const int sizes[] = {window.tall, window.wide}, steps[] = {window.down, window.right};
    for (int k = 0; k < 2; k++) {
        if (window.is_valid && sizes[k] > image[k]) return -1;
        lengths[k] = window.is_valid ? (image[k] - sizes[k]) / steps[k] + 1 : (image[k] - 1) / steps[k] + 1;
        before[k] =
            window.is_valid ? 0 : std::max<std::int64_t>((lengths[k] - 1) * steps[k] + sizes[k] - image[k], 0) / 2;
    }
    constexpr std::int64_t most = 1 << 17;  // elements of all windows; larger ones are left to torch's threads
    const std::int64_t window_size = static_cast<std::int64_t>(window.tall) * window.wide;
    if (window_size > most || lengths[0] * lengths[1] > most || lengths[0] * lengths[1] * window_size > most / channels)
        return -1;
    std::vector<int> dims = {static_cast<int>(lengths[0]), static_cast<int>(lengths[1])};
    Signature s(op, is_narrow, -1, {},
                {image[0], image[1], channels, window.tall, window.wide, window.down, window.right,
                 static_cast<int>(before[0]), static_cast<int>(before[1]), dims[0], dims[1], filters});
    if (op == Op::Convolve || image.size() > 2) dims.push_back(filters);
    if (is_narrow) dims = {filters, dims[1]};
    s.shape = graph_.signatures.add_shape(dims, batch);
    s.nargs = count;
    for (int i = 0; i < count; i++) {
        const Signature &each = graph_.signature(args[i]);
        s.widths.push_back(each.width);
        if (i) s.params.push_back(each.op == Op::Param ? each.params[0] : -1);  // a batch has one filter
    }
    return graph_.add(graph_.signatures.add(s), args, count);
}

int Builder::filter(int x, int filters) {
    const Shape &image = shape(x), &given = shape(filters);
    if (image.dims.size() != 2 || given.dims.size() < 2 || given.dims.size() > 3 || given.dims[0] != image.dims[0])
        return -1;
    const int both[2] = {x, filters};
    return slide(Op::Convolve, both, 2, {0, 0, 1, 1, true}, true);
}

}  // namespace dpmodule::autobatch
