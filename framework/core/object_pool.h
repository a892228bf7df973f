// Objects that cost something to make are handed out again and again.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep {

// get() is one thread's. What it returns may be let go of on any, also when the pool is gone.
template <class T>
class ObjectPool {
 public:
  explicit ObjectPool(std::function<std::unique_ptr<T>()> make) : make_(std::move(make)) {}

  // One that nobody holds, as its last holder left it; a new one where there is none.
  std::shared_ptr<T> get() {
    std::unique_ptr<T> object = idle_->take();
    if (!object) object = make_();
    return {object.release(), [idle = idle_](T* returned) { idle->give(std::unique_ptr<T>(returned)); }};
  }

 private:
  struct Idle {
    std::unique_ptr<T> take() {
      const std::lock_guard lock(mutex);
      if (objects.empty()) return nullptr;
      std::unique_ptr<T> object = std::move(objects.back());
      objects.pop_back();
      return object;
    }

    void give(std::unique_ptr<T> object) {
      const std::lock_guard lock(mutex);
      objects.push_back(std::move(object));
    }

    std::mutex mutex;
    std::vector<std::unique_ptr<T>> objects;
  };

  std::function<std::unique_ptr<T>()> make_;
  std::shared_ptr<Idle> idle_ = std::make_shared<Idle>();
};

}  // namespace lockstep
