// Rare functions, computed by the C library element by element.
#include <cmath>

#include "kernels.hpp"

namespace dpmodule::vector {
namespace {

template <class F>
void each(int rows, int width, Block y, Block x, F f) {
    for (int i = 0; i < rows; i++, y.at += y.stride, x.at += x.stride) {
        for (int j = 0; j < width; j++) y.at[j] = f(x.at[j]);
    }
}

// dx (+)= dy * slope(a, b); a zero gradient stays zero where the slope is infinite
template <class F>
void each_back(int rows, int width, Block dx, bool add, Block dy, Block a, Block b, F slope) {
    for (int i = 0; i < rows; i++, dx.at += dx.stride, dy.at += dy.stride, a.at += a.stride, b.at += b.stride) {
        for (int j = 0; j < width; j++) {
            const float d = dy.at[j] == 0 ? 0.0f : dy.at[j] * slope(a.at[j], b.at[j]);
            dx.at[j] = add ? dx.at[j] + d : d;
        }
    }
}

// The derivative of the log gamma function; NaN at poles.
double digamma(double x) {
    constexpr double pi = 3.14159265358979323846;
    if (x <= 0 && x == std::floor(x)) return x == 0 ? -std::copysign(INFINITY, x) : NAN;
    if (x < 0) return digamma(1 - x) - pi / std::tan(pi * (x - std::floor(x)));
    double sum = 0;
    for (; x < 10; x++) sum -= 1 / x;
    const double z = 1 / (x * x);
    return sum + std::log(x) - 0.5 / x - z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z / 132))));
}

float squared(float x) { return x * x; }

// The logarithm of a number, computed once on first use.
class Logarithm {
  public:
    explicit Logarithm(float of) : of_(of) {}
    float get() const {
        if (!known_) found_ = std::log(of_);
        known_ = true;
        return found_;
    }

  private:
    float of_;
    mutable float found_ = 0;
    mutable bool known_ = false;
};

float power_slope(float x, float k) { return k == 0 ? 0.0f : k * std::pow(x, k - 1); }

float log_loss(float x, float y) {
    const float yes = y == 0 ? 0.0f : y * std::log(x), no = y == 1 ? 0.0f : (1 - y) * std::log(1 - x);
    return -(yes + no);
}

float log_loss_slope(float x, float y) { return y == 1 ? -1 / x : y == 0 ? 1 / (1 - x) : (x - y) / (x * (1 - x)); }

}  // namespace

void unary_scalar(Unary op, float k, int rows, int width, Block y, Block x) {
    switch (op) {
#define BY_NUMBER(kind, name, reads, value, slope) \
    case Unary::kind: return each(rows, width, y, x, [=](float v) { return value; });
#define VALUE_BY_NUMBER BY_NUMBER
#include "unary_list.hpp"
        default: return;
    }
}

void unary_scalar_back(Unary op, float k, int rows, int width, Block dx, bool add, Block dy, Block x) {
    const Logarithm log_k(k);
    switch (op) {
#define BY_NUMBER(kind, name, reads, value, slope) \
    case Unary::kind: return each_back(rows, width, dx, add, dy, x, x, [=](float v, float) { return slope; });
#include "unary_list.hpp"
        default: return;
    }
}

void binary_scalar(Binary op, int rows, int width, Block y, Block a, Block b) {
    for (int i = 0; i < rows; i++, y.at += y.stride, a.at += a.stride, b.at += b.stride) {
        for (int j = 0; j < width; j++)
            y.at[j] = op == Binary::Pow ? std::pow(a.at[j], b.at[j]) : log_loss(a.at[j], b.at[j]);
    }
}

void binary_scalar_back(Binary op, int which, int rows, int width, Block dx, bool add, Block dy, Block a, Block b) {
    const auto back = [&](auto slope) { each_back(rows, width, dx, add, dy, a, b, slope); };
    if (op == Binary::BinaryLog) {
        if (which) return back([](float x, float) { return std::log1p(-x) - std::log(x); });
        return back(log_loss_slope);
    }
    if (which) return back([](float x, float k) { return x == 0 && k >= 0 ? 0.0f : std::pow(x, k) * std::log(x); });
    return back(power_slope);
}

}  // namespace dpmodule::vector
