#include "framework/core/context.h"

#include <bit>

#include "framework/core/allocator.h"
#include "framework/core/error.h"

namespace lockstep {
namespace {

class GrowingWorkspace final : public Workspace {
 public:
  explicit GrowingWorkspace(DeviceType device) : allocator_(device_allocator(device)) {}
  ~GrowingWorkspace() override {
    if (address_ != nullptr) allocator_.release(address_);
  }
  GrowingWorkspace(const GrowingWorkspace&) = delete;
  GrowingWorkspace& operator=(const GrowingWorkspace&) = delete;

  void* reserve(std::size_t bytes) override {
    if (bytes > bytes_) {
      if (address_ != nullptr) allocator_.release(address_);
      address_ = nullptr;
      bytes_ = std::bit_ceil(bytes);
      address_ = allocator_.allocate(bytes_);
    }
    return address_;
  }

 private:
  CachingAllocator& allocator_;
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
};

thread_local Context* current = nullptr;

}  // namespace

Context::Context(DeviceType device, int threads, DType dtype)
    : workspace_(std::make_unique<GrowingWorkspace>(device)),
      exec_{.device = device, .threads = threads, .stream = nullptr, .workspace = workspace_.get()},
      dtype_(dtype) {
  expect(threads >= 1, "context: expected at least 1 thread, got {}", threads);
  expect(dtype == DType::f32 || dtype == DType::f64, "context: expected f32 or f64 on a CPU, got {}",
         dtype_name(dtype));
}

Context::~Context() = default;

Context& context() {
  thread_local Context fallback;
  return current != nullptr ? *current : fallback;
}

ContextScope::ContextScope(Context& context) : previous_(std::exchange(current, &context)) {}

ContextScope::~ContextScope() { current = previous_; }

}  // namespace lockstep
