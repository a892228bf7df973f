// Memory, order and capture on a GPU.
#include "framework/core/gpu.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "framework/core/allocator.h"
#include "framework/core/context.h"
#include "framework/core/cuda_graph.h"
#include "framework/core/cuda_memory.h"
#include "framework/core/device_value.h"
#include "framework/core/error.h"
#include "framework/core/stream.h"
#include "framework/core/tensor.h"
#include "tests/support/random.h"
#include "tests/support/seed.h"

namespace lockstep {
namespace {

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const GpuCount gpus = count_gpus(); gpus.count == 0) GTEST_SKIP() << gpus.why_none;
    context_.emplace(ContextOptions{.device = DeviceType::cuda});
    scope_.emplace(*context_);
  }

  // Keeps the stream busy for some milliseconds.
  static void enqueue_long_work(const Tensor& big) {
    for (int i = 0; i < 40; ++i) big.fill_zero();
  }
  static Tensor big_tensor() { return Tensor::empty({1 << 28}, DType::u8); }
  static void* stream() { return context().exec().stream; }

  std::optional<Context> context_;
  std::optional<ContextScope> scope_;
};

template <class T>
void expect_bytes_survive() {
  for (const std::int64_t count : {0, 1, 3, 1000, 1'000'003}) {
    const std::vector<double> drawn = testing::random_values(count, 0, 200);
    const std::vector<T> values(drawn.begin(), drawn.end());
    const Tensor tensor = Tensor::from_host(std::span<const T>(values), {count});
    EXPECT_EQ(tensor.device(), DeviceType::cuda);
    EXPECT_TRUE(is_gpu_memory(tensor.view().data));
    EXPECT_EQ(tensor.to_host<T>(), values) << count;
  }
}

TEST_F(Gpu, TensorsKeepTheirBytes) {
  expect_bytes_survive<float>();
  expect_bytes_survive<double>();
  expect_bytes_survive<std::int32_t>();
  expect_bytes_survive<std::uint8_t>();
}

TEST_F(Gpu, SlicesAndReshapesShareMemory) {
  std::vector<float> values(6 * 5);
  std::iota(values.begin(), values.end(), 1.0F);
  const Tensor tensor = Tensor::from_host(std::span<const float>(values), {6, 5});
  EXPECT_EQ(tensor.slice(2, 4).to_host<float>(), std::vector<float>(values.begin() + 10, values.begin() + 20));
  tensor.slice(2, 4).reshape({10}).fill_zero();
  std::fill(values.begin() + 10, values.begin() + 20, 0.0F);
  EXPECT_EQ(tensor.to_host<float>(), values);
}

TEST_F(Gpu, ZerosAreZero) {
  Tensor::from_host(std::span<const float>(std::vector<float>(1000, 5.0F)), {1000});  // so that its block is not
  EXPECT_EQ(Tensor::zeros({1000}, DType::f32).to_host<float>(), std::vector<float>(1000, 0.0F));
}

TEST_F(Gpu, MemoryIsReusedWithoutAskingTheSystem) {
  const void* address = Tensor::empty({12345}, DType::f32).view().data;
  const auto before = device_allocator(DeviceType::cuda).stats();
  EXPECT_EQ(Tensor::empty({12345}, DType::f32).view().data, address);
  const auto after = device_allocator(DeviceType::cuda).stats();
  EXPECT_EQ(after.system_allocations, before.system_allocations);
  EXPECT_EQ(after.bytes_in_use, before.bytes_in_use);
}

TEST_F(Gpu, ReuseIsInStreamOrder) {
  // The block goes to its next owner while the copy out of it is still enqueued.
  const Tensor big = big_tensor();
  const Tensor kept = Tensor::empty({1000}, DType::i32);
  const std::vector<std::int32_t> first(1000, 1), second(1000, 2);
  const void* address = nullptr;
  {
    const Tensor one = Tensor::from_host(std::span<const std::int32_t>(first), {1000});
    address = one.view().data;
    enqueue_long_work(big);
    cuda_copy(kept.view().data, one.view().data, 4000, stream());
  }
  const Tensor two = Tensor::from_host(std::span<const std::int32_t>(second), {1000});
  EXPECT_EQ(two.view().data, address);
  EXPECT_EQ(kept.to_host<std::int32_t>(), first);
  EXPECT_EQ(two.to_host<std::int32_t>(), second);
}

TEST_F(Gpu, OutOfMemoryPrintsATableAndIsNotTheEnd) {
  std::string text;
  try {
    const MemoryScope purpose(MemoryPurpose::gradients);
    Tensor::empty({std::int64_t{1} << 42}, DType::u8);
  } catch (const Error& error) {
    text = error.what();
  }
  for (const char* part :
       {"out of memory on GPU 0", "asked for gradients", "activations", "cached for reuse", "total"}) {
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }
  EXPECT_EQ(Tensor::zeros({2}, DType::f32).to_host<float>(), (std::vector<float>{0, 0}));
}

TEST_F(Gpu, PinnedMemoryIsTheHosts) {
  const std::shared_ptr<void> pinned = allocate_pinned(4096);
  EXPECT_FALSE(is_gpu_memory(pinned.get()));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pinned.get()) % 64, 0u);
  auto* values = static_cast<float*>(pinned.get());
  std::iota(values, values + 1024, 0.0F);
  const std::vector<float> expected(values, values + 1024);
  const Tensor tensor = Tensor::from_host(std::span<const float>(values, 1024), {1024});
  std::memset(values, 0, 4096);  // the copy has ended
  EXPECT_EQ(tensor.to_host<float>(), expected);
}

