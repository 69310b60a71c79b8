// The module `dpmodule._native`: collects what the other files define.
#include "python.hpp"

namespace {

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "dpmodule._native",
                          "The native side of dpmodule; use dpmodule.native.",
                          -1,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

using Add = int (*)(PyObject *);
constexpr Add parts[] = {
    dpmodule::add_functor,
    dpmodule::add_signal_bus,
    dpmodule::add_thread_pool,
    dpmodule::add_worker,
    dpmodule::add_conv3x3,
    dpmodule::add_convolution,
    dpmodule::add_counts,
    dpmodule::add_few_rows,
    dpmodule::add_finite,
    dpmodule::add_groups,
    dpmodule::add_io,
    dpmodule::add_lstm,
    dpmodule::add_norm,
    dpmodule::add_pooling,
    dpmodule::add_product,
    dpmodule::add_softmax,
    dpmodule::add_string_handle,
    dpmodule::add_windows,
    dpmodule::add_ready,
    dpmodule::add_callback,
    dpmodule::add_deflate,
    dpmodule::add_checksum,
    dpmodule::add_copy,
    dpmodule::add_multislot,
    dpmodule::add_records,
    dpmodule::add_row_updates,
    dpmodule::add_pipe_reader,
    dpmodule::add_pipe_writer,
    dpmodule::add_autobatch_node,
    dpmodule::add_autobatch_function,
    dpmodule::add_autobatch_numbers,
    dpmodule::add_autobatch_engine,
    dpmodule::add_autobatch_layers,
    dpmodule::add_autobatch_state,
    dpmodule::add_autobatch_update,
    dpmodule::add_hogwild_run,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return nullptr;
    for (Add add : parts) {
        if (add && add(module) < 0) {
            Py_DECREF(module);
            return nullptr;
        }
    }
    if (PyModule_AddStringConstant(module, "fingerprint", DPMODULE_FINGERPRINT) < 0) Py_CLEAR(module);
    return module;
}
