#include "framework/core/object_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

namespace lockstep {
namespace {

struct Counted {
  explicit Counted(std::atomic<int>& number) : alive(number) { ++alive; }
  ~Counted() { --alive; }
  std::atomic<int>& alive;
};

TEST(ObjectPool, HandsOutAgainWhatNobodyHolds) {
  std::atomic<int> alive = 0;
  {
    ObjectPool<Counted> pool([&] { return std::make_unique<Counted>(alive); });
    std::shared_ptr<Counted> first = pool.get();
    const std::shared_ptr<Counted> second = pool.get();
    EXPECT_NE(first, second);
    const std::shared_ptr<Counted> copy = first;
    const Counted* const address = first.get();
    first.reset();
    EXPECT_NE(pool.get().get(), address) << "a copy still holds it";
    EXPECT_EQ(alive, 3);
  }
  EXPECT_EQ(alive, 0);
}

TEST(ObjectPool, MakesNoMoreThanAreHeldAtOnce) {
  std::atomic<int> alive = 0;
  ObjectPool<Counted> pool([&] { return std::make_unique<Counted>(alive); });
  const std::shared_ptr<Counted> kept = pool.get();  // for good: what came after it is handed out again all the same
  for (int round = 0; round < 100; ++round) {
    std::set<std::shared_ptr<Counted>> held;
    for (int i = 0; i < 5; ++i) held.insert(pool.get());
    EXPECT_EQ(held.size(), 5u);
    EXPECT_FALSE(held.contains(kept));
  }
  EXPECT_EQ(alive, 6);
}

TEST(ObjectPool, TakesBackFromOtherThreads) {
  std::atomic<int> alive = 0;
  ObjectPool<Counted> pool([&] { return std::make_unique<Counted>(alive); });
  for (int round = 0; round < 200; ++round) {
    std::thread other([object = pool.get()]() mutable { object.reset(); });
    pool.get().reset();
    other.join();
  }
  EXPECT_LE(alive, 2);
}

TEST(ObjectPool, MayEndFirst) {
  std::atomic<int> alive = 0;
  std::shared_ptr<Counted> object;
  {
    ObjectPool<Counted> pool([&] { return std::make_unique<Counted>(alive); });
    object = pool.get();
    pool.get().reset();
  }
  EXPECT_GE(object->alive, 1);
  object.reset();
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace lockstep
