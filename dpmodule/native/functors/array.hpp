// Growing array for results of unknown size: like std::vector, but it does not zero its memory, and large blocks grow
// by realloc, which moves pages rather than bytes.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "dpmodule/functor.h"

namespace dpmodule {

template <typename Value>
class Array {
    static_assert(std::is_trivially_copyable_v<Value>, "values are moved by realloc");

  public:
    Array() = default;
    Array(Array &&other) noexcept : data_(other.data_), size_(other.size_), room_(other.room_) { other.forget(); }
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;
    ~Array() { std::free(data_); }

    Value *data() noexcept { return data_; }
    const Value *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    std::size_t room() const noexcept { return room_; }
    Value &operator[](std::size_t i) noexcept { return data_[i]; }
    const Value &operator[](std::size_t i) const noexcept { return data_[i]; }

    // Make room for `count` values in all. Throws std::bad_alloc.
    void reserve(std::size_t count) {
        if (count <= room_) return;
        if (count > static_cast<std::size_t>(-1) / 2 / sizeof(Value)) throw std::bad_alloc();
        void *moved = std::realloc(static_cast<void *>(data_), count * sizeof(Value));
        if (!moved) throw std::bad_alloc();
        data_ = static_cast<Value *>(moved);
        room_ = count;
    }

    // Make room for `more` additional values, and some slack.
    void grow(std::size_t more) {
        if (more > room_ - size_) reserve(size_ + more + (size_ + more) / 2);
    }

    void push(Value value) {
        if (size_ == room_) grow(16);
        data_[size_++] = value;
    }

    // Set the number of values after writing to data(); at most room().
    void resize(std::size_t count) noexcept { size_ = count; }

    // Shrink the memory to fit and transfer its ownership to the result.
    Bytes release() {
        if (size_ < room_ && size_ > 0) {
            void *fitted = std::realloc(static_cast<void *>(data_), size_ * sizeof(Value));
            if (fitted) data_ = static_cast<Value *>(fitted);
        }
        Bytes bytes{reinterpret_cast<const std::byte *>(data_), size_ * sizeof(Value), nullptr};
        Value *memory = data_;
        forget();
        bytes.owner = std::shared_ptr<const void>(memory, [](const void *p) { std::free(const_cast<void *>(p)); });
        return bytes;
    }

  private:
    void forget() noexcept {
        data_ = nullptr;
        size_ = room_ = 0;
    }

    Value *data_ = nullptr;
    std::size_t size_ = 0, room_ = 0;
};

}  // namespace dpmodule
