// List of all unary functions (X macros). A file that includes this list defines macros for the entries it needs; other
// entries expand to nothing. The file can be included several times.
//
// BY_LANES(enumerator, name in Python, input of the gradient, value, gradient): both on registers
// BY_NUMBER(enumerator, name in Python, input of the slope, value, slope): both by the C library, element by element
// VALUE_BY_NUMBER(enumerator, name in Python, input of the gradient, value, gradient): one of each
//
// In a value, `v` is the operand; in a gradient or slope it is the operand, the result, or neither, as the entry states.
// `d` is the gradient of the result, which multiplies a slope. `k` is the function's parameter, of the type of `v`,
// `attr` the same as a float; in slopes `log_k` is its logarithm.

#ifndef BY_LANES
#define BY_LANES(kind, name, reads, value, gradient)
#endif
#ifndef BY_NUMBER
#define BY_NUMBER(kind, name, reads, value, slope)
#endif
#ifndef VALUE_BY_NUMBER
#define VALUE_BY_NUMBER(kind, name, reads, value, gradient)
#endif

BY_LANES(Tanh, "tanh", Result, tanh_of(v), L::mul(d, L::sub(one, L::mul(v, v))))
BY_LANES(Logistic, "logistic", Result, logistic_of(v), L::mul(d, L::mul(v, L::sub(one, v))))
BY_LANES(Rectify, "rectify", Result, L::where_equal(v, v, L::max(v, zero), v), L::where_greater(v, zero, d, zero))
BY_LANES(Exp, "exp", Result, exp_or_nan(v), L::mul(d, v))
BY_LANES(Sqrt, "sqrt", Result, L::sqrt(v), only_with(d, L::div(L::mul(d, L::set(0.5f)), v)))
BY_LANES(Elu, "elu", Result, L::where_greater(v, zero, v, L::mul(k, L::sub(exp_or_nan(v), one))),
         L::where_greater(v, zero, d, L::mul(d, L::add(v, k))))
BY_LANES(Selu, "selu", Result,
         L::where_greater(v, zero, L::mul(L::set(selu_scale), v),
                          L::mul(L::set(selu_scale *selu_alpha), L::sub(exp_or_nan(v), one))),
         L::mul(d, L::where_greater(v, zero, L::set(selu_scale), L::add(v, L::set(selu_scale *selu_alpha)))))
BY_LANES(Log, "log", Operand, log_of(v, L::count), only_with(d, L::div(d, v)))
BY_LANES(Square, "square", Operand, L::mul(v, v), L::mul(d, L::add(v, v)))
BY_LANES(Cube, "cube", Operand, L::mul(v, L::mul(v, v)), L::mul(d, L::mul(L::set(3.0f), L::mul(v, v))))
BY_LANES(Abs, "abs", Operand, L::abs(v), L::where_greater(v, zero, d, L::where_greater(zero, v, L::sub(zero, d), zero)))
BY_LANES(Recip, "recip", Operand, L::div(k, v), only_with(d, L::sub(zero, L::div(L::mul(d, k), L::mul(v, v)))))
BY_LANES(Softsign, "softsign", Operand, L::div(v, L::add(one, L::abs(v))), L::div(d, squared(L::add(one, L::abs(v)))))
BY_LANES(Leaky, "leaky", Operand, L::where_greater(v, zero, v, L::mul(k, v)),
         L::where_greater(v, zero, d, L::mul(k, d)))
BY_LANES(AtLeast, "at_least", Operand, L::where_greater(k, v, k, v), L::where_greater(k, v, zero, d))
BY_LANES(AtMost, "at_most", Operand, L::where_greater(v, k, k, v), L::where_greater(v, k, zero, d))
BY_LANES(Silu, "silu", Operand, L::mul(v, logistic_of(L::mul(k, v))), ([&] {
             const V gate = logistic_of(L::mul(k, v));
             return L::mul(d, L::fma(L::mul(L::mul(k, v), gate), L::sub(one, gate), gate));
         }()))
