// The data sets that --data, --val-data and --synthetic name.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "framework/data/dataset.h"
#include "framework/data/idx.h"

namespace lockstep::cli {

struct DataArguments {
  std::optional<std::string> data, val_data;
  bool synthetic = false;
  std::optional<std::int64_t> image_size;
};

template <class Visitor>
void visit_fields(DataArguments& arguments, Visitor&& visit) {
  static const std::string data_help = fmt::format(
      "directory of IDX files (train-images-idx3-ubyte.gz ...); default for mlp and lenet: {}; vgg has none",
      kFashionMnistPath);
  visit("--data", arguments.data, data_help.c_str());
  visit("--val-data", arguments.val_data, "directory whose test files are evaluated; default: that of --data");
  visit("--synthetic", arguments.synthetic,
        "made-up images instead of --data, of the model's usual size and number of classes");
  visit("--image-size", arguments.image_size, "side of made-up images; default: 28 for mlp and lenet, 224 for vgg");
}

struct DataSources {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;
};

// Throws std::invalid_argument where the options contradict each other, files are missing or broken, or samples do not
// fit the model.
std::unique_ptr<Dataset> open_validation_data(const DataArguments& arguments, const std::string& model,
                                              std::uint64_t seed);
DataSources open_data(const DataArguments& arguments, const std::string& model, std::uint64_t seed);

}  // namespace lockstep::cli
