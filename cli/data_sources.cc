#include "cli/data_sources.h"

#include "framework/core/error.h"
#include "framework/data/synthetic.h"
#include "models/registry.h"

namespace lockstep::cli {
namespace {

constexpr std::int64_t kLargestImage = 8192;  // to a side: far more than a model of today reads

void check(const DataArguments& arguments, const std::string& model) {
  expect(!arguments.synthetic || !arguments.data, "expected --data or --synthetic, got both");
  expect(!arguments.image_size || arguments.synthetic, "--image-size: expected --synthetic, whose images it is for");
  const std::int64_t side = arguments.image_size.value_or(1);
  expect(side >= 1, "--image-size: expected at least 1, got {}", side);
  expect(side <= kLargestImage, "--image-size: expected at most {}, got {}", kLargestImage, side);
  const Shape usual = usual_input(model).sample_shape;
  expect(arguments.synthetic || arguments.data || usual == Shape({28, 28, 1}),
         "{}: expected --synthetic (made-up images), got no data: the default, Fashion-MNIST, has no images of {} x {} "
         "x {}",
         model, usual[0], usual[1], usual[2]);
}

std::unique_ptr<Dataset> synthetic(const DataArguments& arguments, const std::string& model, std::uint64_t seed,
                                   Split split) {
  const ModelInput usual = usual_input(model);
  const std::int64_t height = arguments.image_size.value_or(usual.sample_shape[0]);
  const std::int64_t width = arguments.image_size.value_or(usual.sample_shape[1]);
  // As many as Fashion-MNIST has; large images are tested on one of each class.
  const std::int64_t test_size = usual.classes == 10 ? 10000 : usual.classes;
  return synthetic_dataset({.sample_shape = {height, width, usual.sample_shape[2]},
                            .num_classes = usual.classes,
                            .size = split == Split::train ? 60000 : test_size,
                            .seed = seed,
                            .split = split});
}

std::unique_ptr<Dataset> open(const DataArguments& arguments, const std::string& model, std::uint64_t seed,
                              Split split) {
  const std::string directory = arguments.data.value_or(kFashionMnistPath);
  std::unique_ptr<Dataset> dataset;
  if (arguments.synthetic) {
    dataset = synthetic(arguments, model, seed, split);
  } else {
    dataset = fashion_mnist(split == Split::train ? directory : arguments.val_data.value_or(directory), split);
  }
  expect_model_takes(model, dataset->sample_shape());
  return dataset;
}

}  // namespace

std::unique_ptr<Dataset> open_validation_data(const DataArguments& arguments, const std::string& model,
                                              std::uint64_t seed) {
  check(arguments, model);
  return open(arguments, model, seed, Split::test);
}

DataSources open_data(const DataArguments& arguments, const std::string& model, std::uint64_t seed) {
  auto validation = open_validation_data(arguments, model, seed);
  return {open(arguments, model, seed, Split::train), std::move(validation)};
}

}  // namespace lockstep::cli
