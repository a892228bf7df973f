#include "cli/data_sources.h"

#include "framework/data/synthetic.h"

namespace lockstep::cli {
namespace {

constexpr std::int64_t kSyntheticTestSize = 10000;

}  // namespace

std::unique_ptr<Dataset> open_validation_data(const DataArguments& arguments, std::uint64_t seed) {
  if (arguments.synthetic) {
    return synthetic_dataset({.size = kSyntheticTestSize, .seed = seed, .split = Split::test});
  }
  return fashion_mnist(arguments.val_data.empty() ? arguments.data : arguments.val_data, Split::test);
}

DataSources open_data(const DataArguments& arguments, std::uint64_t seed) {
  auto validation = open_validation_data(arguments, seed);
  if (arguments.synthetic) return {synthetic_dataset({.seed = seed}), std::move(validation)};
  return {fashion_mnist(arguments.data, Split::train), std::move(validation)};
}

}  // namespace lockstep::cli
