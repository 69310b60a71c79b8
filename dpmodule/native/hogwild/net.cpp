#include "net.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/small.hpp"

namespace dpmodule::hogwild {
namespace {

bool starts_gradients(StepKind kind) {
    return kind == StepKind::SoftmaxOutput || kind == StepKind::Logistic || kind == StepKind::Linear ||
           kind == StepKind::MakeLoss;
}

// Number of a step's inputs that receive gradients; labels and similar inputs follow them.
std::size_t differentiable(const Step &step) {
    switch (step.kind) {
        case StepKind::Argmax: return 0;
        case StepKind::Unary: return step.function == static_cast<int>(vector::Unary::Stop) ? 0 : 1;
        case StepKind::Binary: return step.function == static_cast<int>(vector::Binary::Equal) ? 0 : 2;
        case StepKind::Pick:
        case StepKind::CrossEntropy:
        case StepKind::SoftmaxOutput:
        case StepKind::Logistic:
        case StepKind::Linear: return 1;
        default: return step.in.size();
    }
}

bool is_lookup(StepKind kind) { return kind == StepKind::Pool || kind == StepKind::Lookup; }

}  // namespace

Net::Net(const Plan &plan)
    : plan_(plan), values_(plan.values.size()), learns_(values_.size()), reached_(values_.size()),
      tables_(plan.parameters.size()), dense_(plan.parameters.size()) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
        values_[i].width = plan.values[i].width;
        values_[i].single = plan.values[i].single;
    }
    find_learning();
    // From the losses down: the first layer with a value's gradient writes it, and others add to it.
    std::vector<LayerSpec> wirings;
    for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step) wirings.push_back(make_spec(*step));
    allocate();
    for (auto spec = wirings.rbegin(); spec != wirings.rend(); ++spec) {
        layers_.push_back(make(*spec));
        if (spec->reached) backward_order_.push_back(layers_.back().get());
    }
    std::reverse(backward_order_.begin(), backward_order_.end());
    for (auto &table : tables_) {
        if (table) table->allocate();
    }
    std::vector<std::size_t> given(tables_.size(), 0);
    for (const Step &step : plan.steps) {
        const auto out = static_cast<std::size_t>(step.out);
        if (!is_lookup(step.kind) || !reached_[out]) continue;
        const auto parameter = static_cast<std::size_t>(step.ints[1]);
        values_[out].gradient = tables_[parameter]->memory(given[parameter]++);
    }
}

void Net::find_learning() {
    for (const Step &step : plan_.steps) {
        bool learns = is_lookup(step.kind) || step.kind == StepKind::FullyConnected;
        for (std::size_t i = 0; i < differentiable(step); ++i)
            learns |= learns_[static_cast<std::size_t>(step.in[i])] != 0;
        learns_[static_cast<std::size_t>(step.out)] = learns;
    }
}

LayerSpec Net::make_spec(const Step &step) {
    LayerSpec spec{step, values_[static_cast<std::size_t>(step.out)], plan_.batch_size, {}, {}, {}};
    spec.reached = starts_gradients(step.kind) || reached_[static_cast<std::size_t>(step.out)];
    for (std::size_t i = 0; i < step.in.size(); ++i) {
        const auto from = static_cast<std::size_t>(step.in[i]);
        Input input{&values_[from]};
        if (spec.reached && i < differentiable(step) && learns_[from]) {
            input.wanted = true;
            input.add = reached_[from] != 0;
            reached_[from] = true;
        }
        spec.inputs.push_back(input);
    }
    if (step.kind != StepKind::FullyConnected) return spec;
    for (int i = 0; i < 2; ++i) {
        DenseInput &to = i ? spec.bias : spec.weight;
        to.gradient = dense(step.ints[static_cast<std::size_t>(i)]);
        if (!to.gradient || !spec.reached) continue;
        to.add = to.gradient->used;
        to.gradient->used = true;
    }
    return spec;
}

DenseGradient *Net::dense(int parameter) {
    if (parameter < 0) return nullptr;
    auto &found = dense_[static_cast<std::size_t>(parameter)];
    if (!found) found = std::make_unique<DenseGradient>(plan_.parameters[static_cast<std::size_t>(parameter)]);
    return found.get();
}

TableGradient &Net::table(std::size_t parameter) {
    auto &found = tables_[parameter];
    if (!found) found = std::make_unique<TableGradient>(plan_.parameters[parameter]);
    return *found;
}

