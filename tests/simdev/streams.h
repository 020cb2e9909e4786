// Streams of the simulated accelerator: threads that run what is enqueued in order, events, capture and replay, and the
// waits of the host, each of which is counted and may be an error.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

namespace sim {

constexpr auto DEVICE = c10::DeviceType::PrivateUse1;
constexpr int STREAMS = 8;  // 0 is the default stream

using Work = std::function<void()>;

// What was enqueued while a capture was on, in an order in which it may run.
struct Graph {
  std::vector<Work> work;
  std::vector<c10::Storage> memory;
  bool broken = false;
};

// Never destroyed: threads wait in it when the process ends.
struct Queue {
  std::mutex lock;
  std::condition_variable changed;
  std::deque<Work> work;
  long asked = 0, done = 0;
  bool started = false;
  std::shared_ptr<Graph> capture;  // what is enqueued goes there

  void run() {
    for (;;) {
      Work next;
      {
        std::unique_lock<std::mutex> held(lock);
        changed.wait(held, [this] { return !work.empty(); });
        next = std::move(work.front());
        work.pop_front();
      }
      next();
      next = nullptr;
      {
        std::lock_guard<std::mutex> held(lock);
        ++done;
      }
      changed.notify_all();
    }
  }
  long put(Work one) {
    long ticket;
    {
      std::lock_guard<std::mutex> held(lock);
      if (!started) {
        started = true;
        std::thread([this] { run(); }).detach();
      }
      work.push_back(std::move(one));
      ticket = ++asked;
    }
    changed.notify_all();
    return ticket;
  }
  long last() { std::lock_guard<std::mutex> held(lock); return asked; }
  bool is_done(long ticket) { std::lock_guard<std::mutex> held(lock); return done >= ticket; }
  void wait(long ticket) {
    std::unique_lock<std::mutex> held(lock);
    changed.wait(held, [&] { return done >= ticket; });
  }
};

inline Queue& queue(int64_t stream) {
  static auto* all = new std::array<Queue, STREAMS>();
  TORCH_CHECK(stream >= 0 && stream < STREAMS, "sim has no stream ", stream);
  return (*all)[stream];
}

struct Event {
  int64_t stream;
  long ticket;
  std::shared_ptr<Graph> capture;
};

inline thread_local int64_t current_stream = 0;

struct Counts {
  std::atomic<long> launches{0}, waits{0}, slow_us{0};
  std::atomic<bool> waiting_is_error{false};
  // What fails when it is launched next, once.
  std::atomic<std::string*> breaks{nullptr};
  // Called with the name of what waits or is launched; never destroyed.
  pybind11::object *on_wait = nullptr, *on_launch = nullptr;
};
inline Counts& counts() { static auto* all = new Counts(); return *all; }

inline void say(pybind11::object* whom, const std::string& what) {
  if (!whom) return;
  pybind11::gil_scoped_acquire gil;
  try {
    (*whom)(what);
  } catch (pybind11::error_already_set& error) {
    fprintf(stderr, "sim: %s\n", error.what());
  }
}

// The host is about to wait for the device. No interpreter lock is held while it does.
inline void host_waits(const std::string& what, const Work& wait) {
  auto& graph = queue(current_stream).capture;
  if (graph) {
    graph->broken = true;
    TORCH_CHECK(false, "sim: operation not permitted when stream is capturing (", what, ")");
  }
  TORCH_CHECK(!counts().waiting_is_error, "sim: called a synchronizing operation (", what, ")");
  ++counts().waits;
  say(counts().on_wait, what);
  if (PyGILState_Check()) {
    pybind11::gil_scoped_release released;
    wait();
  } else {
    wait();
  }
}
inline void wait_for_stream(const std::string& what, int64_t stream) {
  host_waits(what, [stream] { auto& one = queue(stream); one.wait(one.last()); });
}
inline void wait_for_all(const std::string& what) {
  host_waits(what, [] { for (int i = 0; i < STREAMS; ++i) queue(i).wait(queue(i).last()); });
}

// Run on the current stream; into the graph while it is captured.
inline void enqueue(Work work) {
  auto& one = queue(current_stream);
  if (one.capture) {
    one.capture->work.push_back(std::move(work));
  } else {
    one.put(std::move(work));
  }
}
inline void launch(const std::string& what, Work work) {
  if (std::string* breaks = counts().breaks; breaks && *breaks == what && counts().breaks.exchange(nullptr))
    TORCH_CHECK(false, "sim: the device failed (", what, ")");
  ++counts().launches;
  say(counts().on_launch, what);
  enqueue([work = std::move(work)] {
    if (long us = counts().slow_us) std::this_thread::sleep_for(std::chrono::microseconds(us));
    try {
      work();
    } catch (const std::exception& error) {
      fprintf(stderr, "sim: a kernel failed: %s\n", error.what());
    }
  });
}

inline Event record_event(int64_t stream) {
  auto& one = queue(stream);
  return {stream, one.last(), one.capture};
}
// What is enqueued on `stream` from here on runs behind the event.
inline void wait_for_event(const Event& event, int64_t stream) {
  auto& one = queue(stream);
  if (event.capture) {
    one.capture = event.capture;  // the stream joins the capture
  } else if (one.capture) {
    one.capture->broken = true;
    TORCH_CHECK(false, "sim: a stream that is captured depends on one that is not");
  } else {
    one.put([event] { queue(event.stream).wait(event.ticket); });
  }
}

inline std::shared_ptr<Graph> begin_capture() {
  auto& one = queue(current_stream);
  TORCH_CHECK(!one.capture, "sim: the stream is being captured already");
  TORCH_CHECK(current_stream != 0, "sim: the default stream cannot be captured");
  return one.capture = std::make_shared<Graph>();
}
inline void end_capture(const std::shared_ptr<Graph>& graph) {
  for (int i = 0; i < STREAMS; ++i)
    if (queue(i).capture == graph) queue(i).capture = nullptr;
  TORCH_CHECK(!graph->broken, "sim: the capture was invalidated");
}
inline void replay(const std::shared_ptr<Graph>& graph) {
  ++counts().launches;
  for (auto& work : graph->work) enqueue([graph, &work] { work(); });  // the graph lives as long as it runs
}

}  // namespace sim
