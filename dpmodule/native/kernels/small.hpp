// Kernels for small problems that libraries are slow at: few rows, short rows, small images, checks of all elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpmodule {

// Products of a few rows with a dense layer's weight, limited by reading the weight from memory: it is read once for
// all rows.

constexpr std::ptrdiff_t kFewRows = 4;

struct FewRows {
    std::ptrdiff_t rows, units, features;  // rows from 1 to kFewRows
    const float *data;                     // (rows, features), with row stride `data_gap`
    std::ptrdiff_t data_gap;
    const float *weight;  // (units, features), with row stride `weight_gap`
    std::ptrdiff_t weight_gap;
    const float *bias;       // (units), or null
    float *result;           // (rows, units): written
    int threads;             // maximal number of threads; does not change the results
    bool rectified = false;  // replace negative results by 0
};

void multiply_few_rows(const FewRows &run);

// Softmax of rows shorter than a vector, which libraries compute element by element.

// Maximal number of elements of a vector.
constexpr std::ptrdiff_t kMaxClasses = 16;

struct Softmax {
    std::ptrdiff_t rows, classes;  // classes from 1 to kMaxClasses
    const float *scores;           // (rows, classes)
    float *result;                 // (rows, classes): written
    bool is_log;                   // write the logarithms
};

// A row becomes NaN if a score is NaN or plus infinity, or if all are minus infinity.
void softmax(const Softmax &run);

// Returns true if all elements are finite.
bool all_finite(const float *at, std::ptrdiff_t count);

// Grouping of equal numbers, such as row indices of a table's gradient.

struct Groups {
    const std::int64_t *numbers;
    std::size_t count;
    const std::int64_t *given;  // the position of each number; null: 0, 1, ...
    std::int64_t *distinct;     // written: the distinct numbers, ascending
    std::int64_t *starts;       // written: the start of each group
    std::int64_t *places;       // written: the positions in sorted order; stable
    mutable std::size_t found;  // number of distinct ones
};

// Returns false if there is no memory.
bool group_numbers(const Groups &groups);

// im2col and col2im. Processes one window at a time; images with channels innermost are transposed in registers.

// Images with any strides, and the windows over them.
struct ImageWindows {
    float *image;            // (number, channels, sizes[0], sizes[1])
    std::ptrdiff_t gaps[4];  // strides of its axes, in elements
    std::ptrdiff_t number, channels, sizes[2];
    std::ptrdiff_t counts[2];  // of windows along height and width
    std::ptrdiff_t kernel[2], stride[2], pad[2], dilate[2];
    float *rows;  // (number * counts, channels * kernel), contiguous
};

// Writes the rows, with 0 for padding.
void unfold(const ImageWindows &w);
// Adds the rows to the image.
void fold(const ImageWindows &w);

// Tensors with channels innermost in memory, and the same in the usual layout.

struct LayoutPair {
    float *usual;                             // (images, channels, pixels)
    float *last;                              // (images, pixels, channels)
    std::ptrdiff_t images, channels, pixels;  // of a weight: filters, channels, elements of a window
};

struct Relayout {
    const LayoutPair *pairs;
    std::size_t count;
    bool to_last;  // write `last`, else `usual`
    int threads;   // maximal number of threads
};

void change_layouts(const Relayout &run);
// Copies the pixels from `first` to `end` of a pair of single images.
void change_pixels(const LayoutPair &image, std::ptrdiff_t first, std::ptrdiff_t end, bool to_last);

}  // namespace dpmodule
