// The functor that computes CRC-32C.
#include <cstdint>

#include "crc32c.hpp"
#include "python.hpp"
#include "ready.hpp"
#include "string_handle.hpp"

namespace dpmodule {
namespace {

class Crc32c final : public Ready<std::uint32_t> {
  public:
    Crc32c(Bytes input, std::uint32_t value, bool by_table)
        : input_(std::move(input)), value_(value), by_table_(by_table) {}

  private:
    std::uint32_t work() const override {
        return (by_table_ ? crc32c_by_table : crc32c)(value_, input_.begin(), input_.size);
    }
    PyObject *give(const std::uint32_t &made) const override { return PyLong_FromUnsignedLong(made); }

    const Bytes input_;
    const std::uint32_t value_;
    const bool by_table_;
};

PyObject *make_crc32c(PyObject *, PyObject *args) {
    PyObject *data;
    unsigned value;
    int by_table = 0;
    if (!PyArg_ParseTuple(args, "OI|p", &data, &value, &by_table)) return nullptr;
    Bytes input;
    if (!bytes_of_any(data, input)) return nullptr;
    return ready_from([&] { return std::make_shared<Crc32c>(std::move(input), value, by_table != 0); });
}

PyObject *kind(PyObject *, PyObject *) { return PyUnicode_FromString(crc32c_kind()); }

PyMethodDef checksum_functions[] = {
    {"crc32c", make_crc32c, METH_VARARGS, "crc32c(data, value, by_table=False): a functor."},
    {"crc32c_kind", kind, METH_NOARGS, "How it computes here: sse4.2, arm or table."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_checksum(PyObject *module) { return PyModule_AddFunctions(module, checksum_functions); }

}  // namespace dpmodule
