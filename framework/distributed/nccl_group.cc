#include "framework/distributed/nccl_group.h"

#include "framework/core/error.h"

#ifdef LOCKSTEP_HAS_NCCL

#include <fmt/core.h>
#include <nccl.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "framework/core/allocator.h"
#include "framework/core/context.h"
#include "framework/core/cuda_memory.h"
#include "framework/core/gpu.h"
#include "framework/core/object_pool.h"
#include "framework/core/tensor.h"
#include "framework/distributed/bounded_call.h"
#include "framework/distributed/environment.h"
#include "framework/distributed/gpu_assignment.h"
#include "framework/distributed/nccl_hint.h"
#include "framework/distributed/nccl_settings.h"
#include "framework/distributed/store.h"
#include "framework/distributed/stream_work.h"
#include "framework/distributed/watchdog.h"

namespace lockstep {
namespace {

using Kind = Collective::Kind;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kMeetingTime{60'000};  // for all ranks to come and for NCCL to look at the machine
constexpr milliseconds kAbortTime{5'000};
constexpr milliseconds kDestroyTime{10'000};

std::string text_of(ncclResult_t result) {
  std::string text = ncclGetErrorString(result);
  if (const char* last = ncclGetLastError(nullptr); last != nullptr && *last != '\0') {
    text += fmt::format("; NCCL says: {}", last);
  }
  if (const std::string hint = nccl_hint(text); !hint.empty()) text += fmt::format("; {}", hint);
  return text;
}

void check_nccl(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) throw Error(fmt::format("{}: {}", call, text_of(result)));
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f64:
      return ncclFloat64;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
      return ncclUint8;
  }
  return ncclUint8;
}

ncclRedOp_t nccl_op(ReduceOp op) { return op == ReduceOp::sum ? ncclSum : op == ReduceOp::max ? ncclMax : ncclMin; }

// The communicator of this rank. Its calls block: with NCCL's other mode each of them would start a thread, at many
// times the cost of a small all-reduce. So whatever may wait for other ranks runs where a deadline holds: the making
// and the end of it on threads of their own, and collectives (the first of a kind connects to the others) under the
// watchdog.
class Communicator {
 public:
  Communicator(int rank, int size, const ncclUniqueId& id, Store* store) {
    struct Making {
      ncclComm_t comm = nullptr;  // set by NCCL before it waits for anybody
      std::mutex mutex;
      std::string failure;
    };
    auto making = std::make_shared<Making>();
    const auto init = [making, rank, size, id] {
      bind_thread_to_gpu();
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 1;
      const ncclResult_t result = ncclCommInitRankConfig(&making->comm, size, id, rank, &config);
      if (result == ncclSuccess) return;
      const std::lock_guard lock(making->mutex);
      making->failure = text_of(result);
    };
    std::optional<std::string> lost;
    Clock::time_point next_look = Clock::now();
    const auto give_up = [&] {
      if (store == nullptr || Clock::now() < next_look) return false;
      next_look = Clock::now() + milliseconds(200);
      lost = store->failure();
      return lost.has_value();
    };
    if (run_bounded(init, kMeetingTime, give_up)) {
      if (!making->failure.empty()) throw Error(fmt::format("ncclCommInitRankConfig: {}", making->failure));
      comm_ = making->comm;
      return;
    }
    // NCCL has given the handle away by now, so that the thread that still waits in it can be ended.
    if (const ncclComm_t comm = std::atomic_ref(making->comm).load(); comm != nullptr) {
      const auto end = [comm] {
        bind_thread_to_gpu();
        ncclCommAbort(comm);
      };
      run_bounded(end, kAbortTime);
    }
    throw Error(lost ? fmt::format("ncclCommInitRankConfig: {}", *lost)
                     : fmt::format("ncclCommInitRankConfig: not all {} ranks came within {} s; check that each reaches "
                                   "the others (NCCL_SOCKET_IFNAME), and see NCCL_DEBUG=INFO",
                                   size, kMeetingTime.count() / 1000));
  }

  // Calls `calls(communicator)`. Nothing else of this thread's is under the lock for long.
  template <class Calls>
  void issue(const Calls& calls) {
    const std::lock_guard lock(calling_);
    if (comm_ == nullptr) throw Error("the communicator was aborted");
    calls(comm_);
  }

  // What NCCL found wrong while nobody was calling it.
  std::optional<std::string> failure() const {
    ncclResult_t result = ncclSuccess;
    if (comm_ == nullptr || ncclCommGetAsyncError(comm_, &result) != ncclSuccess) return std::nullopt;
    if (result == ncclSuccess || result == ncclInProgress) return std::nullopt;
    return text_of(result);
  }

  // Ends what runs on the GPU at once; returns when no graph holds a collective of it any more.
  void abort() {
    // A caller that waits for other ranks inside NCCL does not come out of it by itself: then the abort goes first.
    std::unique_lock lock(calling_, milliseconds(1'000));
    if (const ncclComm_t comm = comm_.exchange(nullptr); comm != nullptr) {
      if (lock.owns_lock()) lock.unlock();
      if (const ncclResult_t result = ncclCommAbort(comm); result != ncclSuccess) {
        spdlog::warn("ncclCommAbort: {}", text_of(result));
      }
    }
  }

  // The end where all is well: nothing of it is in flight.
  void destroy() {
    const ncclComm_t comm = comm_.exchange(nullptr);
    if (comm == nullptr) return;
    const bool ended = run_bounded(
        [comm] {
          bind_thread_to_gpu();
          if (const ncclResult_t result = ncclCommDestroy(comm); result != ncclSuccess) {
            spdlog::warn("ncclCommDestroy: {}", text_of(result));
          }
        },
        kDestroyTime);
    if (!ended) spdlog::warn("nccl group: left behind; a graph that holds its collectives was to be destroyed first");
  }

 private:
  std::timed_mutex calling_;
  std::atomic<ncclComm_t> comm_ = nullptr;
};

ncclUniqueId agree_on_id(const Environment& environment, Store* store, const std::string& name) {
  ncclUniqueId id{};
  if (environment.rank == 0) {
    check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (store != nullptr) store->set(name + "/id", std::string(id.internal, sizeof(id.internal)));
    return id;
  }
  const std::string bytes = store->get(name + "/id", kMeetingTime);
  if (bytes.size() != sizeof(id.internal)) throw Error("nccl group: rank 0 runs another version of NCCL");
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

std::size_t free_gpu_bytes() { return selected_gpu().free_bytes; }

class NcclGroup final : public ProcessGroup {
 public:
  NcclGroup(const Environment& environment, std::shared_ptr<Store> store, const GroupOptions& options)
      : ProcessGroup(environment.rank, environment.world_size),
        exceptions_at_start_(std::uncaught_exceptions()),
        store_(std::move(store)),
        name_(store_ ? store_->next_name("nccl") : "nccl"),
        token_(Tensor::zeros({1}, DType::i32)) {
    const std::size_t free_before = free_gpu_bytes();
    const ncclUniqueId id = agree_on_id(environment, store_.get(), name_);
    try {
      communicator_ = std::make_shared<Communicator>(rank(), size(), id, store_.get());
    } catch (const Error& error) {
      throw Error(fmt::format("nccl group: rank {} on {}: {}", rank(), selected_gpu().name, error.what()));
    }
    const std::size_t free_after = free_gpu_bytes();
    device_allocator(DeviceType::cuda)
        .count_outside(MemoryPurpose::communication, free_before > free_after ? free_before - free_after : 0);
    watchdog_.emplace(Watchdog::Options{
        .name = name_,
        .rank = rank(),
        .size = size(),
        .timeout = options.timeout,
        .store = store_,
        .failure = failure_,
        .begin = [] { bind_thread_to_gpu(); },
        .engine_failure = [communicator = communicator_] { return communicator->failure(); },
        .abort = [communicator = communicator_] { communicator->abort(); },
    });
  }

  // Graphs that hold collectives of the group are gone by now; then goes the communicator, then its stream.
  ~NcclGroup() override {
    if (std::uncaught_exceptions() > exceptions_at_start_) {
      watchdog_->fail("this rank is giving up");
    } else {
      watchdog_->drain();
    }
    watchdog_.reset();
    communicator_->destroy();
  }

  std::string_view backend() const override { return "nccl"; }
  Store* store() const override { return store_.get(); }
  void check() const override { failure_->check(); }
  void abort(const std::string& reason) override { watchdog_->fail(reason); }

  void watch(std::function<std::string()> where) override {
    check();
    const std::shared_ptr<StreamWork> work = works_.get();
    work->mark(std::move(where), compute_stream());
    watchdog_->watch(work);
  }

 protected:
  Work issue(const Collective& collective) override {
    check();
    for (const void* memory : {collective.in.data, static_cast<const void*>(collective.out.data)}) {
      expect(memory == nullptr || is_gpu_memory(memory),
             "nccl group: expected memory of the GPU, got the host's, for {}; make the tensor in a context on the GPU",
             collective.to_string());
    }
    const std::shared_ptr<StreamWork> work = works_.get();
    try {
      work->begin(collective, ++sequence_, compute_stream(), stream_.get());
      watchdog_->watch(work);
      communicator_->issue([&](ncclComm_t comm) { enqueue(collective, comm); });
      work->issued(stream_.get());
    } catch (const Error& error) {
      check();
      if (is_capturing(compute_stream())) {
        // The capture fails and not the group: nothing of it has run, and its caller may go on without a graph.
        work->withdraw();
        --sequence_;
        throw;
      }
      watchdog_->fail(
          fmt::format("{}: {}", work->to_string(), store_ ? store_->with_cause(error.what()) : error.what()));
      check();
    }
    return Work(work);
  }

 private:
  static void* compute_stream() {
    expect(context().device() == DeviceType::cuda, "nccl group: expected a current context on the GPU, got the CPU's");
    return context().exec().stream;
  }

  void enqueue(const Collective& collective, ncclComm_t comm) const {
    const auto stream = static_cast<cudaStream_t>(stream_.get());
    const ConstView& in = collective.in;
    const View& out = collective.out;
    const auto count = static_cast<std::size_t>(in.numel());
    const ncclDataType_t type = nccl_type(in.dtype);
    switch (collective.kind) {
      case Kind::all_reduce:
        return check_nccl(ncclAllReduce(in.data, out.data, count, type, nccl_op(collective.op), comm, stream),
                          "ncclAllReduce");
      case Kind::broadcast:
        return check_nccl(ncclBroadcast(in.data, out.data, count, type, collective.root, comm, stream),
                          "ncclBroadcast");
      case Kind::all_gather:
        return check_nccl(ncclAllGather(in.data, out.data, count, type, comm, stream), "ncclAllGather");
      case Kind::reduce_scatter:
        return check_nccl(ncclReduceScatter(in.data, out.data, static_cast<std::size_t>(out.numel()), type,
                                            nccl_op(collective.op), comm, stream),
                          "ncclReduceScatter");
      case Kind::send_recv: {
        check_nccl(ncclGroupStart(), "ncclGroupStart");
        ncclResult_t sent = ncclSuccess;
        ncclResult_t received = ncclSuccess;
        if (collective.dst >= 0) sent = ncclSend(in.data, count, type, collective.dst, comm, stream);
        if (collective.src >= 0) {
          received = ncclRecv(out.data, static_cast<std::size_t>(out.numel()), nccl_type(out.dtype), collective.src,
                              comm, stream);
        }
        // Ended whatever came before: what is called next would become part of a group that was left open.
        const ncclResult_t ended = ncclGroupEnd();
        check_nccl(sent, "ncclSend");
        check_nccl(received, "ncclRecv");
        return check_nccl(ended, "ncclGroupEnd");
      }
      case Kind::barrier:
        return check_nccl(ncclAllReduce(token_.view().data, token_.view().data, 1, ncclInt32, ncclSum, comm, stream),
                          "ncclAllReduce");
    }
  }

  const int exceptions_at_start_;
  const std::shared_ptr<Store> store_;
  const std::string name_;
  Tensor token_;  // what a barrier reduces
  Stream stream_ = Stream::create(StreamPriority::highest);
  std::shared_ptr<FailureLatch> failure_ = std::make_shared<FailureLatch>();
  ObjectPool<StreamWork> works_{[failure = failure_] { return std::make_unique<StreamWork>(failure); }};
  std::shared_ptr<Communicator> communicator_;
  std::optional<Watchdog> watchdog_;
  std::int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_nccl_group(const Environment& environment, std::shared_ptr<Store> store,
                                              const GroupOptions& options) {
  expect(context().device() == DeviceType::cuda, "nccl group: expected a current context on a GPU, got one of the CPU");
  expect(store != nullptr || environment.world_size == 1,
         "nccl group: expected a store for {} ranks to meet in, got none", environment.world_size);
  ::setenv("NCCL_NVLS_ENABLE", NcclSettings::of_process().nvls().value.c_str(), /*overwrite=*/1);
  // NCCL takes two ranks for one mistake where they are on the same GPU of the same host.
  if (gpus_are_shared()) ::setenv("NCCL_HOSTID", fmt::format("lockstep-rank-{}", environment.rank).c_str(), 1);
  if (store) {
    const GpuInfo gpu = selected_gpu();
    expect_own_gpu(*store, gpu.uuid, fmt::format("GPU {} ({})", gpu.index, gpu.name));
  }
  return std::make_unique<NcclGroup>(environment, std::move(store), options);
}

}  // namespace lockstep

#else

namespace lockstep {

std::unique_ptr<ProcessGroup> make_nccl_group(const Environment& /*environment*/, std::shared_ptr<Store> /*store*/,
                                              const GroupOptions& /*options*/) {
  throw std::invalid_argument(
      "nccl group: this build has no NCCL, which carries gradients between GPUs; install CUDA and NCCL, build again "
      "with "
      "LOCKSTEP_CUDA=ON, or use one rank");
}

}  // namespace lockstep

#endif
