// Links that this machine need not have: what was measured or published of them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/interconnect/cost_model.h"

namespace lockstep {

struct PublishedLink {
  std::string_view name;  // as in --emulate
  std::string_view path;  // how the bytes travel
  double alpha_us;        // of an all-reduce of 2 ranks
  double busbw;           // GB/s of a large all-reduce
  double peak;            // GB/s in one direction, of the link by its specification
  bool shared;            // as in CostModel
  std::string_view source;
};

std::span<const PublishedLink> published_links();
// Throws std::invalid_argument for a name that is unknown, with the nearest known one.
const PublishedLink& published_link(std::string_view name);
CostModel cost_model_of(const PublishedLink& link);

}  // namespace lockstep
