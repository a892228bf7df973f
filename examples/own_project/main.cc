// An own data set, an own op and an own model, trained on two ranks: docs/own_project.md.
#include <cmath>
#include <cstdio>

#include "framework/lockstep.h"

using namespace lockstep;

// Points of a plane; the class says whether a point lies inside a circle.
struct Circle : DatasetOf<float> {
  Circle(std::int64_t first_point, std::int64_t size)
      : DatasetOf({.name = "circle", .size = size, .sample_shape = {2}, .num_classes = 2}), first(first_point) {}
  void read(std::int64_t index, std::span<float> point, std::int32_t& label) const override {
    const auto i = static_cast<float>(first + index);
    point[0] = 2.0F * std::fmod(i * 0.6180340F, 1.0F) - 1.0F;
    point[1] = 2.0F * std::fmod(i * 0.7548777F, 1.0F) - 1.0F;
    label = point[0] * point[0] + point[1] * point[1] < 0.5F ? 1 : 0;
  }
  std::int64_t first;
};

// y = x * x, with dx = 2 x dy: without it the model could not see a circle.
Tensor square(const Tensor& x) {
  Tensor y = multiply(x.detach(), x.detach());
  record("square", {&x}, {&y},
         [x = x.detach()](Backward& backward) { backward.pass(0, scale(multiply(x, backward.dy()), 2.0)); });
  return y;
}

struct Net : Module {
  Net() {
    register_module("hidden", hidden);
    register_module("out", out);
  }
  Tensor forward(const Tensor& x) const { return out.forward(square(hidden.forward(x))); }
  Linear hidden{2, 16}, out{16, 2};
};

int main(int, char** argv) {
  return run_ranks(2, argv, [](World& world) {
    Circle points(0, 4096), unseen(4096, 1024);
    Net model;
    Trainer trainer(
        model, [&](const Tensor& x) { return model.forward(x); }, points, &unseen, world.group(),
        {.split = {.batch_per_rank = 32}, .steps = 300, .optimizer = AdamWConfig{}, .schedule = {.peak = 0.01}});
    const auto result = trainer.run();
    if (world.rank() == 0) std::printf("accuracy %.3f on %d ranks\n", result->accuracy, world.size());
  });
}
