#include "framework/distributed/gloo_group.h"

#include "framework/core/error.h"

#ifdef LOCKSTEP_HAS_GLOO

#include <fmt/core.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <exception>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "framework/distributed/collective_worker.h"
#include "framework/distributed/environment.h"
#include "framework/distributed/mesh_collectives.h"
#include "framework/distributed/socket.h"
#include "framework/distributed/store.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Gloo writes to sockets without asking for no signal, so a peer that dies would kill this process. The signal goes to
// the thread that writes: Gloo's own, which inherits the mask of the thread that makes it, and the group's worker.
void block_sigpipe() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

gloo::transport::tcp::attr device_attributes(const Environment& environment) {
  gloo::transport::tcp::attr attributes;
  attributes.iface = process_environment("GLOO_SOCKET_IFNAME").value_or("");
  if (attributes.iface.empty()) {
    attributes.hostname = environment.single_host() ? "127.0.0.1" : local_address_towards(environment.master_addr);
  }
  return attributes;
}

// A device has a thread that reads from all peers and spins while the worker holds a connection's lock. Woken on the
// worker's processor it would preempt the worker just then and spin for the rest of its time slice: 4 ms where an
// exchange takes 0.1. A batch thread does not preempt; it inherits that from the thread that makes it.
std::shared_ptr<gloo::transport::Device> make_device(const Environment& environment) {
  const gloo::transport::tcp::attr attributes = device_attributes(environment);
  std::shared_ptr<gloo::transport::Device> device;
  std::exception_ptr failure;
  std::thread maker([&] {
    block_sigpipe();
    const sched_param priority{};
    ::sched_setscheduler(0, SCHED_BATCH, &priority);
    try {
      device = gloo::transport::tcp::CreateDevice(attributes);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  maker.join();
  if (failure) std::rethrow_exception(failure);
  return device;
}

class Rendezvous final : public gloo::rendezvous::Store {
 public:
  Rendezvous(lockstep::Store& store, const std::string& name) : store_(store), prefix_(name + "/") {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.get(prefix_ + key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, kDefaultTimeout); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    for (const std::string& key : keys) store_.get(prefix_ + key, timeout);
  }

 private:
  lockstep::Store& store_;
  std::string prefix_;
};

std::uint64_t hash_of(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t hash = 0;
  for (const std::uint64_t part : parts) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

// Gloo's first line without the place in its source.
std::string text_of(const std::exception& error) {
  std::string text = error.what();
  if (const std::size_t place = text.find("] "); text.starts_with("[") && place != std::string::npos) {
    text.erase(0, place + 2);
  }
  return text.substr(0, text.find('\n'));
}

class GlooGroup final : public ProcessGroup {
 public:
  GlooGroup(const Environment& environment, std::shared_ptr<Store> store, const GroupOptions& options)
      : ProcessGroup(environment.rank, environment.world_size),
        store_(std::move(store)),
        name_(store_->next_name("gloo group")),
        timeout_(options.timeout),
        messages_sent_(static_cast<std::size_t>(size())),
        messages_received_(static_cast<std::size_t>(size())),
        collectives_(rank(), size(), [this](auto sends, auto receives) { exchange(sends, receives); }) {
    try {
      auto context = std::make_shared<gloo::rendezvous::Context>(rank(), size());
      context->setTimeout(timeout_);
      auto device = make_device(environment);
      Rendezvous rendezvous(*store_, name_);
      context->connectFullMesh(rendezvous, device);
      // Nobody may leave, and close its side, before all others are through.
      store_->barrier(name_ + "/connected");
      context_ = std::move(context);
    } catch (const std::exception& error) {
      throw Error(fmt::format("gloo group: rank {} cannot connect to all others: {}", rank(), text_of(error)));
    }
    worker_.emplace([this](const Collective& collective) { run(collective); });
  }

  ~GlooGroup() override {
    wait_for_readers();
    interrupt();
    worker_.reset();
  }

  std::string_view backend() const override { return "gloo"; }
  Store* store() const override { return store_.get(); }

  void abort(const std::string& reason) override {
    worker_->fail(std::make_exception_ptr(Error(fmt::format("gloo group: aborted by rank {}: {}", rank(), reason))));
    interrupt();
  }

 protected:
  Work issue(const Collective& collective) override { return worker_->issue(collective); }

 private:
  struct Transfer {
    int peer;
    bool receiving;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };

  void run(const Collective& collective) {
    if (!std::exchange(sigpipe_blocked_, true)) block_sigpipe();
    current_ = &collective;
    deadline_ = Clock::now() + timeout_;
    if (collective.kind != Collective::Kind::send_recv) ++sequence_;
    try {
      collectives_.run(collective);
    } catch (const std::exception& error) {
      failed_ = true;
      // The others are to fail now, not at their deadline.
      context_->closeConnections();
      throw Error(report(text_of(error)));
    }
  }

  void exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) {
    {
      const std::lock_guard lock(mutex_);
      if (interrupted_) throw Error("interrupted");
      for (const Incoming& message : receives) {
        const auto slot = slot_of(message, messages_received_);
        auto buffer = context_->createUnboundBuffer(message.bytes.data(), message.bytes.size());
        buffer->recv(message.peer, slot);
        transfers_.push_back({message.peer, true, std::move(buffer)});
      }
      for (const Outgoing& message : sends) {
        const auto slot = slot_of(message, messages_sent_);
        // Gloo takes no pointer to const, but only reads what it sends.
        auto buffer = context_->createUnboundBuffer(const_cast<std::byte*>(message.bytes.data()), message.bytes.size());
        buffer->send(message.peer, slot);
        transfers_.push_back({message.peer, false, std::move(buffer)});
      }
    }
    for (const Transfer& transfer : transfers_) await(transfer);
    const std::lock_guard lock(mutex_);
    transfers_.clear();
  }

  void await(const Transfer& transfer) {
    const auto left = std::max(std::chrono::ceil<milliseconds>(deadline_ - Clock::now()), milliseconds{1});
    bool completed = false;
    try {
      completed = transfer.receiving ? transfer.buffer->waitRecv(left) : transfer.buffer->waitSend(left);
    } catch (const std::exception& error) {
      throw Error(fmt::format("{} rank {}: {}", transfer.receiving ? "receiving from" : "sending to", transfer.peer,
                              text_of(error)));
    }
    if (!completed) throw Error("interrupted");
  }

  // Both sides compute the same slot. Gloo ends the process when a message is longer than the memory it meets, so ranks
  // that disagree about a collective must not meet: their slots differ, and the deadline finds them.
  template <class Message>
  std::uint64_t slot_of(const Message& message, std::vector<std::uint64_t>& messages) const {
    const auto kind = static_cast<std::uint64_t>(current_->kind);
    if (current_->kind == Collective::Kind::send_recv) {
      return hash_of({kind, message.bytes.size(), ++messages[static_cast<std::size_t>(message.peer)]});
    }
    return hash_of({kind, static_cast<std::uint64_t>(current_->op), static_cast<std::uint64_t>(current_->root),
                    static_cast<std::uint64_t>(current_->in.dtype), static_cast<std::uint64_t>(current_->in.numel()),
                    sequence_, static_cast<std::uint64_t>(message.tag)});
  }

  // A message is sent when it lies with the system, but Gloo closes a connection by a reset, which takes back what the
  // peer has not read yet, and does not tell a peer that is in the middle of it. So nobody leaves before all have had
  // the results of their collectives. A rank that goes on without this one has read in the meantime what was sent.
  void wait_for_readers() {
    constexpr milliseconds kTimeToRead{5000};
    if (failed_ || std::uncaught_exceptions() > exceptions_at_start_) return;
    {
      const std::lock_guard lock(mutex_);
      if (interrupted_ || !transfers_.empty()) return;
    }
    try {
      store_->barrier(name_ + "/read", std::min(timeout_, kTimeToRead));
    } catch (const std::exception&) {
      // Nor does one wait for a rank that is gone.
    }
  }

  // Ends what is in flight here, and lets the others notice.
  void interrupt() {
    {
      const std::lock_guard lock(mutex_);
      interrupted_ = true;
      for (const Transfer& transfer : transfers_) {
        transfer.receiving ? transfer.buffer->abortWaitRecv() : transfer.buffer->abortWaitSend();
      }
    }
    context_->closeConnections();
  }

  // What failed here, and where the others are: the first that fails closes its connections, so all that are in a
  // collective fail soon after it, and each leaves word in the store.
  std::string report(const std::string& what) {
    std::string text = fmt::format("gloo group: rank {} failed in collective {}, {}: {}", rank(), sequence_,
                                   current_->to_string(), what);
    {
      const std::lock_guard lock(mutex_);
      transfers_.clear();
      if (interrupted_) return text;
    }
    const auto key_of = [this](int of) { return fmt::format("{}/failed/{}", name_, of); };
    try {
      store_->set(key_of(rank()), fmt::format("{}, {}", sequence_, current_->to_string()));
      std::optional<std::string> failure;
      for (int other = 0; other < size(); ++other) {
        if (other == rank()) continue;
        const Deadline until = Clock::now() + milliseconds(500);
        std::optional<std::string> word;
        while (!word && !failure && Clock::now() < until) {
          word = store_->try_get(key_of(other));
          if (word) break;
          failure = store_->failure();
          std::this_thread::sleep_for(milliseconds(10));
        }
        if (word) text += fmt::format("; rank {} was in collective {}", other, *word);
        if (!word && !failure) text += fmt::format("; rank {} was in none", other);
      }
      if (failure) text += fmt::format("; {}", *failure);
    } catch (const Error& error) {
      text += fmt::format("; {}", error.what());
    }
    return text;
  }

  std::shared_ptr<Store> store_;
  const std::string name_;
  const milliseconds timeout_;
  const int exceptions_at_start_ = std::uncaught_exceptions();
  std::shared_ptr<gloo::rendezvous::Context> context_;

  // Of the worker's thread.
  bool sigpipe_blocked_ = false;
  const Collective* current_ = nullptr;
  Deadline deadline_;
  std::uint64_t sequence_ = 0;  // collectives so far; send_recv is not counted, since not all ranks take part
  std::vector<std::uint64_t> messages_sent_;  // by send_recv, for each peer
  std::vector<std::uint64_t> messages_received_;
  MeshCollectives collectives_;

  std::atomic<bool> failed_ = false;  // a collective has
  std::mutex mutex_;
  std::vector<Transfer> transfers_;  // changed by the worker under the lock, read by interrupt()
  bool interrupted_ = false;
  std::optional<CollectiveWorker> worker_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_gloo_group(const Environment& environment, std::shared_ptr<Store> store,
                                              const GroupOptions& options) {
  expect(store != nullptr, "gloo group: expected a store for {} ranks to meet in, got none", environment.world_size);
  return std::make_unique<GlooGroup>(environment, std::move(store), options);
}

}  // namespace lockstep

#else

namespace lockstep {

std::unique_ptr<ProcessGroup> make_gloo_group(const Environment& /*environment*/, std::shared_ptr<Store> /*store*/,
                                              const GroupOptions& /*options*/) {
  throw std::invalid_argument(
      "gloo group: this build has no Gloo, which carries gradients between CPU ranks; install it (Debian: apt-get "
      "install libgloo-dev), build again, or use one rank");
}

}  // namespace lockstep

#endif
