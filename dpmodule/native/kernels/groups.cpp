#include "groups.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

namespace dpmodule {
namespace {

struct GroupItem {
    std::uint64_t number;  // above the least one
    std::int64_t place;
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

}  // namespace

bool group_numbers(const Groups &call) {
    call.found = 0;
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
        call.distinct[call.found] = static_cast<std::int64_t>(items[i].number + least);
        call.starts[call.found++] = static_cast<std::int64_t>(i);
    }
    return true;
}

}  // namespace dpmodule
