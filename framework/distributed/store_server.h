// The server of the store: a map of keys, one thread, and a watch over the ranks that are connected to it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/distributed/socket.h"

namespace lockstep {

// A request or its answer. On the wire: bytes of what follows (4), kind (1), number (8), bytes of key (4), key, value.
struct StoreMessage {
  enum class Kind : std::uint8_t {
    hello,    // number: who is asking, to tell two jobs on one port apart; key: kStoreGreeting; value: "rank/size"
    set,      // key, value
    get,      // key; number: milliseconds to wait for it
    try_get,  // key
    add,      // key, number -> number: the sum
    check,    // -> failed where a rank has failed
    abort,    // value: why; from now on every wait fails with it
    goodbye,  // this rank's connections may close
    done,     // answer: value or number
    absent,   // answer: the key did not come in time
    failed,   // answer: value: what is wrong with the job
  };
  Kind kind = Kind::done;
  std::int64_t number = 0;
  std::string key{};
  std::string value{};

  std::vector<std::byte> encode() const;
  static StoreMessage decode(std::span<const std::byte> body);
};

inline constexpr char kStoreGreeting[] = "lockstep store 1";
inline constexpr std::size_t kStoreLengthBytes = 4;
inline constexpr std::size_t kStoreMaxBytes = std::size_t{64} << 20;

// Serves until destroyed. A rank that closes a connection without a goodbye, or aborts, fails the job: all that wait
// for a key, now or later, are told which rank it was.
class StoreServer {
 public:
  StoreServer(Socket listener, int size);
  ~StoreServer();

  int port() const;
  // Returns when every rank has come and left, at the deadline at the latest. After a failure it only stays a
  // moment for the others to read why.
  void wait_until_left(Deadline deadline);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep
