// The data sets that --data, --val-data and --synthetic name.
#pragma once

#include <memory>
#include <string>

#include "framework/data/dataset.h"
#include "framework/data/idx.h"

namespace lockstep::cli {

struct DataArguments {
  std::string data = kFashionMnistPath;
  std::string val_data;
  bool synthetic = false;
};

template <class Visitor>
void visit_fields(DataArguments& arguments, Visitor&& visit) {
  visit("--data", arguments.data, "directory of IDX files (train-images-idx3-ubyte.gz ...)");
  visit("--val-data", arguments.val_data, "directory whose test files are evaluated; default: that of --data");
  visit("--synthetic", arguments.synthetic, "made-up images instead of --data");
}

struct DataSources {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;
};

// Throws std::invalid_argument where the files are missing or broken.
std::unique_ptr<Dataset> open_validation_data(const DataArguments& arguments, std::uint64_t seed);
DataSources open_data(const DataArguments& arguments, std::uint64_t seed);

}  // namespace lockstep::cli
