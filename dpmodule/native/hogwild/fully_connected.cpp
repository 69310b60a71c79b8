// A dense layer: products of matrices in blocks, by the kernels of autobatch.
#include <algorithm>

#include "kernels/kernels.hpp"
#include "layers.hpp"

namespace dpmodule::hogwild {
namespace {

using vector::Layout;

class FullyConnectedLayer final : public Layer {
  public:
    FullyConnectedLayer(Inputs inputs, Value &output, DenseInput weight, DenseInput bias)
        : Layer(std::move(inputs), output), weight_(weight), bias_(bias), units_(output.width), width_(in(0).width),
          packed_(vector::packed_size(kernels_, width_, units_)) {}

    void forward(Frame &frame) override {
        vector::pack(kernels_, width_, units_, weight_.weight(), width_, true, packed_.data());
        kernels_.product({in(0).rows(frame.batch), units_, width_, in(0).data, width_, 1, packed_.data(),
                          Layout::Packed, 0, output_.data, units_, bias_.weight(), false});
    }

    void backward(Frame &frame) override {
        const int rows = in(0).rows(frame.batch);
        const float *slopes = output_.gradient;
        kernels_.product({units_, width_, rows, slopes, 1, units_, in(0).data, Layout::Rows, width_,
                          weight_.gradient->values.data(), width_, nullptr, weight_.add});
        if (bias_.gradient) {
            std::vector<float> &values = bias_.gradient->values;
            if (!bias_.add) std::fill(values.begin(), values.end(), 0.0f);
            kernels_.sum_rows(rows, units_, values.data(), {output_.gradient, units_}, nullptr);
        }
        if (inputs_[0].wanted) {
            kernels_.product({rows, width_, units_, slopes, units_, 1, weight_.weight(), Layout::Rows, width_,
                              in(0).gradient, width_, nullptr, inputs_[0].add});
        }
    }

  private:
    const vector::Kernels &kernels_ = vector::kernels();
    const DenseInput weight_, bias_;
    const int units_, width_;
    std::vector<float> packed_;
};

}  // namespace

LayerPointer make_fully_connected(Inputs inputs, Value &output, DenseInput weight, DenseInput bias) {
    return std::make_unique<FullyConnectedLayer>(std::move(inputs), output, weight, bias);
}

}  // namespace dpmodule::hogwild
