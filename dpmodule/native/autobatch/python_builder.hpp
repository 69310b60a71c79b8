// The builder of the current engine.
#pragma once

#include <vector>

#include "builder.hpp"
#include "python_state.hpp"

namespace dpmodule::autobatch {

extern Builder *builder_of_current;
inline Builder &current_builder() { return *builder_of_current; }

// Nodes of a list or tuple; more than fit on the stack go to the heap.
class Nodes {
  public:
    // False: some are no expressions of this graph.
    bool read(PyObject *sequence) {
        if (!PyList_CheckExact(sequence) && !PyTuple_CheckExact(sequence)) return false;
        count = static_cast<int>(PySequence_Fast_GET_SIZE(sequence));
        if (count == 0) return false;
        if (count > few) {
            many_.resize(count);
            at = many_.data();
        }
        for (int i = 0; i < count; i++) {
            // entering a parameter may run Python, which may change a list
            if (i >= PySequence_Fast_GET_SIZE(sequence)) return false;
            at[i] = node_of(PySequence_Fast_GET_ITEM(sequence, i));
            if (at[i] < 0) return false;
        }
        return true;
    }
    // Of arguments, which are few.
    bool read(PyObject *const *arguments, Py_ssize_t number) {
        for (count = 0; count < number; count++) {
            if ((at[count] = node_of(arguments[count])) < 0) return false;
        }
        return true;
    }
    int count = 0;
    int *at = few_;

  private:
    static constexpr int few = 16;
    int few_[few];
    std::vector<int> many_;
};

}  // namespace dpmodule::autobatch
