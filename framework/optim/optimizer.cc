#include "framework/optim/optimizer.h"

#include <utility>

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/memory_purpose.h"
#include "kernels/dispatch.h"

namespace lockstep {
namespace {

static_assert(kernels::kDecayChunk == ParameterArena::kChunk);

class Sgd final : public Optimizer {
 public:
  Sgd(const SgdConfig& config, const ParameterArena& arena) : Optimizer(arena), config_(config) {
    expect(config.momentum >= 0 && config.momentum < 1, "sgd: expected a momentum in [0, 1), got {}", config.momentum);
    expect(config.weight_decay >= 0, "sgd: expected a weight decay of at least 0, got {}", config.weight_decay);
    expect(!config.nesterov || config.momentum > 0, "sgd: expected a momentum above 0 with nesterov, got 0");
    if (config.momentum > 0) add_state("momentum");
  }

 private:
  void update_range(const kernels::UpdateRange& update, Range range) override {
    const View momentum = config_.momentum > 0 ? state_view(0, range) : View{};
    LOCKSTEP_DISPATCH(sgd_step, context().exec(), update, momentum, config_);
  }

  SgdConfig config_;
};

class AdamW final : public Optimizer {
 public:
  AdamW(const AdamWConfig& config, const ParameterArena& arena) : Optimizer(arena), config_(config) {
    for (const double beta : {config.beta1, config.beta2}) {
      expect(beta >= 0 && beta < 1, "adamw: expected betas in [0, 1), got {}", beta);
    }
    expect(config.weight_decay >= 0, "adamw: expected a weight decay of at least 0, got {}", config.weight_decay);
    expect(config.eps > 0, "adamw: expected an eps above 0, got {}", config.eps);
    add_state("exp_avg");
    add_state("exp_avg_sq");
  }

 private:
  void update_range(const kernels::UpdateRange& update, Range range) override {
    LOCKSTEP_DISPATCH(adamw_step, context().exec(), update, state_view(0, range), state_view(1, range), config_);
  }

  AdamWConfig config_;
};

}  // namespace

Optimizer::Optimizer(const ParameterArena& arena) : arena_(arena), device_scalars_(arena.masters().device()) {}

void Optimizer::begin_step(double learning_rate) {
  ++scalars_.step;
  scalars_.learning_rate = learning_rate;
  if (on_device_ != scalars_) device_scalars_.store(context().exec(), scalars_);
  on_device_.reset();
}

void Optimizer::update(Range range, const double* grad_scale) {
  expect(range.offset % ParameterArena::kChunk == 0,
         "optimizer: expected a range that starts on a multiple of {}, got {}", ParameterArena::kChunk, range.offset);
  const std::int64_t chunk = range.offset / ParameterArena::kChunk;
  const std::int64_t chunks = (range.count + ParameterArena::kChunk - 1) / ParameterArena::kChunk;
  const bool copies = arena_.values().dtype() != arena_.masters().dtype();
  update_range({.param = slice(arena_.masters(), range),
                .grad = slice(arena_.grads(), range),
                .decay = slice(arena_.decay(), {chunk, chunks}),
                .grad_scale = grad_scale,
                .scalars = device_scalars_.get(),
                .compute_copy = copies ? slice(arena_.values(), range).view() : View{}},
               range);
}

void Optimizer::step(double learning_rate) {
  begin_step(learning_rate);
  update(arena_.whole());
}

void Optimizer::add_state(std::string name) {
  const MemoryScope purpose(MemoryPurpose::optimizer);
  state_.push_back({std::move(name), Tensor::zeros(arena_.masters().shape(), arena_.masters().dtype())});
}

View Optimizer::state_view(std::size_t i, Range range) const { return slice(state_[i].values, range); }

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const ParameterArena& arena) {
  if (const auto* sgd = std::get_if<SgdConfig>(&config)) return std::make_unique<Sgd>(*sgd, arena);
  return std::make_unique<AdamW>(std::get<AdamWConfig>(config), arena);
}

}  // namespace lockstep
