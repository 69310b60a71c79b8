// Kernels for what libraries are slow at: few rows, short rows, images of few numbers, looking at all numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpmodule {

// Products of a few rows with a dense layer's weight, which take as long as the weight takes to come from memory: it is
// read once, whatever the number of rows.

constexpr std::ptrdiff_t kFewRows = 4;

struct FewRows {
    std::ptrdiff_t rows, units, features;  // rows from 1 to kFewRows
    const float *data;                     // (rows, features), rows `data_gap` numbers apart
    std::ptrdiff_t data_gap;
    const float *weight;  // (units, features), rows `weight_gap` numbers apart
    std::ptrdiff_t weight_gap;
    const float *bias;  // (units), or null
    float *result;      // (rows, units): written
    int threads;        // the most that share the units; the numbers stay the same
};

void multiply_few_rows(const FewRows &run);

// The greatest number of each window of images, without the places that a gradient would need.

struct Pooling {
    std::ptrdiff_t images, channels, sizes[2];  // of images, which are contiguous with channels innermost
    std::ptrdiff_t counts[2];                   // of windows along height and width, each with some of the image
    std::ptrdiff_t kernel[2], stride[2], pad[2];
    const float *data;
    float *result;  // (images, counts, channels), contiguous: written
    int threads;    // the most that share the rows
};

// A window with NaN makes NaN, as torch's does.
void max_pool(const Pooling &pooling);

// Softmax of rows so short that they do not fill a vector, which libraries then compute number by number.

// What a vector of this processor has at most.
constexpr std::ptrdiff_t kMostClasses = 16;

struct Softmax {
    std::ptrdiff_t rows, classes;  // classes from 1 to kMostClasses
    const float *scores;           // (rows, classes)
    float *result;                 // (rows, classes): written
};

// A row in which a score is NaN or plus infinity, or all are minus infinity, becomes NaN.
void softmax(const Softmax &run);

// Looks for numbers that are NaN or infinite.

// Says whether all of some float32 numbers are finite.
bool all_finite(const float *at, std::ptrdiff_t count);

// What is needed to add up the rows of equal numbers, such as those of a table's gradient.

struct Groups {
    const std::int64_t *numbers;
    std::size_t count;
    const std::int64_t *given;  // the place of each number, null: they count from 0
    std::int64_t *distinct;     // written: the different numbers, ascending
    std::int64_t *starts;       // written: where each of them begins
    std::int64_t *places;       // written: the places in the new order, those of equal numbers as they come
    mutable std::size_t found;  // how many different ones there are
};

// Returns false where there is no memory.
bool group_numbers(const Groups &groups);

// Windows of images as rows of a matrix, and such rows added up to images. One element of the windows at a time, and
// of it all channels: an image with channels innermost is read, or written, as it lies.

// Images of any strides, and the windows over them.
struct ImageWindows {
    float *image;            // (number, channels, sizes[0], sizes[1])
    std::ptrdiff_t gaps[4];  // strides of its axes, which count numbers
    std::ptrdiff_t number, channels, sizes[2];
    std::ptrdiff_t counts[2];  // of windows along height and width
    std::ptrdiff_t kernel[2], stride[2], pad[2], dilate[2];
    float *rows;  // (number * counts, channels * kernel), contiguous
};

// Writes the rows; what lies in the padding is 0.
void unfold(const ImageWindows &w);
// Adds the rows to the image.
void fold(const ImageWindows &w);

}  // namespace dpmodule
