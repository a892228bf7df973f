// TCP sockets of which every call has a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace lockstep {

using Deadline = std::chrono::steady_clock::time_point;

// Owns a file descriptor; -1: none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() { close(); }

  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void close();

 private:
  int fd_ = -1;
};

// A socket that listens on `port` (0: any free one) of this host's loopback, or of all its addresses. Throws
// std::invalid_argument where the port is taken, naming it and LOCKSTEP_PORT.
Socket listen_on(int port, bool loopback_only);

int port_of(const Socket& socket);

// Keeps trying while nobody listens yet. Throws Error at the deadline.
Socket connect_to(const std::string& host, int port, Deadline deadline);

// The next connection of a listening socket, non-blocking and with the options below; no fd where there is none.
Socket accept_from(const Socket& listener);

// The address of this host that others on the way to `host` can reach: not a loopback one, even where `host` is this
// host and its name is an alias of loopback.
std::string local_address_towards(const std::string& host);

// All of `bytes`; throws Error at the deadline, or when the other side is gone.
void send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline deadline);
void receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline deadline);

}  // namespace lockstep
