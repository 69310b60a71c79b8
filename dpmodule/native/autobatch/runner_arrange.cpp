// Concatenation, selection and reordering.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>

#include "runner.hpp"

namespace dpmodule::autobatch {
namespace {

void copy(int rows, int width, const float *from, int step, float *to, int to_step) {
    for (int r = 0; r < rows; r++, from += step, to += to_step) {
        for (int j = 0; j < width; j++) to[j] = from[j];
    }
}

void add(int rows, int width, const float *from, int step, float *to, int to_step) {
    for (int r = 0; r < rows; r++, from += step, to += to_step) {
        for (int j = 0; j < width; j++) to[j] += from[j];
    }
}

// Number of alternations of the joined operands in memory.
int parts_of(const Signature &s, const Shape &joined) {
    return std::accumulate(joined.dims.begin(), joined.dims.begin() + s.kind, joined.batch, std::multiplies<>());
}

}  // namespace

// Operands without a minibatch are repeated for each element.
void Runner::concat_columns(const Work &work, const Step &, const Signature &s) {
    const Shape &joined = graph_.signatures.shape(s.shape);
    const int rows = parts_of(s, joined), wide = s.width / rows;
    float *to = work.run->value + static_cast<std::ptrdiff_t>(work.first) * s.width;
    for (int i = 0; i < work.count; i++, to += s.width) {
        int at = 0;
        for (std::size_t k = 0; k < s.widths.size(); k++) {
            const int times = s.params[k], own = rows / times, width = s.widths[k] / own;
            for (int t = 0; t < times; t++) {
                copy(own, width, graph_.value[work.run->nodes(static_cast<int>(k))[work.first + i]], width,
                     to + at + t * own * wide, wide);
            }
            at += width;
        }
    }
}

void Runner::concat_columns_back(const Work &work, const Step &, const Signature &s) {
    const Shape &joined = graph_.signatures.shape(s.shape);
    const int rows = parts_of(s, joined), wide = s.width / rows;
    const float *from = work.run->grad + static_cast<std::ptrdiff_t>(work.first) * s.width;
    for (int i = 0; i < work.count; i++, from += s.width) {
        int at = 0;
        for (std::size_t k = 0; k < s.widths.size(); k++) {
            const int times = s.params[k], own = rows / times, width = s.widths[k] / own;
            float *to = graph_.grad[work.run->nodes(static_cast<int>(k))[work.first + i]];
            for (int t = 0; to && t < times; t++) add(own, width, from + at + t * own * wide, wide, to, width);
            at += width;
        }
    }
}

void Runner::columns(const Work &work, const Step &step, const Signature &s) {
    const int rows = std::abs(s.kind), width = s.width / rows, wide = s.widths[0] / rows;
    const Rows x = values(work, step.in[0]);
    const Block y = value_of(work, step);
    for (int i = 0; i < work.count; i++) copy(rows, width, x[i] + root(work, i).aux, wide, row_of(y, i), width);
}

void Runner::columns_back(const Work &work, const Step &step, const Signature &s) {
    const int rows = std::abs(s.kind), width = s.width / rows, wide = s.widths[0] / rows;
    const Rows dx = gradients(work, step.in[0]);
    const Block dy = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        if (float *to = dx[i]) add(rows, width, row_of(dy, i), width, to + root(work, i).aux, wide);
    }
}

namespace {

struct Places {
    Places(const Signature &s, const Shape &of)
        : parts(of.batch), rows(s.params[0]), columns(s.width / parts / rows), row(s.params.data() + 1),
          column(row + rows) {}
    int parts, rows, columns;  // for each element of the minibatch
    const int *row, *column;
};

}  // namespace

void Runner::select(const Work &work, const Step &step, const Signature &s) {
    const Places at(s, graph_.signatures.shape(s.shape));
    const Rows x = values(work, step.in[0]);
    const Block y = value_of(work, step);
    for (int i = 0; i < work.count; i++) {
        float *to = row_of(y, i);
        for (const float *from = x[i]; from < x[i] + s.widths[0]; from += s.widths[0] / at.parts) {
            for (int r = 0; r < at.rows; r++, to += at.columns) {
                for (int c = 0; c < at.columns; c++) to[c] = from[at.row[r] + at.column[c]];
            }
        }
    }
}

