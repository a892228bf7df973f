#include "framework/distributed/socket.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "framework/core/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

std::string error_text(int code) { return std::strerror(code); }  // NOLINT(concurrency-mt-unsafe): glibc's is

void set_option(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); }

// Small messages go out at once, and a host that vanished without a word is noticed within 30 s.
void set_connection_options(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

// Whether `events` came before the deadline.
bool poll_until(int fd, short events, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw Error(fmt::format("socket: poll failed: {}", error_text(errno)));
    if (Clock::now() >= deadline) return false;
  }
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) throw Error(fmt::format("socket: host {} has no address: {}", host, ::gai_strerror(code)));
  return {list, &::freeaddrinfo};
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  }
  return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
}

std::string text_of(const sockaddr_storage& address) {
  std::array<char, NI_MAXHOST> text{};
  const int code = ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof address, text.data(), text.size(),
                                 nullptr, 0, NI_NUMERICHOST);
  if (code != 0) throw Error(fmt::format("socket: an address cannot be shown: {}", ::gai_strerror(code)));
  return text.data();
}

// One attempt; no fd where it failed, with errno telling why.
Socket try_connect(const addrinfo& address, Deadline deadline) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) return {};
  if (::connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return {};
    if (!poll_until(socket.fd(), POLLOUT, deadline)) {
      errno = ETIMEDOUT;
      return {};
    }
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      errno = error;
      return {};
    }
  }
  set_connection_options(socket.fd());
  return socket;
}

}  // namespace

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Socket listen_on(int port, bool loopback_only) {
  // All addresses: both families through one IPv6 socket, or IPv4 where the host has no IPv6.
  Socket socket;
  if (!loopback_only) {
    socket = Socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.fd() >= 0) set_option(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  }
  const bool ipv6 = socket.fd() >= 0;
  if (!ipv6) socket = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) throw Error(fmt::format("socket: cannot be made: {}", error_text(errno)));
  set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);

  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<std::uint16_t>(port));
  v4.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = v4.sin_port;
  v6.sin6_addr = in6addr_any;
  const auto* address = ipv6 ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
  const socklen_t length = ipv6 ? sizeof v6 : sizeof v4;
  if (::bind(socket.fd(), address, length) != 0 || ::listen(socket.fd(), SOMAXCONN) != 0) {
    const int code = errno;
    expect(code != EADDRINUSE && code != EACCES,
           "store: cannot listen on port {}: {}; choose another by LOCKSTEP_PORT=N", port, error_text(code));
    throw Error(fmt::format("store: cannot listen on port {}: {}", port, error_text(code)));
  }
  return socket;
}

int port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw Error(fmt::format("socket: has no address: {}", error_text(errno)));
  }
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Socket connect_to(const std::string& host, int port, Deadline deadline) {
  const AddressList addresses = resolve(host, port);
  while (true) {
    int code = 0;
    for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
      Socket socket = try_connect(*address, deadline);
      if (socket.fd() >= 0) return socket;
      code = errno;
    }
    if (Clock::now() >= deadline) {
      throw Error(fmt::format("store: nobody answers on {} port {}: {}", host, port, error_text(code)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.fd() >= 0) set_connection_options(socket.fd());
  return socket;
}

std::string local_address_towards(const std::string& host) {
  // Connecting a datagram socket sends nothing, but picks the address that packets would leave from.
  const AddressList addresses = resolve(host, 9);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    const Socket socket(::socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    if (socket.fd() < 0 || ::connect(socket.fd(), address->ai_addr, address->ai_addrlen) != 0 ||
        ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&local), &length) != 0) {
      continue;
    }
    if (!is_loopback(local)) return text_of(local);
  }
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) throw Error(fmt::format("socket: no interfaces: {}", error_text(errno)));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(interfaces, &::freeifaddrs);
  for (const ifaddrs* entry = interfaces; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || (entry->ifa_flags & IFF_UP) == 0)
      continue;
    sockaddr_storage local{};
    std::memcpy(&local, entry->ifa_addr, sizeof(sockaddr_in));
    if (!is_loopback(local)) return text_of(local);
  }
  throw Error(fmt::format("socket: this host has no address that others could reach on the way to {}", host));
}

void send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!poll_until(socket.fd(), POLLOUT, deadline)) throw Error("socket: the other side takes nothing any more");
    } else if (errno != EINTR) {
      throw Error(fmt::format("socket: sending failed: {}", error_text(errno)));
    }
  }
}

void receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t received = ::recv(socket.fd(), bytes.data(), bytes.size(), 0);
    if (received > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(received));
    } else if (received == 0) {
      throw Error("socket: the other side closed the connection");
    } else if (errno == EAGAIN) {
      if (!poll_until(socket.fd(), POLLIN, deadline)) throw Error("socket: the other side does not answer");
    } else if (errno != EINTR) {
      throw Error(fmt::format("socket: receiving failed: {}", error_text(errno)));
    }
  }
}

}  // namespace lockstep