void Net::allocate() {
    std::vector<char> is_looked_up(values_.size());
    for (const Step &step : plan_.steps) is_looked_up[static_cast<std::size_t>(step.out)] = is_lookup(step.kind);
    for (std::size_t i = 0; i < values_.size(); ++i) {
        Value &value = values_[i];
        const std::size_t rows = value.single ? 1 : static_cast<std::size_t>(plan_.batch_size);
        const std::size_t count = rows * static_cast<std::size_t>(value.width);
        memory_.emplace_back(count);
        value.data = memory_.back().data();
        if (!reached_[i] || is_looked_up[i]) continue;
        memory_.emplace_back(count);
        value.gradient = memory_.back().data();
    }
}

LayerPointer Net::make(const LayerSpec &spec) {
    if (is_lookup(spec.step.kind)) {
        const auto parameter = static_cast<std::size_t>(spec.step.ints[1]);
        auto made = std::make_unique<LookupLayer>(plan_.parameters[parameter], spec);
        if (spec.reached) made->join(table(parameter), plan_.batch_size);
        return made;
    }
    return make_layer(spec);
}

void Net::forward(BatchContext &context) {
    for (const LayerPointer &layer : layers_) layer->forward(context);
}

void Net::backward(BatchContext &context) {
    for (Layer *layer : backward_order_) layer->backward(context);
}

bool Net::outputs_are_finite(const Batch &batch) const {
    return std::all_of(plan_.outputs.begin(), plan_.outputs.end(),
                       [&](int i) { return all_finite(value(i).data, value(i).count(batch)); });
}

bool Net::gradients_are_finite(const Batch &batch) const {
    for (std::size_t i = 0; i < tables_.size(); ++i) {
        if (tables_[i] && !tables_[i]->is_finite(batch)) return false;
        if (!dense_[i] || !dense_[i]->used) continue;
        if (!all_finite(dense_[i]->values.data(), static_cast<std::ptrdiff_t>(dense_[i]->values.size()))) return false;
    }
    return true;
}

void Net::update(const Batch &batch, double rate, std::uint64_t count) {
    using Kind = vector::UpdateRule::Kind;
    for (std::size_t i = 0; i < plan_.parameters.size(); ++i) {
        const Parameter &parameter = plan_.parameters[i];
        if (!parameter.learns) continue;
        vector::UpdateRule rule = parameter.rule;
        rule.lr = rate * parameter.lr_mult;
        if (rule.kind == Kind::Adam || rule.kind == Kind::AmsGrad) {
            const double t = static_cast<double>(count);
            rule.lr *= std::sqrt(1 - std::pow(rule.beta2, t)) / (1 - std::pow(rule.beta1, t));
        }
        if (tables_[i]) update_table(*tables_[i], batch, rule);
        if (!dense_[i] || !dense_[i]->used) continue;
        vector::update(rule, parameter.weight, parameter.states, dense_[i]->values.data(), dense_[i]->values.size());
    }
}

void Net::update_table(TableGradient &table, const Batch &batch, const vector::UpdateRule &rule) {
    const Parameter &parameter = table.parameter();
    const auto width = static_cast<std::size_t>(parameter.width);
    const int states = vector::state_count(rule.kind);
    const auto update = [&](std::int64_t row, const float *gradient) {
        float *here[vector::UpdateRule::max_states];
        for (int i = 0; i < states; ++i) here[i] = parameter.states[i] + row * parameter.width;
        vector::update(rule, parameter.weight + row * parameter.width, here, gradient, width);
    };
    const std::size_t ahead = width < 64 ? 16 : 3;
    std::size_t done = 0;
    table.for_each_row(batch, [&](std::int64_t row, const float *gradient) {
        const std::vector<int> &rows = table.rows();
        if (++done + ahead < rows.size()) {
            const std::int64_t next = rows[done + ahead] * parameter.width;
            prefetch(parameter.weight + next, parameter.width);
            for (int i = 0; i < states; ++i) prefetch(parameter.states[i] + next, parameter.width);
        }
        update(row, gradient);
    });
    if (!parameter.all_rows) return;
    std::vector<char> is_done(static_cast<std::size_t>(parameter.rows));
    for (const int row : table.rows()) is_done[static_cast<std::size_t>(row)] = true;
    const std::vector<float> zeros(width);
    for (std::int64_t row = 0; row < parameter.rows; ++row) {
        if (!is_done[static_cast<std::size_t>(row)]) update(row, zeros.data());
    }
}

}  // namespace dpmodule::hogwild
