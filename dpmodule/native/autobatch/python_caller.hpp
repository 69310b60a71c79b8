// Runs operations without a kernel by two functions in Python.
#pragma once

#include "caller.hpp"
#include "python_state.hpp"

namespace dpmodule::autobatch {

class PythonCaller : public Caller {
  public:
    void forward(const CallBatch &batch) override;
    void backward(const CallBatch &batch) override;
    void draw(int kind, const double *numbers, float *to, std::size_t count) override;
    void set(PyObject *forward, PyObject *backward, PyObject *draw);
    int traverse(visitproc visit, void *arg);
    void clear();

  private:
    void call(PyObject *function, const CallBatch &batch);
    PyObject *forward_ = nullptr, *backward_ = nullptr, *draw_ = nullptr;
};

}  // namespace dpmodule::autobatch
