// Functions that are rare: the C library's, number by number.
#include <cmath>

#include "kernels.hpp"

namespace dpmodule::autobatch {
namespace {

template <class F> void each(int rows, int width, Block y, Block x, F f) {
    for (int i = 0; i < rows; i++, y.at += y.stride, x.at += x.stride) {
        for (int j = 0; j < width; j++) y.at[j] = f(x.at[j]);
    }
}

// dx (+)= dy * slope(a, b); no gradient stays none where the slope is infinite
template <class F> void each_back(int rows, int width, Block dx, bool add, Block dy, Block a, Block b, F slope) {
    for (int i = 0; i < rows; i++, dx.at += dx.stride, dy.at += dy.stride, a.at += a.stride, b.at += b.stride) {
        for (int j = 0; j < width; j++) {
            const float d = dy.at[j] == 0 ? 0.0f : dy.at[j] * slope(a.at[j], b.at[j]);
            dx.at[j] = add ? dx.at[j] + d : d;
        }
    }
}

// The derivative of the logarithm of the gamma function; NaN where there is a pole.
double digamma(double x) {
    constexpr double pi = 3.14159265358979323846;
    if (x <= 0 && x == std::floor(x)) return x == 0 ? -std::copysign(INFINITY, x) : NAN;
    if (x < 0) return digamma(1 - x) - pi / std::tan(pi * (x - std::floor(x)));
    double sum = 0;
    for (; x < 10; x++) sum -= 1 / x;
    const double z = 1 / (x * x);
    return sum + std::log(x) - 0.5 / x - z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z / 132))));
}

float power_slope(float x, float k) { return k == 0 ? 0.0f : k * std::pow(x, k - 1); }

float log_loss(float x, float y) {
    const float yes = y == 0 ? 0.0f : y * std::log(x), no = y == 1 ? 0.0f : (1 - y) * std::log(1 - x);
    return -(yes + no);
}

float log_loss_slope(float x, float y) { return y == 1 ? -1 / x : y == 0 ? 1 / (1 - x) : (x - y) / (x * (1 - x)); }

}  // namespace

void unary_each_number(Unary op, float k, int rows, int width, Block y, Block x) {
    const auto map = [&](auto f) { each(rows, width, y, x, f); };
    switch (op) {
        case Unary::Sin: return map([](float v) { return std::sin(v); });
        case Unary::Cos: return map([](float v) { return std::cos(v); });
        case Unary::Tan: return map([](float v) { return std::tan(v); });
        case Unary::Asin: return map([](float v) { return std::asin(v); });
        case Unary::Acos: return map([](float v) { return std::acos(v); });
        case Unary::Atan: return map([](float v) { return std::atan(v); });
        case Unary::Sinh: return map([](float v) { return std::sinh(v); });
        case Unary::Cosh: return map([](float v) { return std::cosh(v); });
        case Unary::Asinh: return map([](float v) { return std::asinh(v); });
        case Unary::Acosh: return map([](float v) { return std::acosh(v); });
        case Unary::Atanh: return map([](float v) { return std::atanh(v); });
        case Unary::Erf: return map([](float v) { return std::erf(v); });
        case Unary::LogSigmoid: return map([](float v) { return (v < 0 ? v : 0.0f) - std::log1p(std::exp(-std::fabs(v))); });
        case Unary::LogGamma: return map([](float v) { return std::lgamma(v); });
        case Unary::Power: return map([=](float v) { return std::pow(v, k); });
        case Unary::Exponent: return map([=](float v) { return std::pow(k, v); });
        case Unary::Poisson: {
            const float constant = std::lgamma(k + 1);
            return map([=](float v) { return std::exp(v) - k * v + constant; });
        }
        case Unary::Round: return map([](float v) { return std::round(v); });
        case Unary::Ceil: return map([](float v) { return std::ceil(v); });
        case Unary::Floor: return map([](float v) { return std::floor(v); });
        default: return;
    }
}

void unary_each_number_back(Unary op, float k, int rows, int width, Block dx, bool add, Block dy, Block x) {
    const auto slope = [&](auto f) { each_back(rows, width, dx, add, dy, x, x, [&](float v, float) { return f(v); }); };
    switch (op) {
        case Unary::Sin: return slope([](float v) { return std::cos(v); });
        case Unary::Cos: return slope([](float v) { return -std::sin(v); });
        case Unary::Tan: return slope([](float v) { const float t = std::tan(v); return 1 + t * t; });
        case Unary::Asin: return slope([](float v) { return 1 / std::sqrt((1 - v) * (1 + v)); });
        case Unary::Acos: return slope([](float v) { return -1 / std::sqrt((1 - v) * (1 + v)); });
        case Unary::Atan: return slope([](float v) { return 1 / (1 + v * v); });
        case Unary::Sinh: return slope([](float v) { return std::cosh(v); });
        case Unary::Cosh: return slope([](float v) { return std::sinh(v); });
        case Unary::Asinh: return slope([](float v) { return 1 / std::sqrt(v * v + 1); });
        case Unary::Acosh: return slope([](float v) { return 1 / std::sqrt((v - 1) * (v + 1)); });
        case Unary::Atanh: return slope([](float v) { return 1 / ((1 - v) * (1 + v)); });
        case Unary::Erf: return slope([](float v) { return 1.12837917f * std::exp(-v * v); });
        case Unary::LogSigmoid: return slope([](float v) { return 1 / (1 + std::exp(v)); });
        case Unary::LogGamma: return slope([](float v) { return static_cast<float>(digamma(v)); });
        case Unary::Power: return slope([=](float v) { return power_slope(v, k); });
        case Unary::Exponent: {
            const float factor = std::log(k);
            return slope([=](float v) { return factor * std::pow(k, v); });
        }
        case Unary::Poisson: return slope([=](float v) { return std::exp(v) - k; });
        default: return;
    }
}

void binary_each_number(Binary op, int rows, int width, Block y, Block a, Block b) {
    for (int i = 0; i < rows; i++, y.at += y.stride, a.at += a.stride, b.at += b.stride) {
        for (int j = 0; j < width; j++) y.at[j] = op == Binary::Pow ? std::pow(a.at[j], b.at[j]) : log_loss(a.at[j], b.at[j]);
    }
}

void binary_each_number_back(Binary op, int which, int rows, int width, Block dx, bool add, Block dy, Block a, Block b) {
    const auto back = [&](auto slope) { each_back(rows, width, dx, add, dy, a, b, slope); };
    if (op == Binary::BinaryLog) {
        if (which) return back([](float x, float) { return std::log1p(-x) - std::log(x); });
        return back(log_loss_slope);
    }
    if (which) return back([](float x, float k) { return x == 0 && k >= 0 ? 0.0f : std::pow(x, k) * std::log(x); });
    return back(power_slope);
}

}  // namespace dpmodule::autobatch
