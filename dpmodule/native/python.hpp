// Python's C API as the files here use it, and the functions by which they add their types to the module.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

namespace dpmodule {

// A function as a slot of a type.
template <class F>
void *slot(F function) {
    return reinterpret_cast<void *>(function);
}

// Floats at an address that Python has given as a number.
inline float *pointer(unsigned long long address) {
    return reinterpret_cast<float *>(static_cast<std::uintptr_t>(address));
}

int add_functor(PyObject *module);      // functor_type.cpp
int add_signal_bus(PyObject *module);   // signal_bus_type.cpp
int add_thread_pool(PyObject *module);  // thread_pool_type.cpp
int add_worker(PyObject *module);       // worker_type.cpp

int add_conv3x3(PyObject *module);             // conv3x3_python.cpp
int add_convolution(PyObject *module);         // convolution_python.cpp
int add_counts(PyObject *module);              // counts.cpp
int add_few_rows(PyObject *module);            // few_rows_python.cpp
int add_finite(PyObject *module);              // finite_python.cpp
int add_groups(PyObject *module);              // groups.cpp
int add_io(PyObject *module);                  // io/io_python.cpp
int add_lstm(PyObject *module);                // lstm_python.cpp
int add_norm(PyObject *module);                // norm_python.cpp
int add_pooling(PyObject *module);             // pooling_python.cpp
int add_product(PyObject *module);             // product_python.cpp
int add_softmax(PyObject *module);             // softmax_python.cpp
int add_string_handle(PyObject *module);       // string_handle.cpp
int add_windows(PyObject *module);             // windows.cpp
int add_ready(PyObject *module);               // functors/ready.cpp
int add_callback(PyObject *module);            // functors/callback.cpp
int add_deflate(PyObject *module);             // functors/deflate.cpp
int add_checksum(PyObject *module);            // functors/checksum.cpp
int add_copy(PyObject *module);                // functors/copy.cpp
int add_multislot(PyObject *module);           // functors/multislot_functor.cpp
int add_records(PyObject *module);             // functors/records.cpp
int add_row_updates(PyObject *module);         // vector/update_python.cpp
int add_pipe_reader(PyObject *module);         // pipe/reader.cpp
int add_pipe_writer(PyObject *module);         // pipe/writer.cpp
int add_autobatch_node(PyObject *module);      // autobatch/node_type.cpp
int add_autobatch_function(PyObject *module);  // autobatch/function_type.cpp
int add_autobatch_numbers(PyObject *module);   // autobatch/python_numbers.cpp
int add_autobatch_update(PyObject *module);    // autobatch/update_functions.cpp
int add_autobatch_engine(PyObject *module);    // autobatch/engine_type.cpp
int add_autobatch_layers(PyObject *module);    // autobatch/layers_type.cpp
int add_autobatch_state(PyObject *module);     // autobatch/state_type.cpp
int add_hogwild_run(PyObject *module);         // hogwild/run_type.cpp

}  // namespace dpmodule
