// The store: a small map of keys that all ranks share, hosted by rank 0. Ranks find each other and agree through it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "framework/distributed/socket.h"

namespace lockstep {

struct Environment;
class StoreServer;
struct StoreMessage;

struct StoreOptions {
  std::string host = "127.0.0.1";
  int port = 0;        // 0: any free one, for rank 0 of a size of 1 or where the others are told the port later
  int listen_fd = -1;  // rank 0: a socket that listens already, taken over by the store; else -1
  int rank = 0;
  int size = 1;
  bool single_host = true;                            // listen on loopback only
  std::chrono::milliseconds connect_timeout{60'000};  // for all ranks to have started
  std::chrono::milliseconds timeout{30'000};          // for every wait that names no timeout of its own
};

// What `environment` says about where the store is.
StoreOptions store_options(const Environment& environment);

// Any thread may call it. Errors: std::invalid_argument where the port is taken; Error at a deadline (it names the
// key), when rank 0 and with it the server is gone, and, from every wait, as soon as any rank is gone or has given up.
class Store {
 public:
  // Connects; rank 0 starts the server first.
  explicit Store(const StoreOptions& options);
  // Says goodbye; rank 0 then waits for the others to leave, `timeout` at most. While an exception passes through there
  // is no goodbye: the other ranks learn that this one is gone, for which rank 0 stays a second.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  int port() const { return options_.port; }

  void set(const std::string& key, const std::string& value);
  // Waits until somebody has set the key.
  std::string get(const std::string& key, std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  std::optional<std::string> try_get(const std::string& key);
  // Adds to a counter that starts at 0 (no key of get) and returns its new value.
  std::int64_t add(const std::string& key, std::int64_t amount);

  // Collective, in the same order on every rank; a name may be used again.
  void barrier(const std::string& name, std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  // Every rank's value, in rank order.
  std::vector<std::string> gather(const std::string& name, const std::string& value,
                                  std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  // "name#0", "name#1", ...: the same on every rank that has asked for this name as often. For sets of keys.
  std::string next_name(const std::string& name);

  // Tells the others that this rank gives up, and why: their waits fail with it.
  void abort(const std::string& reason);
  // What has failed so far, empty where nothing has. Never waits long and never throws.
  std::optional<std::string> failure() noexcept;
  // An engine's error is often the echo of another rank's end, of which the store hears a moment later: both, where it
  // does within half a second, else `error` alone.
  std::string with_cause(const std::string& error) noexcept;

 private:
  StoreMessage request(const StoreMessage& message, std::chrono::milliseconds timeout);
  Socket connect(Deadline deadline);

  StoreOptions options_;
  std::unique_ptr<StoreServer> server_;  // rank 0
  std::int64_t identity_;
  int exceptions_at_start_;
  std::mutex mutex_;
  std::vector<Socket> idle_;          // one connection for each thread that calls at the same time
  std::optional<std::string> lost_;   // why the server cannot be reached any more
  std::map<std::string, int> names_;  // how often next_name has given each
};

}  // namespace lockstep
