#include "framework/core/context.h"

#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "framework/core/allocator.h"
#include "framework/core/error.h"
#include "framework/core/gpu.h"
#include "kernels/dispatch.h"

namespace lockstep {

class GrowingWorkspace final : public Workspace {
 public:
  explicit GrowingWorkspace(DeviceType device) : allocator_(device_allocator(device)) {}
  ~GrowingWorkspace() override {
    for (void* address : outgrown_) allocator_.release(address);
    if (address_ != nullptr) allocator_.release(address_);
  }
  GrowingWorkspace(const GrowingWorkspace&) = delete;
  GrowingWorkspace& operator=(const GrowingWorkspace&) = delete;

  void* reserve(std::size_t bytes) override {
    if (bytes > bytes_) {
      if (address_ != nullptr) kept_ ? outgrown_.push_back(address_) : allocator_.release(address_);
      address_ = nullptr;
      const MemoryScope purpose(MemoryPurpose::workspace);
      const MemoryPoolScope pool(MemoryPool::shared);
      address_ = allocator_.allocate(bytes);
      bytes_ = bytes;
    }
    return address_;
  }

  void keep() { kept_ = true; }

 private:
  CachingAllocator& allocator_;
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
  bool kept_ = false;
  std::vector<void*> outgrown_;  // what graphs may hold
};

namespace {

thread_local Context* current = nullptr;

// The GPU is chosen before anything else of CUDA is called.
Stream compute_stream(const ContextOptions& options) {
  if constexpr (kernels::kHasCuda) {
    if (options.device == DeviceType::cuda) {
      select_gpu(options.gpu);
      return Stream::create();
    }
  }
  expect(options.device == DeviceType::cpu, "context: expected a device of this build (cpu), got cuda");
  return {};
}

// Asked after the GPU was chosen.
bool launches_programmatically(const ContextOptions& options) {
  if constexpr (kernels::kHasCuda) {
    if (options.device == DeviceType::cuda) {
      return options.programmatic_launch && kernels::cuda::can_launch_programmatically();
    }
  }
  return false;
}

}  // namespace

Context::Context(const ContextOptions& options)
    : stream_(compute_stream(options)),
      workspace_(std::make_unique<GrowingWorkspace>(options.device)),
      exec_{.device = options.device,
            .threads = options.threads,
            .stream = stream_.get(),
            .workspace = workspace_.get(),
            .allow_tf32 = options.allow_tf32,
            .deterministic = options.deterministic,
            .programmatic_launch = launches_programmatically(options)},
      dtype_(options.dtype),
      device_random_(options.device) {
  expect(options.threads >= 1, "context: expected at least 1 thread, got {}", options.threads);
  const bool cpu = options.device == DeviceType::cpu;
  expect(dtype_ == DType::f32 || dtype_ == (cpu ? DType::f64 : DType::bf16), "context: expected f32 or {}, got {}",
         cpu ? "f64 on a CPU" : "bf16 on a GPU", dtype_name(dtype_));
}

Context::~Context() {
  try {
    synchronize();
  } catch (const std::exception& error) {
    spdlog::warn("context: {}", error.what());
  }
}

void Context::synchronize() const {
  if constexpr (kernels::kHasCuda) {
    if (exec_.device == DeviceType::cuda) lockstep::synchronize(exec_.stream);
  }
}

const RandomState* Context::device_random() {
  if (stored_random_ != random) {
    device_random_.store(exec_, random);
    stored_random_ = random;
  }
  return device_random_.get();
}

void Context::keep_workspace() { workspace_->keep(); }

void Context::update_device_random() {
  if (stored_random_) device_random();
}

StreamScope::StreamScope(const Stream& stream) : context_(context()), previous_(context_.exec_) {
  context_.exec_.stream = stream.get();
  context_.exec_.workspace = nullptr;
}

StreamScope::~StreamScope() { context_.exec_ = previous_; }

Context& context() {
  thread_local Context fallback;
  return current != nullptr ? *current : fallback;
}

ContextScope::ContextScope(Context& context) : previous_(std::exchange(current, &context)) {
  if constexpr (kernels::kHasCuda) {
    if (context.device() == DeviceType::cuda) bind_thread_to_gpu();
  }
}

ContextScope::~ContextScope() { current = previous_; }

}  // namespace lockstep