BY_LANES(Huber, "huber", Operand, ([&] {  // half the square up to k, linear beyond
             const V size = L::abs(v), half = L::set(0.5f);
             return L::where_greater(k, size, L::mul(half, L::mul(v, v)), L::mul(k, L::sub(size, L::mul(half, k))));
         }()),
         L::mul(d, L::where_equal(v, v, L::max(L::sub(zero, k), L::min(k, v)), v)))
BY_NUMBER(Sin, "sin", Operand, std::sin(v), std::cos(v))
BY_NUMBER(Cos, "cos", Operand, std::cos(v), -std::sin(v))
BY_NUMBER(Tan, "tan", Operand, std::tan(v), 1 + squared(std::tan(v)))
BY_NUMBER(Asin, "asin", Operand, std::asin(v), 1 / std::sqrt((1 - v) * (1 + v)))
BY_NUMBER(Acos, "acos", Operand, std::acos(v), -1 / std::sqrt((1 - v) * (1 + v)))
BY_NUMBER(Atan, "atan", Operand, std::atan(v), 1 / (1 + v * v))
BY_NUMBER(Sinh, "sinh", Operand, std::sinh(v), std::cosh(v))
BY_NUMBER(Cosh, "cosh", Operand, std::cosh(v), std::sinh(v))
BY_NUMBER(Asinh, "asinh", Operand, std::asinh(v), 1 / std::sqrt(v * v + 1))
BY_NUMBER(Acosh, "acosh", Operand, std::acosh(v), 1 / std::sqrt((v - 1) * (v + 1)))
BY_NUMBER(Atanh, "atanh", Operand, std::atanh(v), 1 / ((1 - v) * (1 + v)))
BY_NUMBER(Erf, "erf", Operand, std::erf(v), 1.12837917f * std::exp(-v * v))
BY_NUMBER(LogSigmoid, "log_sigmoid", Operand, (v < 0 ? v : 0.0f) - std::log1p(std::exp(-std::fabs(v))),
          1 / (1 + std::exp(v)))
BY_NUMBER(Softrelu, "softrelu", Operand, (v > 0 ? v : 0.0f) + std::log1p(std::exp(-std::fabs(v))),
          1 / (1 + std::exp(-v)))
BY_NUMBER(Gelu, "gelu", Operand, 0.5f * v * (1 + std::erf(v * 0.70710678f)),
          0.5f * (1 + std::erf(v * 0.70710678f)) + v * 0.39894228f * std::exp(-0.5f * v * v))
BY_NUMBER(LogGamma, "lgamma", Operand, std::lgamma(v), static_cast<float>(digamma(v)))
BY_NUMBER(Power, "power_number", Operand, std::pow(v, k), power_slope(v, k))
BY_NUMBER(Exponent, "number_power", Operand, std::pow(k, v), log_k.get() * std::pow(k, v))
BY_NUMBER(Poisson, "poisson_loss", Operand, std::exp(v) - k * v + std::lgamma(k + 1), std::exp(v) - k)
BY_LANES(Neg, "negate", Neither, L::sub(zero, v), L::sub(zero, d))
BY_LANES(Scale, "scale", Neither, L::mul(v, k), L::mul(d, k))
BY_LANES(Shift, "shift", Neither, L::add(v, k), d)
BY_LANES(Rsub, "rsub", Neither, L::sub(k, v), L::sub(zero, d))
BY_LANES(Copy, "identity", Neither, v, d)
BY_LANES(Slope, "scale_gradient", Neither, v, L::mul(d, k))
BY_LANES(Stop, "nobackprop", Neither, v, zero)
VALUE_BY_NUMBER(Round, "round", Neither, std::round(v), attr != 0 ? d : zero)
VALUE_BY_NUMBER(Ceil, "ceil", Neither, std::ceil(v), attr != 0 ? d : zero)
VALUE_BY_NUMBER(Floor, "floor", Neither, std::floor(v), attr != 0 ? d : zero)
VALUE_BY_NUMBER(Truncate, "truncate", Neither, std::trunc(v), zero)

#undef BY_LANES
#undef BY_NUMBER
#undef VALUE_BY_NUMBER