void Runner::select_back(const Work &work, const Step &step, const Signature &s) {
    const Places at(s, graph_.signatures.shape(s.shape));
    const Rows dx = gradients(work, step.in[0]);
    const Block dy = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        const float *from = row_of(dy, i);
        for (float *to = dx[i]; to && to < dx[i] + s.widths[0]; to += s.widths[0] / at.parts) {
            for (int r = 0; r < at.rows; r++, from += at.columns) {
                for (int c = 0; c < at.columns; c++) to[at.row[r] + at.column[c]] += from[c];
            }
        }
    }
}

namespace {

// The elements of a PickEach: `width` numbers in each of `rows` parts of an element, with stride `wide`.
struct Picked {
    Picked(const Signature &s, const Shape &of)
        : batch(of.batch), rows(s.params[0]), width(s.width / batch / rows), wide(s.params[1] * width),
          step(s.widths[0] == batch * rows * wide ? rows * wide : 0) {}
    int batch, rows, width, wide, step;
};

}  // namespace

void Runner::pick_each(const Work &work, const Step &step, const Signature &s) {
    const Picked z(s, graph_.signatures.shape(s.shape));
    const Rows x = values(work, step.in[0]);
    const Block y = value_of(work, step);
    for (int i = 0; i < work.count; i++) {
        const int *labels = graph_.labels(root(work, i), z.batch);
        for (int k = 0; k < z.batch; k++) {
            copy(z.rows, z.width, x[i] + k * z.step + labels[k] * z.width, z.wide, row_of(y, i) + k * z.rows * z.width,
                 z.width);
        }
    }
}

void Runner::pick_each_back(const Work &work, const Step &step, const Signature &s) {
    const Picked z(s, graph_.signatures.shape(s.shape));
    const Rows dx = gradients(work, step.in[0]);
    const Block dy = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        const int *labels = graph_.labels(root(work, i), z.batch);
        for (int k = 0; dx[i] && k < z.batch; k++) {
            add(z.rows, z.width, row_of(dy, i) + k * z.rows * z.width, z.width,
                dx[i] + k * z.step + labels[k] * z.width, z.wide);
        }
    }
}

namespace {

// The loops of an Arrange; the two innermost read a matrix with evenly spaced rows and columns.
class Loops {
  public:
    explicit Loops(const Signature &s) : first_(s.params[0]) {
        for (std::size_t k = 1; k < s.params.size(); k += 2) all_.push_back({s.params[k], s.params[k + 1]});
        columns = take();
        rows = take();
    }
    struct Loop {
        int size, step;
    };
    Loop rows, columns;

    // Calls body(position in the operand, position in the result) for each matrix.
    template <class F>
    void each(F body) const {
        const int size = rows.size * columns.size;
        std::vector<int> turn(all_.size(), 0);
        for (int from = first_, to = 0;; to += size) {
            body(from, to);
            std::size_t k = all_.size();
            for (; k > 0; k--) {
                const Loop &loop = all_[k - 1];
                from += loop.step;
                if (++turn[k - 1] < loop.size) break;
                from -= loop.size * loop.step;
                turn[k - 1] = 0;
            }
            if (k == 0) return;
        }
    }

  private:
    Loop take() {
        if (all_.empty()) return {1, 0};
        const Loop last = all_.back();
        all_.pop_back();
        return last;
    }
    int first_;
    std::vector<Loop> all_;
};

}  // namespace

void Runner::arrange(const Work &work, const Step &step, const Signature &s) {
    const Loops loops(s);
    const Loops::Loop rows = loops.rows, columns = loops.columns;
    const Rows x = values(work, step.in[0]);
    const Block y = value_of(work, step);
    for (int i = 0; i < work.count; i++) {
        loops.each([&](int at, int begin) {
            const float *from = x[i] + at;
            float *to = row_of(y, i) + begin;
            for (int r = 0; r < rows.size; r++, from += rows.step) {
                for (int c = 0; c < columns.size; c++) *to++ = from[c * columns.step];
            }
        });
    }
}

void Runner::arrange_back(const Work &work, const Step &step, const Signature &s) {
    const Loops loops(s);
    const Loops::Loop rows = loops.rows, columns = loops.columns;
    const Rows dx = gradients(work, step.in[0]);
    const Block dy = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        if (!dx[i]) continue;
        if (!dx.add()) std::memset(dx[i], 0, sizeof(float) * s.widths[0]);
        loops.each([&](int at, int begin) {
            float *to = dx[i] + at;
            const float *from = row_of(dy, i) + begin;
            for (int r = 0; r < rows.size; r++, to += rows.step) {
                for (int c = 0; c < columns.size; c++) to[c * columns.step] += *from++;
            }
        });
    }
}

}  // namespace dpmodule::autobatch