TEST_F(Gpu, EventsOrderStreams) {
  const Tensor big = big_tensor();
  const std::vector<std::int32_t> values(1 << 20, 42);
  const Tensor source = Tensor::from_host(std::span<const std::int32_t>(values), {1 << 20});
  const Tensor middle = Tensor::zeros(source.shape(), DType::i32);
  const Tensor result = Tensor::zeros(source.shape(), DType::i32);
  context().synchronize();
  const auto bytes = static_cast<std::size_t>(source.view().bytes());
  const Stream other = Stream::create(StreamPriority::highest);
  const Event written = Event::create();
  const Event read = Event::create();
  enqueue_long_work(big);
  cuda_copy(middle.view().data, source.view().data, bytes, stream());
  written.record(stream());
  written.make_wait(other.get());
  cuda_copy(result.view().data, middle.view().data, bytes, other.get());
  read.record(other.get());
  EXPECT_FALSE(written.done()) << "the host was made to wait";
  read.make_wait(stream());
  EXPECT_EQ(result.to_host<std::int32_t>(), values);
  EXPECT_TRUE(written.done());
  EXPECT_TRUE(read.done());
}

TEST_F(Gpu, StoredValuesAreThoseOfTheCall) {
  // The host is far ahead of the device here; each store must carry the value of its own time.
  struct Value {
    std::int64_t step;
    double rate;
  };
  constexpr std::int64_t kSteps = 500;
  const Tensor big = big_tensor();
  const Tensor log = Tensor::zeros({kSteps, sizeof(Value)}, DType::u8);
  DeviceValue<Value> value(DeviceType::cuda);
  enqueue_long_work(big);
  Value host{};
  for (std::int64_t i = 0; i < kSteps; ++i) {
    host = {i, 0.5 * static_cast<double>(i)};
    value.store(context().exec(), host);
    cuda_copy(log.slice(i, i + 1).view().data, value.get(), sizeof(Value), stream());
  }
  const std::vector<std::uint8_t> bytes = log.to_host<std::uint8_t>();
  for (std::int64_t i = 0; i < kSteps; ++i) {
    Value seen{};
    std::memcpy(&seen, bytes.data() + static_cast<std::size_t>(i) * sizeof(Value), sizeof(Value));
    ASSERT_EQ(seen.step, i);
    ASSERT_EQ(seen.rate, 0.5 * static_cast<double>(i));
  }
}

RandomState copied(const Tensor& bytes) {
  RandomState state;
  std::memcpy(&state, bytes.to_host<std::uint8_t>().data(), sizeof(state));
  return state;
}

TEST_F(Gpu, AReplayReadsWhatWasStoredBeforeIt) {
  const Tensor seen = Tensor::zeros({sizeof(RandomState)}, DType::u8);
  context().random = {.seed = 3, .step = 1, .sample_offset = 10};
  const auto look = [&] { cuda_copy(seen.view().data, context().device_random(), sizeof(RandomState), stream()); };
  look();
  EXPECT_EQ(copied(seen), context().random);

  CudaGraph graph;
  EXPECT_FALSE(graph.captured());
  EXPECT_THROW(graph.launch(), std::invalid_argument);
  seen.fill_zero();
  context().synchronize();
  graph.capture(look);
  EXPECT_EQ(copied(seen).seed, 0u) << "a capture runs nothing";
  for (std::uint64_t step = 2; step < 5; ++step) {
    context().random.step = step;
    context().device_random();
    graph.launch();
    EXPECT_EQ(copied(seen), context().random);
  }
}

TEST_F(Gpu, ACaptureThatFailsLeavesTheStreamUsable) {
  CudaGraph graph;
  EXPECT_THROW(graph.capture([] { throw std::runtime_error("stop"); }), std::runtime_error);
  EXPECT_THROW(graph.capture([] { context().synchronize(); }), Error);  // no wait inside a capture
  EXPECT_FALSE(graph.captured());
  EXPECT_FALSE(is_capturing(stream()));
  EXPECT_EQ(Tensor::zeros({2}, DType::f32).to_host<float>(), (std::vector<float>{0, 0}));
}

TEST_F(Gpu, OtherThreadsUseTheSameGpu) {
  std::vector<float> seen;
  std::thread other([&] {
    const ContextScope scope(*context_);
    seen = Tensor::zeros({3}, DType::f32).to_host<float>();
  });
  other.join();
  EXPECT_EQ(seen, (std::vector<float>{0, 0, 0}));
}

TEST_F(Gpu, AProcessDrivesOneGpu) {
  const int count = count_gpus().count;
  EXPECT_THROW(Context(ContextOptions{.device = DeviceType::cuda, .gpu = count}), std::invalid_argument);
  if (count > 1) {
    EXPECT_THROW(Context(ContextOptions{.device = DeviceType::cuda, .gpu = 1}), std::invalid_argument);
  }
  EXPECT_THROW(Context(DeviceType::cuda, 1, DType::f64), std::invalid_argument);
  const GpuInfo gpu = selected_gpu();
  EXPECT_EQ(gpu.index, 0);
  EXPECT_EQ(gpu.uuid.size(), 40u) << gpu.uuid;
  EXPECT_GT(gpu.total_bytes, gpu.free_bytes);
}

TEST_F(Gpu, TensorsOfAGpuNeedItsContext) {
  const Tensor tensor = Tensor::zeros({2}, DType::f32);
  Context cpu;
  const ContextScope scope(cpu);
  EXPECT_THROW(tensor.to_host<float>(), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
