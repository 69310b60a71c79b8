#include "pipe/sending.hpp"

#include <algorithm>
#include <ctime>

namespace dpmodule::pipe {
namespace {

constexpr int64_t look_every_ns = 100'000'000;
constexpr int64_t worth_sharing = 64 << 10;     // bytes from which on a tensor is asked whether it is shared
constexpr int64_t worth_unlocking = 256 << 10;  // bytes from which on copying lets other threads run
constexpr size_t most_ranges = 64;

int64_t now_ns() {
    timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// Write only what differs: the reader's processor has the lines too.
inline void put(int64_t &word, int64_t value) {
    if (word != value) word = value;
}

}  // namespace

// A call under way. Values' own code runs in it, and other threads while it copies.
class Sending::Busy {
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

Sending::Sending(int fd, int own_fd, int other_fd, PyObject *find)
    : control(fd, other_fd, writer), waiting(own_fd), slots(control.slots()), find_(Py_NewRef(find)) {}

Sending::~Sending() {
    drop_leaves();
    Py_DECREF(find_);
}

bool Sending::is_ready() {
    for (int i = 0; i < static_cast<int>(slots.size()); i++) {
        if (is_free(i)) return true;
    }
    return false;
}

bool Sending::known(const char *data) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range &r) { return data >= r.start && data < r.end; });
}

void Sending::drop_leaves() {
    for (Leaf &leaf : leaves_) Py_CLEAR(leaf.object);
    for (PyObject *&object : objects_) Py_CLEAR(object);
    leaves_.clear();
    objects_.clear();
}

void Sending::release() {
    release_later_ = busy;
    if (busy) return;
    for (WriterSlot &slot : slots) slot = WriterSlot();
}

// Whether it is time to see if the reader is still there.
bool Sending::overdue() {
    int64_t now = now_ns();
    if (now < look_at_ns_ && !control.state(reader).load(std::memory_order_relaxed)) return false;
    look_at_ns_ = now + look_every_ns;
    return true;
}

// Take the tensors of the value apart.
Status Sending::look_at_leaves() {
    leaves_.resize(objects_.size());
    bool has_foreign = false;
    for (size_t i = 0; i < objects_.size(); i++) {
        Look found = torch.look(objects_[i], leaves_[i]);
        if (found == Look::failed) return failed;
        if (found == Look::other) return unfit;
        has_foreign |= found == Look::foreign;
    }
    return has_foreign ? foreign : sent;
}

void Sending::remember(const char *start, int64_t size) {
    if (known(start) && known(start + size - 1)) return;
    ranges_.push_back({start, start + size});
    if (ranges_.size() > most_ranges) ranges_.erase(ranges_.begin());
}

// Ask where a tensor lies. False with an exception.
bool Sending::ask(const Leaf &leaf, Place &place) {
    PyObject *answer = PyObject_CallOneArg(find_, leaf.object);
    if (!answer) return false;
    bool good = true;
    if (answer != Py_None) {
        long long number, offset, size;
        good = PyArg_ParseTuple(answer, "LLLI", &number, &offset, &size, &frames);
        if (good) {
            place = {true, number, offset};
            remember(leaf.data - offset, size);
        }
    }
    Py_DECREF(answer);
    return good;
}

// Find out which leaves the reader can see where they lie. False with an exception.
bool Sending::find_places(const WriterSlot *leased) {
    places_.assign(leaves_.size(), Place());
    private_at_.resize(leaves_.size(), nullptr);
    for (size_t i = 0; i < leaves_.size(); i++) {
        Leaf &leaf = leaves_[i];
        if (leaf.bytes == 0) continue;
        if (leased && leased->memory->contains(leaf.data, leaf.extent())) {
            places_[i] = {true, Table::own, leaf.data - leased->memory->at(0)};
        } else if (known(leaf.data) || (leaf.bytes >= worth_sharing && leaf.data != private_at_[i])) {
            if (!ask(leaf, places_[i])) return false;
            if (!places_[i].visible) private_at_[i] = leaf.data;
        }
    }
    return true;
}

bool Sending::fits(const WriterSlot &slot) const {
    for (size_t i = 0; i < leaves_.size(); i++) {
        const Leaf &leaf = leaves_[i];
        if (leaf.ndim > slot.axes || (!places_[i].visible && leaf.bytes > slot.homes[i].capacity)) return false;
    }
    return true;
}

void Sending::describe(const Table &table, int number, const Leaf &leaf, const Place &place) {
    Record &record = table[number];
    put(record.code, leaf.code);
    put(record.source, place.source);
    put(record.offset, place.offset);
    put(record.ndim, leaf.ndim);
    put(record.bytes, leaf.bytes);
    int64_t *shape = table.shape(number), *strides = table.strides(number);
    bool as_it_lies = place.visible || leaf.dense;
    int64_t step = 1;
    for (int axis = leaf.ndim - 1; axis >= 0; axis--) {
        put(shape[axis], leaf.shape[axis]);
        put(strides[axis], as_it_lies ? leaf.strides[axis] : step);
        step *= std::max<int64_t>(leaf.shape[axis], 1);
    }
}

void Sending::copy_all(const WriterSlot &slot) const {
    for (size_t i = 0; i < leaves_.size(); i++) {
        if (!places_[i].visible) copy(slot.memory->at(slot.homes[i].offset), leaves_[i]);
    }
}

void Sending::write(WriterSlot &slot) {
    Table table(*slot.memory);
    int64_t bytes = 0;
    for (size_t i = 0; i < leaves_.size(); i++) {
        Place &place = places_[i];
        if (!place.visible) {
            place.offset = slot.homes[i].offset;
            bytes += leaves_[i].bytes;
        }
        (place.visible ? zero_copy : copied)++;
        describe(table, static_cast<int>(i), leaves_[i], place);
    }
    if (bytes < worth_unlocking) return copy_all(slot);
    Py_BEGIN_ALLOW_THREADS
    copy_all(slot);
    Py_END_ALLOW_THREADS
}

void Sending::publish(uint64_t kind, int slot) {
    if (slot >= 0) control.slot(slot).store(1, std::memory_order_relaxed);
    uint64_t head = control.head().load(std::memory_order_relaxed);
    uint64_t entry = kind | static_cast<uint64_t>(std::max(slot, 0)) << 8 | static_cast<uint64_t>(frames) << 32;
    control.ring(head).store(entry, std::memory_order_relaxed);
    control.head().store(head + 1, std::memory_order_release);
    control.wake_other();
}

Status Sending::try_slot(int number, PyObject *value, bool leased) {
    WriterSlot &slot = slots[number];
    if (!slot.outline || !slot.outline->match(value, objects_)) return unfit;
    Status found = look_at_leaves();
    if (found == sent && !find_places(leased ? &slot : nullptr)) found = failed;
    if (found == sent && !fits(slot)) found = unfit;
    if (found == sent) {
        write(slot);
        publish(data, number);
        messages++;
    }
    drop_leaves();
    return found;
}

Status Sending::send(PyObject *value, int leased) {
    if (busy || overdue()) return look;
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

Status Sending::send_wait(PyObject *value) {
    Status found = send(value, -1);
    if (found != full) return found;
    int is_good = fits(value);  // what cannot be sent fails before any waiting
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

int Sending::fits(PyObject *value) {
    if (busy) return false;
    Busy call(*this);
    for (WriterSlot &slot : slots) {
        if (!slot.outline || !slot.outline->match(value, objects_)) continue;
        Status found = look_at_leaves();
        drop_leaves();
        if (found == failed) return -1;
        if (found != unfit) return true;
    }
    return false;
}

}  // namespace dpmodule::pipe
