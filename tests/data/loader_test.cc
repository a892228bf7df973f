#include "framework/data/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "framework/data/synthetic.h"
#include "tests/data/allocation_count.h"
#include "tests/data/testing.h"

namespace lockstep {
namespace {

using testing::allocation_count;
using testing::next_indices;
using testing::rejection;
using testing::test_seed;

// Sample i is (i, i) with label i mod 10; sample `broken` cannot be read, sample `mislabelled` has a wrong label.
class Numbers : public DatasetOf<float> {
 public:
  explicit Numbers(std::int64_t size, std::int64_t broken = -1, std::int64_t mislabelled = -1)
      : DatasetOf({.name = "numbers", .size = size, .sample_shape = {2}, .num_classes = 10}),
        broken_(broken),
        mislabelled_(mislabelled) {}

  void read(std::int64_t index, std::span<float> sample, std::int32_t& label) const override {
    if (index == broken_) throw std::runtime_error("sample " + std::to_string(index) + " is broken");
    sample[0] = sample[1] = static_cast<float>(index);
    label = index == mislabelled_ ? 10 : static_cast<std::int32_t>(index % 10);
  }

 private:
  std::int64_t broken_;
  std::int64_t mislabelled_;
};

std::unique_ptr<TrainSampler> train_sampler(std::int64_t size, std::int64_t batch, std::uint64_t seed = 0) {
  return std::make_unique<TrainSampler>(size, BatchSplit{.batch_per_rank = batch}, 0,
                                        TrainSamplerOptions{.seed = seed});
}

std::unique_ptr<TrainSampler> ordered_sampler(std::int64_t size, std::int64_t batch) {
  return std::make_unique<TrainSampler>(size, BatchSplit{.batch_per_rank = batch}, 0,
                                        TrainSamplerOptions{.shuffle = false});
}

TEST(Loader, GivesTheSamplersBatchesWhateverTheThreads) {
  const std::uint64_t seed = test_seed();
  const auto dataset = synthetic_dataset({.sample_shape = {5, 7, 3}, .size = 103, .seed = seed});
  for (const int threads : {1, 2, 4}) {
    for (const int slots : {2, 3, 5}) {
      const BatchSplit split{.batch_per_rank = 6, .accumulate = 2, .world_size = 2};
      TrainSampler expected(dataset->size(), split, 1, {.seed = seed});
      auto sampler = std::make_unique<TrainSampler>(dataset->size(), split, 1, TrainSamplerOptions{.seed = seed});
      expected.seek({.epoch = 2, .step = 3});
      sampler->seek({.epoch = 2, .step = 3});
      Loader loader(*dataset, std::move(sampler), {.slots = slots, .threads = threads});
      std::vector<std::uint8_t> pixels(105);
      for (int i = 0; i < 30; ++i) {  // over three epochs of 4 steps of 2 micro-steps
        SampledBatch sampled;
        const std::vector<std::int64_t> indices = next_indices(expected, &sampled);
        const Batch& batch = loader.next();
        ASSERT_EQ(batch.count, 6);
        ASSERT_EQ(batch.first, sampled.first);
        ASSERT_EQ(batch.position, sampled.position);
        ASSERT_EQ(batch.samples.shape, (Shape{6, 5, 7, 3}));
        ASSERT_EQ(batch.labels.shape, (Shape{6}));
        for (std::size_t j = 0; j < indices.size(); ++j) {
          std::int32_t label = -1;
          dataset->read(indices[j], pixels, label);
          ASSERT_EQ(std::memcmp(batch.samples.as<std::uint8_t>() + 105 * j, pixels.data(), 105), 0);
          ASSERT_EQ(batch.labels.as<std::int32_t>()[j], label);
        }
      }
    }
  }
}

TEST(Loader, FiniteSamplersEndAndStayEnded) {
  const Numbers dataset(10);
  for (const int threads : {1, 3}) {
    Loader loader(dataset, std::make_unique<EvalSampler>(10, 4, 0, 1), {.threads = threads});
    std::vector<std::int64_t> counts;
    for (int i = 0; i < 6; ++i) counts.push_back(loader.next().count);
    EXPECT_EQ(counts, (std::vector<std::int64_t>{4, 4, 2, 0, 0, 0}));
    EXPECT_EQ(loader.next().samples.shape, (Shape{0, 2}));
  }
  Loader nothing(dataset, std::make_unique<EvalSampler>(1, 4, 0, 2));  // the second rank has the only sample
  EXPECT_EQ(nothing.next().count, 0);
}

TEST(Loader, ABatchStaysUntilTheNextCall) {
  const Numbers dataset(1000);
  Loader loader(dataset, ordered_sampler(1000, 10), {.slots = 2, .threads = 2});
  for (int i = 0; i < 5; ++i) {
    const Batch& batch = loader.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time for every slot that may be filled
    for (int j = 0; j < 10; ++j) {
      EXPECT_EQ(batch.samples.as<float>()[2 * j + 1], static_cast<float>(10 * i + j));
      EXPECT_EQ(batch.labels.as<std::int32_t>()[j], j);
    }
  }
}

TEST(Loader, FillsAllSlotsAheadButNoMore) {
  class Counted : public DatasetOf<float> {
   public:
    Counted() : DatasetOf({.size = 100, .sample_shape = {1}, .num_classes = 1}) {}
    void read(std::int64_t, std::span<float> sample, std::int32_t& label) const override {
      sample[0] = 0;
      label = 0;
      ++reads;
    }
    mutable std::atomic<int> reads{0};
  };
  const auto settled = [](const std::atomic<int>& reads, int expected) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (reads < expected && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return reads.load();
  };
  const Counted dataset;
  Loader loader(dataset, ordered_sampler(100, 1), {.slots = 3});
  EXPECT_EQ(settled(dataset.reads, 3), 3);
  loader.next();
  EXPECT_EQ(settled(dataset.reads, 3), 3);
  loader.next();
  EXPECT_EQ(settled(dataset.reads, 4), 4);
}

TEST(Loader, ErrorsReachTheBatchTheyBelongTo) {
  const Numbers broken(100, 17);
  for (const int threads : {1, 3}) {
    Loader loader(broken, ordered_sampler(100, 5), {.threads = threads});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(loader.next().samples.as<float>()[0], static_cast<float>(5 * i));
    for (int again = 0; again < 3; ++again) {
      try {
        loader.next();
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "sample 17 is broken");
      }
    }
  }
}

TEST(Loader, NamesAWrongLabel) {
  const Numbers mislabelled(20, -1, 7);
  Loader loader(mislabelled, ordered_sampler(20, 10));
  EXPECT_EQ(rejection([&] { loader.next(); }), "numbers: expected labels between 0 and 9, got 10 for sample 7");
}

TEST(Loader, NamesAnIndexThatTheDataSetDoesNotHave) {
  const Numbers dataset(20);
  Loader loader(dataset, ordered_sampler(25, 25));
  EXPECT_EQ(rejection([&] { loader.next(); }), "numbers: expected a sample index below 20, got 20 from the sampler");
}

TEST(Loader, PassesOnWhatTheSamplerThrows) {
  class Failing : public Sampler {
   public:
    std::int64_t batch_size() const override { return 1; }
    SampledBatch next(std::span<std::int64_t> indices) override {
      if (calls_++ == 2) throw std::runtime_error("no order");
      indices[0] = 0;
      return {.count = 1};
    }

   private:
    int calls_ = 0;
  };
  const Numbers dataset(1);
  Loader loader(dataset, std::make_unique<Failing>(), {.threads = 2});
  EXPECT_EQ(loader.next().count, 1);
  EXPECT_EQ(loader.next().count, 1);
  EXPECT_THROW(loader.next(), std::runtime_error);
  EXPECT_THROW(loader.next(), std::runtime_error);
}

TEST(Loader, StopsAtAnyMoment) {
  const Numbers dataset(1000);
  const Numbers broken(1000, 40);
  for (int i = 0; i < 60; ++i) {
    Loader loader(i % 3 == 2 ? broken : dataset, ordered_sampler(1000, 10), {.slots = 2 + i % 3, .threads = 1 + i % 2});
    for (int j = 0; j < i % 4; ++j) loader.next();
    if (i % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(Loader, SlotsComeFromTheGivenAllocator) {
  const Numbers dataset(100);
  std::vector<std::size_t> requested_bytes;
  int live = 0;
  {
    const auto allocate = [&](std::size_t bytes) -> std::shared_ptr<void> {
      requested_bytes.push_back(bytes);
      ++live;
      return {std::aligned_alloc(64, (bytes + 63) / 64 * 64), [&live](void* memory) {
                std::free(memory);
                --live;
              }};
    };
    Loader loader(dataset, ordered_sampler(100, 9), {.slots = 4, .allocate = allocate});
    for (int i = 0; i < 20; ++i) loader.next();
    EXPECT_EQ(live, 4);
    const Batch& batch = loader.next();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(batch.samples.data) % 64, 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(batch.labels.data) % 64, 0U);
  }
  EXPECT_EQ(live, 0);
  // 9 samples of 8 bytes, rounded up to 64, and 9 labels of 4.
  EXPECT_EQ(requested_bytes, (std::vector<std::size_t>(4, 128 + 36)));
}

TEST(Loader, AllocatesNothingOnceTheSlotsWereFilled) {
  const auto dataset = synthetic_dataset({.size = 1000});
  for (const int threads : {1, 2}) {
    Loader loader(*dataset, train_sampler(1000, 64), {.slots = 3, .threads = threads});
    for (int i = 0; i < 3; ++i) loader.next();
    const std::int64_t before = allocation_count();
    for (int i = 0; i < 100; ++i) loader.next();  // over six epochs
    EXPECT_EQ(allocation_count(), before);
  }
  EXPECT_GT(allocation_count(), 0) << "the counter counts";
}

TEST(Loader, RejectsOptionsOutOfRange) {
  const Numbers dataset(100);
  EXPECT_EQ(rejection([&] { Loader(dataset, ordered_sampler(100, 10), {.slots = 1}); }),
            "loader: expected at least 2 slots, got 1");
  EXPECT_EQ(rejection([&] { Loader(dataset, ordered_sampler(100, 10), {.threads = 0}); }),
            "loader: expected at least 1 thread, got 0");
}

}  // namespace
}  // namespace lockstep
