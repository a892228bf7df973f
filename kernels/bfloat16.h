// Conversions of bf16 on the host. Kernels of a GPU have instructions for them: kernels/cuda/element.cuh.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/tensor_view.h"

namespace lockstep {

constexpr float float_of(bfloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

// Rounds to nearest, ties to even; a NaN stays a NaN.
constexpr bfloat16 bfloat16_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<std::uint16_t>((value != value ? bits | 0x400000u : rounded) >> 16)};
}

}  // namespace lockstep
