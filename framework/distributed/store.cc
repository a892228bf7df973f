#include "framework/distributed/store.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <array>
#include <cstring>
#include <exception>
#include <random>
#include <thread>

#include "framework/core/error.h"
#include "framework/distributed/environment.h"
#include "framework/distributed/store_server.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = StoreMessage::Kind;
using std::chrono::milliseconds;

// What an answer may take beyond the time that the server was asked to wait.
constexpr milliseconds kAnswerTime{5'000};

StoreMessage exchange(const Socket& socket, const StoreMessage& message, Deadline deadline) {
  send_all(socket, message.encode(), deadline);
  std::uint32_t length = 0;
  receive_all(socket, std::as_writable_bytes(std::span(&length, 1)), deadline);
  if (length > kStoreMaxBytes) throw Error("what answers there is no store");
  std::vector<std::byte> body(length);
  receive_all(socket, body, deadline);
  return StoreMessage::decode(body);
}

std::int64_t random_identity() {
  std::random_device source;
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(source()) << 32) | source());
}

}  // namespace

StoreOptions store_options(const Environment& environment) {
  StoreOptions options;
  options.single_host = environment.single_host();
  if (!options.single_host) options.host = environment.master_addr;
  options.rank = environment.rank;
  options.size = environment.world_size;
  // A single rank meets nobody: any free port will do, so that it never fails for a port that is taken.
  options.port = environment.world_size == 1 ? 0 : environment.store_port;
  options.listen_fd = environment.store_fd;
  return options;
}

Store::Store(const StoreOptions& options)
    : options_(options), identity_(random_identity()), exceptions_at_start_(std::uncaught_exceptions()) {
  if (options_.rank == 0) {
    Socket listener;
    if (options_.listen_fd >= 0) {
      listener = Socket(options_.listen_fd);
      ::fcntl(listener.fd(), F_SETFD, FD_CLOEXEC);
    } else {
      listener = listen_on(options_.port, options_.single_host);
    }
    options_.port = port_of(listener);
    server_ = std::make_unique<StoreServer>(std::move(listener), options_.size);
  }
  idle_.push_back(connect(Clock::now() + options_.connect_timeout));
}

Store::~Store() {
  if (std::uncaught_exceptions() == exceptions_at_start_) {
    try {
      request({.kind = Kind::goodbye}, milliseconds{0});
    } catch (const std::exception&) {
      // The server is gone, so nobody is left to whom a goodbye would mean anything.
    }
  }
  idle_.clear();
  if (server_) server_->wait_until_left(Clock::now() + options_.timeout);
}

Socket Store::connect(Deadline deadline) {
  Socket socket = connect_to(server_ ? "127.0.0.1" : options_.host, options_.port, deadline);
  const StoreMessage answer = exchange(
      socket,
      {.kind = Kind::hello, .number = identity_, .key = kStoreGreeting, .value = fmt::format("{}/{}", rank(), size())},
      deadline);
  if (answer.kind == Kind::failed) throw std::invalid_argument("store: " + answer.value);
  return socket;
}

StoreMessage Store::request(const StoreMessage& message, milliseconds timeout) {
  Socket socket;
  {
    const std::lock_guard lock(mutex_);
    if (lost_) throw Error(*lost_);
    if (!idle_.empty()) {
      socket = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  try {
    if (socket.fd() < 0) socket = connect(Clock::now() + kAnswerTime);
    StoreMessage answer = exchange(socket, message, Clock::now() + timeout + kAnswerTime);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(socket));
    return answer;
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!lost_) {
      lost_ = fmt::format("store: rank {} has lost the store of rank 0 on {} port {}: {}", rank(), options_.host,
                          options_.port, error.what());
    }
    throw Error(*lost_);
  }
}

void Store::set(const std::string& key, const std::string& value) {
  request({.kind = Kind::set, .key = key, .value = value}, milliseconds{0});
}

std::string Store::get(const std::string& key, std::optional<milliseconds> timeout) {
  const milliseconds limit = timeout.value_or(options_.timeout);
  StoreMessage answer = request({.kind = Kind::get, .number = limit.count(), .key = key}, limit);
  if (answer.kind == Kind::absent) {
    throw Error(fmt::format("store: rank {} waited {} ms for {}, which no rank has set", rank(), limit.count(), key));
  }
  if (answer.kind == Kind::failed) {
    throw Error(fmt::format("store: rank {} waits in vain for {}: {}", rank(), key, answer.value));
  }
  return std::move(answer.value);
}

std::optional<std::string> Store::try_get(const std::string& key) {
  StoreMessage answer = request({.kind = Kind::try_get, .key = key}, milliseconds{0});
  if (answer.kind == Kind::absent) return std::nullopt;
  return std::move(answer.value);
}

std::int64_t Store::add(const std::string& key, std::int64_t amount) {
  return request({.kind = Kind::add, .number = amount, .key = key}, milliseconds{0}).number;
}

std::string Store::next_name(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return fmt::format("{}#{}", name, names_[name]++);
}

void Store::barrier(const std::string& name, std::optional<milliseconds> timeout) {
  gather("barrier/" + name, "", timeout);
}

std::vector<std::string> Store::gather(const std::string& name, const std::string& value,
                                       std::optional<milliseconds> timeout) {
  const std::string round = next_name(name);
  const auto key = [&](int from) { return fmt::format("{}/rank {}", round, from); };
  const Deadline deadline = Clock::now() + timeout.value_or(options_.timeout);
  set(key(rank()), value);
  std::vector<std::string> values;
  for (int from = 0; from < size(); ++from) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    values.push_back(get(key(from), std::max(left, milliseconds{0})));
  }
  return values;
}

void Store::abort(const std::string& reason) {
  try {
    request({.kind = Kind::abort, .value = reason}, milliseconds{0});
  } catch (const Error&) {
    // Rank 0 is gone already, and the others know it as this rank does.
  }
}

std::optional<std::string> Store::failure() noexcept {
  try {
    const StoreMessage answer = request({.kind = Kind::check}, milliseconds{0});
    if (answer.kind == Kind::failed) return answer.value;
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string Store::with_cause(const std::string& error) noexcept {
  for (const Deadline end = Clock::now() + milliseconds{500}; Clock::now() < end;) {
    if (const auto cause = failure()) return fmt::format("{} ({})", *cause, error);
    std::this_thread::sleep_for(milliseconds{20});
  }
  return error;
}

}  // namespace lockstep
