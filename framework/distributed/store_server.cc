#include "framework/distributed/store_server.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "framework/core/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = StoreMessage::Kind;

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* data = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), data, data + sizeof value);
}

void append(std::vector<std::byte>& bytes, const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  bytes.insert(bytes.end(), data, data + text.size());
}

std::span<const std::byte> take(std::span<const std::byte>& bytes, std::size_t count) {
  if (bytes.size() < count) throw Error("store: got a message that ends too early");
  const auto taken = bytes.first(count);
  bytes = bytes.subspan(count);
  return taken;
}

template <class T>
T take(std::span<const std::byte>& bytes) {
  T value;
  std::memcpy(&value, take(bytes, sizeof value).data(), sizeof value);
  return value;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::vector<std::byte> StoreMessage::encode() const {
  std::vector<std::byte> bytes;
  append(bytes, static_cast<std::uint32_t>(sizeof kind + sizeof number + 4 + key.size() + value.size()));
  append(bytes, kind);
  append(bytes, number);
  append(bytes, static_cast<std::uint32_t>(key.size()));
  append(bytes, key);
  append(bytes, value);
  return bytes;
}

StoreMessage StoreMessage::decode(std::span<const std::byte> body) {
  StoreMessage message;
  message.kind = take<Kind>(body);
  message.number = take<std::int64_t>(body);
  message.key = text_of(take(body, take<std::uint32_t>(body)));
  message.value = text_of(body);
  return message;
}

// All state but what wait_until_left reads belongs to the serving thread.
class StoreServer::Loop {
 public:
  Loop(Socket listener, int size)
      : listener_(std::move(listener)), size_(size), wake_(::eventfd(0, EFD_CLOEXEC)), not_left_(size) {
    if (wake_.fd() < 0) throw Error("store: no eventfd can be made");
    thread_ = std::thread([this] { serve(); });
  }

  ~Loop() {
    const std::uint64_t one = 1;
    while (::write(wake_.fd(), &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
  }

  int port() const { return port_of(listener_); }

  void wait_until_left(Deadline deadline) {
    std::unique_lock lock(mutex_);
    settled_.wait_until(lock, deadline, [this] { return not_left_ == 0 || failed_; });
    const Deadline moment = std::min(deadline, Clock::now() + std::chrono::seconds(1));
    settled_.wait_until(lock, moment, [this] { return not_left_ == 0; });
  }

 private:
  struct Connection {
    Socket socket;
    int rank = -1;  // before its hello
    std::vector<std::byte> received;
    std::vector<std::byte> to_send;
    std::optional<std::string> awaited_key;
    Deadline awaited_until;
    bool closed = false;
  };
  struct Member {
    std::int64_t identity = 0;
    bool left = false;
  };

  void serve() {
    while (true) {
      std::vector<pollfd> entries{{wake_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
      for (const auto& connection : connections_) {
        const bool sending = !connection->to_send.empty();
        entries.push_back({connection->socket.fd(), static_cast<short>(sending ? POLLIN | POLLOUT : POLLIN), 0});
      }
      if (::poll(entries.data(), entries.size(), milliseconds_to_next_deadline()) < 0 && errno != EINTR) return;
      if (entries[0].revents != 0) return;
      for (std::size_t i = 2; i < entries.size(); ++i) {
        Connection& connection = *connections_[i - 2];
        if ((entries[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read(connection);
        if ((entries[i].revents & POLLOUT) != 0) flush(connection);
      }
      expire();
      if (entries[1].revents != 0) accept();
      std::erase_if(connections_, [](const auto& connection) { return connection->closed; });
    }
  }

  int milliseconds_to_next_deadline() const {
    std::int64_t least = 1'000'000;
    for (const auto& connection : connections_) {
      if (!connection->awaited_key) continue;
      least = std::min<std::int64_t>(
          least, std::chrono::ceil<std::chrono::milliseconds>(connection->awaited_until - Clock::now()).count());
    }
    return static_cast<int>(std::max<std::int64_t>(least, 0));
  }

  void accept() {
    auto connection = std::make_unique<Connection>();
    connection->socket = accept_from(listener_);
    if (connection->socket.fd() >= 0) connections_.push_back(std::move(connection));
  }

  void read(Connection& connection) {
    std::array<std::byte, 4096> block;
    while (!connection.closed) {
      const ssize_t count = ::recv(connection.socket.fd(), block.data(), block.size(), 0);
      if (count > 0) {
        connection.received.insert(connection.received.end(), block.begin(), block.begin() + count);
        handle_received(connection);
      } else if (count < 0 && errno == EINTR) {
        continue;
      } else if (count < 0 && errno == EAGAIN) {
        return;
      } else {
        close(connection);
      }
    }
  }

  void handle_received(Connection& connection) {
    std::span<const std::byte> rest = connection.received;
    while (!connection.closed && rest.size() >= kStoreLengthBytes) {
      std::uint32_t length = 0;
      std::memcpy(&length, rest.data(), kStoreLengthBytes);
      if (length > kStoreMaxBytes) return close(connection);
      if (rest.size() < kStoreLengthBytes + length) break;
      try {
        handle(connection, StoreMessage::decode(rest.subspan(kStoreLengthBytes, length)));
      } catch (const Error&) {
        return close(connection);
      }
      rest = rest.subspan(kStoreLengthBytes + length);
    }
    connection.received.erase(connection.received.begin(), connection.received.end() - std::ssize(rest));
  }

  void handle(Connection& connection, const StoreMessage& request) {
    if (connection.rank < 0 && request.kind != Kind::hello) return close(connection);
    switch (request.kind) {
      case Kind::hello:
        return hello(connection, request);
      case Kind::set:
        set(request.key, request.value);
        return answer(connection, {.kind = Kind::done});
      case Kind::get:
        connection.awaited_key = request.key;
        connection.awaited_until = Clock::now() + std::chrono::milliseconds(request.number);
        return answer_if_known(connection);
      case Kind::try_get: {
        const auto found = values_.find(request.key);
        if (found == values_.end()) return answer(connection, {.kind = Kind::absent});
        return answer(connection, {.kind = Kind::done, .value = found->second});
      }
      case Kind::add: {
        const std::int64_t sum = counters_[request.key] += request.number;
        return answer(connection, {.kind = Kind::done, .number = sum});
      }
      case Kind::check:
        if (failure_) return answer(connection, {.kind = Kind::failed, .value = *failure_});
        return answer(connection, {.kind = Kind::done});
      case Kind::abort:
        fail(fmt::format("rank {} gave up: {}", connection.rank, request.value));
        return answer(connection, {.kind = Kind::done});
      case Kind::goodbye:
        leave(members_[connection.rank]);
        return answer(connection, {.kind = Kind::done});
      case Kind::done:
      case Kind::absent:
      case Kind::failed:
        return close(connection);
    }
    close(connection);
  }

  void hello(Connection& connection, const StoreMessage& request) {
    int rank = -1;
    int size = 0;
    if (request.key != kStoreGreeting || std::sscanf(request.value.c_str(), "%d/%d", &rank, &size) != 2) {
      return close(connection);
    }
    const auto known = members_.find(rank);
    const bool strange = size != size_ || rank < 0 || rank >= size_;
    if (strange || (known != members_.end() && known->second.identity != request.number)) {
      return answer(connection,
                    {.kind = Kind::failed,
                     .value = fmt::format("the store on port {} serves {} ranks of another job{}; give each "
                                          "job a port of its own by LOCKSTEP_PORT=N",
                                          port(), size_, strange ? "" : fmt::format(", rank {} included", rank))});
    }
    connection.rank = rank;
    if (known == members_.end()) members_[rank] = {request.number, false};
    answer(connection, {.kind = Kind::done});
  }

  void set(const std::string& key, const std::string& value) {
    values_[key] = value;
    for (const auto& connection : connections_) answer_if_known(*connection);
  }

  void answer_if_known(Connection& connection) {
    if (!connection.awaited_key || connection.closed) return;
    if (const auto found = values_.find(*connection.awaited_key); found != values_.end()) {
      answer_wait(connection, {.kind = Kind::done, .value = found->second});
    } else if (failure_) {
      answer_wait(connection, {.kind = Kind::failed, .value = *failure_});
    }
  }

  void expire() {
    for (const auto& connection : connections_) {
      if (connection->awaited_key && Clock::now() >= connection->awaited_until) {
        answer_wait(*connection, {.kind = Kind::absent});
      }
    }
  }

  void answer_wait(Connection& connection, const StoreMessage& message) {
    connection.awaited_key.reset();
    answer(connection, message);
  }

  void answer(Connection& connection, const StoreMessage& message) {
    const std::vector<std::byte> bytes = message.encode();
    connection.to_send.insert(connection.to_send.end(), bytes.begin(), bytes.end());
    flush(connection);
  }

  void flush(Connection& connection) {
    while (!connection.to_send.empty() && !connection.closed) {
      const ssize_t count =
          ::send(connection.socket.fd(), connection.to_send.data(), connection.to_send.size(), MSG_NOSIGNAL);
      if (count > 0) {
        connection.to_send.erase(connection.to_send.begin(), connection.to_send.begin() + count);
      } else if (errno == EAGAIN) {
        return;
      } else if (errno != EINTR) {
        close(connection);
      }
    }
  }

  void close(Connection& connection) {
    if (connection.closed) return;
    connection.closed = true;
    if (connection.rank < 0) return;
    Member& member = members_[connection.rank];
    if (member.left) return;
    leave(member);
    fail(fmt::format("rank {} is gone: its connection to the store closed", connection.rank));
  }

  void leave(Member& member) {
    if (std::exchange(member.left, true)) return;
    {
      const std::lock_guard lock(mutex_);
      --not_left_;
    }
    settled_.notify_all();
  }

  void fail(const std::string& what) {
    if (failure_) return;
    failure_ = what;
    {
      const std::lock_guard lock(mutex_);
      failed_ = true;
    }
    settled_.notify_all();
    for (const auto& connection : connections_) answer_if_known(*connection);
  }

  Socket listener_;
  const int size_;
  Socket wake_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::int64_t> counters_;
  std::map<int, Member> members_;
  std::optional<std::string> failure_;

  std::mutex mutex_;
  std::condition_variable settled_;
  int not_left_;
  bool failed_ = false;
  std::thread thread_;
};

StoreServer::StoreServer(Socket listener, int size) : loop_(std::make_unique<Loop>(std::move(listener), size)) {}
StoreServer::~StoreServer() = default;
int StoreServer::port() const { return loop_->port(); }
void StoreServer::wait_until_left(Deadline deadline) { loop_->wait_until_left(deadline); }

}  // namespace lockstep
