// Sending structures: inspect a value, find a slot for it, copy, publish.
#pragma once

#include <algorithm>
#include <ctime>
#include <memory>
#include <vector>

#include "pipe/control.hpp"
#include "pipe/core.hpp"
#include "pipe/loan.hpp"
#include "pipe/outline.hpp"
#include "pipe/tensors.hpp"
#include "python.hpp"

namespace dpmodule::pipe {

// Results of the Python type's `send` (streams/pipe/control.py); `failed` means a Python exception.
enum Status { sent = 0, full = 1, unfit = 2, foreign = 3, look = 4, failed = -1 };

struct Space {
    int64_t offset, capacity;
};

struct WriterSlot {
    MemoryPtr memory;
    std::unique_ptr<Outline> outline;
    std::vector<Space> spaces;
    int axes = 0;
};

// Location of a tensor that the reader sees: in the slot, or in a shared block.
struct Location {
    bool visible = false;
    int64_t source = Table::own, offset = 0;
};

constexpr int64_t reader_check_interval_ns = 100'000'000;
constexpr int64_t worth_sharing = 64 << 10;     // smallest tensor, in bytes, that is checked for being shared
constexpr int64_t worth_unlocking = 256 << 10;  // smallest copy, in bytes, that releases the GIL
constexpr size_t most_ranges = 64;

inline int64_t now_ns() {
    timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// Write only changed words: the reader's core has the cache lines, too.
inline void store_if_changed(int64_t &word, int64_t value) {
    if (word != value) word = value;
}

class Sending {
  public:
    // `find` is SharedBlocks.find of streams/pipe/external_memory.py. Throws std::system_error.
    Sending(int fd, int own_fd, int other_fd, PyObject *find)
        : control(fd, other_fd, writer), waiting(own_fd), slots(control.slots()), find_(Py_NewRef(find)) {}
    ~Sending() {
        drop_leaves();
        Py_DECREF(find_);
    }

    // Send to any free slot that has the value's outline and room for it, or to a leased one. May throw.
    Status send(PyObject *value, int leased) {
        if (busy || reader_check_due()) return look;
        Busy call(*this);
        if (leased >= 0) return try_slot(leased, value, true);
        Status found = full;
        for (int i = 0; i < static_cast<int>(slots.size()); i++) {
            if (!is_free(i)) continue;
            found = try_slot(i, value, false);
            if (found != unfit) return found;
        }
        return found;
    }
    // Send to any free slot, waiting if none is free; `full` if something else comes first. May throw.
    Status send_wait(PyObject *value) {
        Status found = send(value, -1);
        if (found != full) return found;
        int is_good = fits(value);  // values that cannot be sent fail before any waiting
        if (is_good <= 0) return is_good < 0 ? failed : full;
        int event;
        {
            Busy call(*this);
            Py_BEGIN_ALLOW_THREADS
            event = waiting.wait(control, -1, [this] { return is_ready(); });
            Py_END_ALLOW_THREADS
        }
        if (event < 0 && PyErr_CheckSignals() < 0) return failed;
        return send(value, -1);
    }
    // Return 1 if a slot has the value's outline and its tensors can be sent; -1 with an exception. May throw.
    int fits(PyObject *value) {
        if (busy) return false;
        Busy call(*this);
        for (WriterSlot &slot : slots) {
            if (!slot.outline || !slot.outline->match(value, objects_)) continue;
            Status found = inspect_leaves();
            drop_leaves();
            if (found == failed) return -1;
            if (found != unfit) return true;
        }
        return false;
    }
    // Make a message visible to the reader and wake it.
    void publish(uint64_t kind, int slot) {
        if (slot >= 0) control.slot(slot).store(1, std::memory_order_relaxed);
        uint64_t head = control.head().load(std::memory_order_relaxed);
        uint64_t entry = kind | static_cast<uint64_t>(std::max(slot, 0)) << 8 | static_cast<uint64_t>(frames) << 32;
        control.ring(head).store(entry, std::memory_order_relaxed);
        control.head().store(head + 1, std::memory_order_release);
        control.wake_other();
    }
    // Write a tensor's type, shape and location to a slot's record.
    static void describe(const Table &table, int number, const Leaf &leaf, const Location &location) {
        Record &record = table[number];
        store_if_changed(record.code, leaf.code);
        store_if_changed(record.source, location.source);
        store_if_changed(record.offset, location.offset);
        store_if_changed(record.ndim, leaf.ndim);
        store_if_changed(record.bytes, leaf.bytes);
        int64_t *shape = table.shape(number), *strides = table.strides(number);
        bool keeps_strides = location.visible || leaf.dense;
        int64_t step = 1;
        for (int axis = leaf.ndim - 1; axis >= 0; axis--) {
            store_if_changed(shape[axis], leaf.shape[axis]);
            store_if_changed(strides[axis], keeps_strides ? leaf.strides[axis] : step);
            step *= std::max<int64_t>(leaf.shape[axis], 1);
        }
    }
    // Record that these addresses belong to a shared block, so that tensors there are looked up.
    void remember(const char *start, int64_t size) {
        if (known(start) && known(start + size - 1)) return;
        ranges_.push_back({start, start + size});
        if (ranges_.size() > most_ranges) ranges_.erase(ranges_.begin());
    }
    // Release all memory; if a call runs in another thread, when it ends.
    void release() {
        release_later_ = busy;
        if (busy) return;
        for (WriterSlot &slot : slots) slot = WriterSlot();
    }

    bool is_free(int slot) { return control.slot(slot).load(std::memory_order_acquire) == 0; }
    bool is_ready() {
        for (int i = 0; i < static_cast<int>(slots.size()); i++) {
            if (is_free(i)) return true;
        }
        return false;
    }

    Control control;
    Waiting waiting;
    std::vector<WriterSlot> slots;
    bool busy = false;  // a call is running; it may have released the GIL
    unsigned frames = 0;
    unsigned long long messages = 0, zero_copy = 0, copied = 0;

  private:
    struct Range {
        const char *start, *end;
    };
    // Running call. The code of the values runs in it, and other threads do while it copies.
    class Busy {
      public:
        explicit Busy(Sending &sending) : sending_(sending) { sending_.busy = true; }
        ~Busy() {
            sending_.drop_leaves();
            sending_.busy = false;
            if (sending_.release_later_) sending_.release();
        }

      private:
        Sending &sending_;
    };

    // Return true if it is time to check that the reader still exists.
    bool reader_check_due() {
        int64_t now = now_ns();
        if (now < next_reader_check_ns_ && !control.state(reader).load(std::memory_order_relaxed)) return false;
        next_reader_check_ns_ = now + reader_check_interval_ns;
        return true;
    }
    // Read the tensors of the value.
    Status inspect_leaves() {
        leaves_.resize(objects_.size());
        bool has_foreign = false;
        for (size_t i = 0; i < objects_.size(); i++) {
            TensorKind found = torch.inspect(objects_[i], leaves_[i]);
            if (found == TensorKind::failed) return failed;
            if (found == TensorKind::other) return unfit;
            has_foreign |= found == TensorKind::foreign;
        }
        return has_foreign ? foreign : sent;
    }
    // Ask the Python side for a tensor's location. False with an exception.
    bool ask_location(const Leaf &leaf, Location &location) {
        PyObject *answer = PyObject_CallOneArg(find_, leaf.object);
        if (!answer) return false;
        bool good = true;
        if (answer != Py_None) {
            long long number, offset, size;
            good = PyArg_ParseTuple(answer, "LLLI", &number, &offset, &size, &frames);
            if (good) {
                location = {true, number, offset};
                remember(leaf.data - offset, size);
            }
        }
        Py_DECREF(answer);
        return good;
    }
    // Find the leaves in memory that the reader sees. False with an exception.
    bool locate_leaves(const WriterSlot *leased) {
        locations_.assign(leaves_.size(), Location());
        private_at_.resize(leaves_.size(), nullptr);
        for (size_t i = 0; i < leaves_.size(); i++) {
            Leaf &leaf = leaves_[i];
            if (leaf.bytes == 0) continue;
            if (leased && leased->memory->contains(leaf.data, leaf.extent())) {
                locations_[i] = {true, Table::own, leaf.data - leased->memory->at(0)};
            } else if (known(leaf.data) || (leaf.bytes >= worth_sharing && leaf.data != private_at_[i])) {
                if (!ask_location(leaf, locations_[i])) return false;
                if (!locations_[i].visible) private_at_[i] = leaf.data;
            }
        }
        return true;
    }
    bool fits(const WriterSlot &slot) const {
        for (size_t i = 0; i < leaves_.size(); i++) {
            const Leaf &leaf = leaves_[i];
            if (leaf.ndim > slot.axes || (!locations_[i].visible && leaf.bytes > slot.spaces[i].capacity)) return false;
        }
        return true;
    }
    void copy_all(const WriterSlot &slot) const {
        for (size_t i = 0; i < leaves_.size(); i++) {
            if (!locations_[i].visible) copy(slot.memory->at(slot.spaces[i].offset), leaves_[i]);
        }
    }
    void write(WriterSlot &slot) {
        Table table(*slot.memory);
        int64_t bytes = 0;
        for (size_t i = 0; i < leaves_.size(); i++) {
            Location &location = locations_[i];
            if (!location.visible) {
                location.offset = slot.spaces[i].offset;
                bytes += leaves_[i].bytes;
            }
            (location.visible ? zero_copy : copied)++;
            describe(table, static_cast<int>(i), leaves_[i], location);
        }
        if (bytes < worth_unlocking) return copy_all(slot);
        Py_BEGIN_ALLOW_THREADS
        copy_all(slot);
        Py_END_ALLOW_THREADS
    }
    Status try_slot(int number, PyObject *value, bool leased) {
        WriterSlot &slot = slots[number];
        if (!slot.outline || !slot.outline->match(value, objects_)) return unfit;
        Status found = inspect_leaves();
        if (found == sent && !locate_leaves(leased ? &slot : nullptr)) found = failed;
        if (found == sent && !fits(slot)) found = unfit;
        if (found == sent) {
            write(slot);
            publish(data, number);
            messages++;
        }
        drop_leaves();
        return found;
    }
    bool known(const char *data) const {
        return std::any_of(ranges_.begin(), ranges_.end(),
                           [&](const Range &r) { return data >= r.start && data < r.end; });
    }
    void drop_leaves() {
        for (Leaf &leaf : leaves_) Py_CLEAR(leaf.object);
        for (PyObject *&object : objects_) Py_CLEAR(object);
        leaves_.clear();
        objects_.clear();
    }

    PyObject *find_;
    bool release_later_ = false;
    int64_t next_reader_check_ns_ = 0;
    std::vector<Range> ranges_;             // current and former addresses of known shared blocks
    std::vector<const char *> private_at_;  // address of each leaf when last found not to be shared
    std::vector<PyObject *> objects_;       // leaves of the value being sent
    std::vector<Leaf> leaves_;
    std::vector<Location> locations_;
};

}  // namespace dpmodule::pipe
