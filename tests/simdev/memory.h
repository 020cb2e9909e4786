// Memory of the simulated accelerator. A device address lies in a range without rights, so that the host cannot read it
// (a segmentation fault); kernels find the bytes at the same distance in a second range. What is freed is filled with
// ones in the order of its stream, and used again for the same size by the stream that had it.
#pragma once
#include <sys/mman.h>

#include <map>
#include <unordered_map>

#include <c10/core/Allocator.h>

#include "streams.h"

namespace sim {

struct Block {
  size_t size;
  int64_t stream;
  std::vector<int64_t> users;  // other streams whose kernels use it
};

struct Memory {
  static constexpr size_t RANGE = size_t(1) << 34;
  std::mutex lock;
  char *device = nullptr, *host = nullptr;
  size_t used = 0;  // of the range
  size_t allocated = 0, peak = 0, limit = RANGE;
  std::unordered_map<char*, Block> blocks;
  std::map<std::pair<int64_t, size_t>, std::vector<char*>> free;

  Memory() {
    auto range = [](int rights) {
      void* at = mmap(nullptr, RANGE, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      TORCH_CHECK(at != MAP_FAILED, "sim: no address space");
      return static_cast<char*>(at);
    };
    device = range(PROT_NONE);
    host = range(PROT_READ | PROT_WRITE);
  }
  bool holds(const void* at) const { return at >= device && at < device + RANGE; }
  char* allocate(size_t bytes) {
    size_t size = ((bytes ? bytes : 1) + 511) / 512 * 512;
    std::lock_guard<std::mutex> held(lock);
    TORCH_CHECK_WITH(OutOfMemoryError, allocated + size <= limit && used + size <= RANGE,
                     "sim: out of memory. Tried to allocate ", size, " bytes; ", allocated, " are in use");
    auto& known = free[{current_stream, size}];
    char* at;
    // A graph has memory of its own: what is left to do with that of others is not in order of its replays.
    if (known.empty() || queue(current_stream).capture) {
      at = device + used;
      used += size;
    } else {
      at = known.back();
      known.pop_back();
    }
    blocks[at] = {size, current_stream, {}};
    allocated += size;
    peak = std::max(peak, allocated);
    return at;
  }
  void release(char* at) {
    Block block;
    {
      std::lock_guard<std::mutex> held(lock);
      auto found = blocks.find(at);
      if (found == blocks.end()) return;
      block = std::move(found->second);
      blocks.erase(found);
      allocated -= block.size;
    }
    char* bytes = host + (at - device);
    for (int64_t user : block.users) {
      long ticket = queue(user).last();
      queue(block.stream).put([user, ticket] { queue(user).wait(ticket); });
    }
    queue(block.stream).put([bytes, size = block.size] { memset(bytes, 0xff, std::min<size_t>(size, 1 << 16)); });
    std::lock_guard<std::mutex> held(lock);
    free[{block.stream, block.size}].push_back(at);
  }
  void note_user(void* at, int64_t stream) {
    std::lock_guard<std::mutex> held(lock);
    auto found = blocks.find(static_cast<char*>(at));
    if (found != blocks.end() && found->second.stream != stream) found->second.users.push_back(stream);
  }
};
inline Memory& memory() { static auto* all = new Memory(); return *all; }
inline void* host_address(const void* at) { return memory().host + (static_cast<const char*>(at) - memory().device); }

// Pinned memory of the host: known by its addresses, given back when the device has done all that was asked.
struct Pinned {
  std::mutex lock;
  std::map<char*, size_t> blocks;
  size_t bytes = 0;
  bool holds(const void* pointer) {
    auto* at = static_cast<char*>(const_cast<void*>(pointer));
    std::lock_guard<std::mutex> held(lock);
    auto behind = blocks.upper_bound(at);
    if (behind == blocks.begin()) return false;
    --behind;
    return at < behind->first + behind->second;
  }
  void* allocate(size_t size) {
    if (auto& graph = queue(current_stream).capture) {
      graph->broken = true;
      TORCH_CHECK(false, "sim: operation not permitted when stream is capturing (pinned memory)");
    }
    auto* at = static_cast<char*>(malloc(size ? size : 1));
    std::lock_guard<std::mutex> held(lock);
    blocks[at] = size ? size : 1;
    bytes += size;
    return at;
  }
  void release(void* pointer) {
    auto* at = static_cast<char*>(pointer);
    {
      std::lock_guard<std::mutex> held(lock);
      auto found = blocks.find(at);
      if (found == blocks.end()) return;
      bytes -= found->second;
      blocks.erase(found);
    }
    std::vector<long> tickets;
    for (int i = 0; i < STREAMS; ++i) tickets.push_back(queue(i).last());
    queue(0).put([at, tickets] {
      for (int i = 1; i < STREAMS; ++i) queue(i).wait(tickets[i]);
      free(at);
    });
  }
};
inline Pinned& pinned() { static auto* all = new Pinned(); return *all; }

}  // namespace sim
