// `group_numbers` for Python: what is needed to add up the rows of equal numbers, such as those of a table's gradient.
#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "addresses.hpp"

namespace dpmodule {
namespace {

struct GroupItem {
    std::uint64_t number;  // above the least one
    std::int64_t place;
};

struct GroupCall {
    const std::int64_t *numbers;
    std::size_t count;
    const std::int64_t *given;  // the place of each number, null: they count from 0
    std::int64_t *distinct, *starts, *places;
    mutable std::size_t groups;
};

constexpr int digit_bits = 11;
constexpr std::size_t digits = std::size_t{1} << digit_bits;

// Sort by one digit, those that are equal in the order in which they come.
void sort_by_digit(const GroupItem *from, GroupItem *to, std::size_t count, int shift) {
    std::size_t starts[digits + 1] = {};
    const auto digit = [shift](const GroupItem &item) { return (item.number >> shift) & (digits - 1); };
    for (std::size_t i = 0; i < count; ++i) ++starts[digit(from[i]) + 1];
    for (std::size_t i = 0; i < digits; ++i) starts[i + 1] += starts[i];
    for (std::size_t i = 0; i < count; ++i) to[starts[digit(from[i])]++] = from[i];
}

bool group(const GroupCall &call) {
    call.groups = 0;
    if (!call.count) return true;
    const std::unique_ptr<GroupItem[]> memory(new (std::nothrow) GroupItem[2 * call.count]);
    if (!memory) return false;
    GroupItem *items = memory.get(), *other = items + call.count;
    const auto ends = std::minmax_element(call.numbers, call.numbers + call.count);
    const std::uint64_t least = static_cast<std::uint64_t>(*ends.first);
    const std::uint64_t range = static_cast<std::uint64_t>(*ends.second) - least;
    for (std::size_t i = 0; i < call.count; ++i) {
        items[i] = {static_cast<std::uint64_t>(call.numbers[i]) - least,
                    call.given ? call.given[i] : static_cast<std::int64_t>(i)};
    }
    for (int shift = 0; shift < 64 && range >> shift; shift += digit_bits) {
        sort_by_digit(items, other, call.count, shift);
        std::swap(items, other);
    }
    for (std::size_t i = 0; i < call.count; ++i) {
        call.places[i] = items[i].place;
        if (i && items[i].number == items[i - 1].number) continue;
        call.distinct[call.groups] = static_cast<std::int64_t>(items[i].number + least);
        call.starts[call.groups++] = static_cast<std::int64_t>(i);
    }
    return true;
}

std::int64_t *integers(Arguments &next) { return reinterpret_cast<std::int64_t *>(next.floats()); }

PyObject *group_numbers(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 6);
    GroupCall call{};
    call.numbers = integers(next);
    call.count = static_cast<std::size_t>(next.size());
    call.given = integers(next);
    call.distinct = integers(next);
    call.starts = integers(next);
    call.places = integers(next);
    if (!next.good()) return nullptr;
    PyObject *done = without_gil(group, call);
    if (!done) return nullptr;
    Py_DECREF(done);
    return PyLong_FromSize_t(call.groups);
}

// Python keeps a pointer to this table
PyMethodDef group_functions[] = {
    {"group_numbers", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(group_numbers)), METH_FASTCALL,
     "group_numbers(numbers, count, places, distinct, starts, sorted_places)\n--\n\n"
     "Sort int64 numbers, equal ones in the order in which they come, and return how many different ones there are.\n"
     "Arguments are addresses of int64 and a size. Each number has a place, the one it stands at if `places` is 0;\n"
     "`sorted_places` gets them in the new order, `distinct` the different numbers, and `starts` where each begins."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_groups(PyObject *module) { return PyModule_AddFunctions(module, group_functions); }

}  // namespace dpmodule
