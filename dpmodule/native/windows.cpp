// Windows of images as rows of a matrix, and such rows added up to images. One element of the windows at a time, and
// of it all channels: an image with channels innermost is read, or written, as it lies.
#include "addresses.hpp"

namespace dpmodule {
namespace {

// Images of any strides, and the windows over them.
struct Windows {
    float *image;            // (number, channels, sizes[0], sizes[1])
    std::ptrdiff_t gaps[4];  // strides of its axes, which count numbers
    std::ptrdiff_t number, channels, sizes[2];
    std::ptrdiff_t counts[2];  // of windows along height and width
    std::ptrdiff_t kernel[2], stride[2], pad[2], dilate[2];
    float *rows;  // (number * counts, channels * kernel), contiguous
};

// Calls `run(element, numbers)` for every element of every window: where its first channel lies in the rows, and in the
// image, null in the padding.
template <class Run>
void each_element(const Windows &w, const Run &run) {
    const std::ptrdiff_t area = w.kernel[0] * w.kernel[1];
    float *row = w.rows;
    for (std::ptrdiff_t n = 0; n < w.number; ++n) {
        for (std::ptrdiff_t y = 0; y < w.counts[0]; ++y) {
            for (std::ptrdiff_t x = 0; x < w.counts[1]; ++x, row += w.channels * area) {
                for (std::ptrdiff_t k = 0; k < area; ++k) {
                    const std::ptrdiff_t down = y * w.stride[0] - w.pad[0] + k / w.kernel[1] * w.dilate[0];
                    const std::ptrdiff_t across = x * w.stride[1] - w.pad[1] + k % w.kernel[1] * w.dilate[1];
                    const bool inside = down >= 0 && down < w.sizes[0] && across >= 0 && across < w.sizes[1];
                    float *from = w.image + n * w.gaps[0] + down * w.gaps[2] + across * w.gaps[3];
                    run(row + k, inside ? from : nullptr, area);
                }
            }
        }
    }
}

// Writes the rows; what lies in the padding is 0.
bool unfold(const Windows &w) {
    each_element(w, [&w](float *to, const float *from, std::ptrdiff_t area) {
        const std::ptrdiff_t gap = w.gaps[1];
        if (from) {
            for (std::ptrdiff_t c = 0; c < w.channels; ++c) to[c * area] = from[c * gap];
        } else {
            for (std::ptrdiff_t c = 0; c < w.channels; ++c) to[c * area] = 0;
        }
    });
    return true;
}

// Adds the rows to the image.
bool fold(const Windows &w) {
    each_element(w, [&w](const float *from, float *to, std::ptrdiff_t area) {
        const std::ptrdiff_t gap = w.gaps[1];
        if (!to) return;
        for (std::ptrdiff_t c = 0; c < w.channels; ++c) to[c * gap] += from[c * area];
    });
    return true;
}

Windows windows(Arguments &next) {
    Windows found{};
    found.image = next.floats();
    for (std::ptrdiff_t &gap : found.gaps) gap = next.size();
    found.number = next.size();
    found.channels = next.size();
    for (auto *pair : {found.sizes, found.counts, found.kernel, found.stride, found.pad, found.dilate}) {
        pair[0] = next.size();
        pair[1] = next.size();
    }
    found.rows = next.floats();
    return found;
}

constexpr Py_ssize_t kArguments = 20;

PyObject *unfold_tensor(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, kArguments);
    const Windows found = windows(next);
    return next.good() ? without_gil(unfold, found) : nullptr;
}

PyObject *fold_tensor(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, kArguments);
    const Windows found = windows(next);
    return next.good() ? without_gil(fold, found) : nullptr;
}

// Python keeps a pointer to this table
PyMethodDef window_functions[] = {
    {"unfold", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(unfold_tensor)), METH_FASTCALL,
     "unfold(image, *gaps, number, channels, *sizes, *counts, *kernel, *stride, *pad, *dilate, rows)\n--\n\n"
     "Write the windows of images as rows; addresses, strides and sizes as in `Windows`."},
    {"fold", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(fold_tensor)), METH_FASTCALL,
     "fold(image, *gaps, number, channels, *sizes, *counts, *kernel, *stride, *pad, *dilate, rows)\n--\n\n"
     "Add rows to the images whose windows they are; arguments as those of `unfold`."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_windows(PyObject *module) { return PyModule_AddFunctions(module, window_functions); }

}  // namespace dpmodule
